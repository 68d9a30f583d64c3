"""Losses that are means by weights of their rows: what is to be done is named once, and it is enough."""

from __future__ import annotations

import pytest

from accelify.conversion import ConvertOptions
from accelify.convert import convert_source
from accelify.knowledge import Knowledge
from accelify.obligations import Status, validate
from accelify.proving import prove
from accelify.rule_codes import published
from accelify.source import Source
from tests.transforms.support import PATH, convert, frame, named

CRITERION = "criterion = nn.CrossEntropyLoss({})"
LOSSES = {
    "weights of classes": ("weight=torch.ones(2)", "criterion(model(x), y)", "criterion.weight[y].sum()"),
    "labels left out": ("ignore_index=0", "criterion(model(x), y)", "(y != criterion.ignore_index).sum()"),
    "both": (
        "weight=torch.ones(2), ignore_index=0",
        "criterion(input=model(x), target=y)",
        "criterion.weight[y[y != criterion.ignore_index]].sum()",
    ),
    "a function": ("", "F.cross_entropy(model(x), y, weight=torch.ones(2))", "torch.ones(2)[y].sum()"),
    "by their places": ("", "F.nll_loss(model(x), y, criterion.weight)", "criterion.weight[y].sum()"),
}
SHOWN = """
seen += x.size(0)
running += loss.item() * x.size(0)
"""


def written(given: str, loss: str) -> dict[str, str]:
    return {
        "ready": f"{CRITERION.format(given)}\nrunning, seen = 0.0, 0",
        "loss": f"loss = {loss}",
        "update": f"optimizer.step()\n{SHOWN}",
        "end": "print(running / seen)",
    }


@pytest.mark.parametrize("mode", ["total", "per-process"])
@pytest.mark.parametrize(("given", "loss", "weight"), LOSSES.values(), ids=LOSSES)
def test_the_message_gives_the_call_that_is_exact(given: str, loss: str, weight: str, mode: str) -> None:
    conversion = convert(mode, **written(given, loss))
    (message,) = named(conversion, "ACC705")
    call = f"accelerator.backward(loss, weight={weight})"
    assert message.endswith(f"; give backward what its rows weigh: `{call}`")
    assert not [one for one in conversion.remaining if one.code == "ACC701"], "one finding for one cause"
    before, _, after = conversion.new_text.partition("accelerator.backward(loss)")
    done = validate(f"{before}{call}{after}", None, Knowledge())
    assert not [one for one in done.of(Status.NAMED) if one.demand == "loss"]
    # What is shown of it is to be weighed, too: the sums are reduced already.
    shown = [one.found for one in done.of(Status.NAMED) if one.demand == "content"]
    assert bool(shown) == (mode == "total")


def test_what_is_shown_of_a_loss_that_is_weighed_says_how_it_is_to_be_added_up() -> None:
    written_once = convert("total", **written("weight=torch.ones(2)", "criterion(model(x), y)")).new_text
    text = written_once.replace("backward(loss)", "backward(loss, weight=criterion.weight[y].sum())")
    again = convert_source(Source.from_text(text, PATH), ConvertOptions("total"))
    prove([again], again)
    (message,) = [published(one).message for one in again.remaining if one.code == "ACC701"]
    assert "`criterion(model(x), y)` is a mean by `weight=`" in message
    assert message.endswith(
        "; multiply it by what its rows weigh, and reduce its sum and that of the weights, each by itself"
    )


def test_names_of_another_function_are_not_given() -> None:
    setup = "def lost(out, labels):\n    return F.cross_entropy(out, labels, weight=torch.ones(2))"
    (message,) = named(convert(setup=setup, loss="loss = lost(model(x), y)"), "ACC705")
    assert "[labels].sum()` (line " in message
    assert message.endswith("; give backward what its rows weigh: `accelerator.backward(loss, weight=...)`")


def test_another_runtime_takes_no_weight() -> None:
    text = frame(**written("weight=torch.ones(2)", "criterion(model(x), y)"))
    conversion = convert_source(Source.from_text(text, PATH), ConvertOptions(runtime="accelerate"))
    (message,) = named(conversion, "ACC705")
    assert "backward(loss, weight" not in message
