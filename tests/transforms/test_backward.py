"""Backward and clipping."""

from __future__ import annotations

import pytest

from accelify.conversion import ConvertOptions
from accelify.convert import convert_source
from accelify.source import Source
from tests.transforms.support import PATH, check_noop, check_transformed, codes, convert, frame, place_of

CLIP = "from torch.nn.utils import clip_grad_norm_"


@pytest.mark.parametrize(
    "snippet", ["backward = loss.backward", "graph = loss.grad_fn", "text = 'loss.backward()'"]
)
def test_what_is_no_backward_stays(snippet: str) -> None:
    check_noop("batch", f"loss = x.sum()\n{snippet}", "ACC108")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("loss.backward()", "accelerator.backward(loss)"),
        ("loss.backward(retain_graph=True)", "accelerator.backward(loss, retain_graph=True)"),
        ("loss.backward(retain_graph=True,)", "accelerator.backward(loss, retain_graph=True)"),
        (
            "loss.backward(torch.ones_like(loss))",
            "accelerator.backward(loss, gradient=torch.ones_like(loss))",
        ),
        (
            "loss.backward(gradient=None, create_graph=True)",
            "accelerator.backward(loss, gradient=None, create_graph=True)",
        ),
        ("(loss * 2).backward()", "accelerator.backward(loss * 2)"),
        ("(loss + 0).mean().backward()", "accelerator.backward((loss + 0).mean())"),
        ("torch.autograd.backward(loss)", "accelerator.backward(loss)"),
        ("torch.autograd.backward([loss, 2 * loss])", "accelerator.backward(sum([loss, 2 * loss]))"),
        (
            "losses = [loss, 2 * loss]\ntorch.autograd.backward(losses, retain_graph=True)",
            "losses = [loss, 2 * loss]\naccelerator.backward(sum(losses), retain_graph=True)",
        ),
        ("é = 1; loss.backward(); n = 'ü'", "é = 1; accelerator.backward(loss); n = 'ü'"),
        (
            "F.cross_entropy(\n    model(x),\n    y,\n).backward()",
            "accelerator.backward(F.cross_entropy(\n    model(x),\n    y,\n))",
        ),
    ],
)
def test_forms(before: str, after: str) -> None:
    check_transformed("backward", before, after)


@pytest.mark.parametrize(
    ("call", "after"),
    [
        (
            "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
            "accelerator.clip_grad_norm_(model.parameters(), 1.0)",
        ),
        (
            "norm = torch.nn.utils.clip_grad_norm(model.parameters(), 1.0)",
            "norm = accelerator.clip_grad_norm_(model.parameters(), 1.0)",
        ),
        (
            "nn.utils.clip_grad_value_(model.parameters(), clip_value=0.5)",
            "accelerator.clip_grad_value_(model.parameters(), clip_value=0.5)",
        ),
        (
            "clip_grad_norm_(\n    model.parameters(),\n    max_norm=1.0,\n)",
            "accelerator.clip_grad_norm_(\n    model.parameters(),\n    max_norm=1.0,\n)",
        ),
    ],
)
def test_clipping(call: str, after: str) -> None:
    check_transformed(
        "backward", f"loss.backward()\n{call}", f"accelerator.backward(loss)\n{after}", imports=CLIP
    )


SUMMED = "loss = F.cross_entropy(model(x), y, reduction='sum')"


@pytest.mark.parametrize(
    ("loss", "before", "after"),
    [
        (SUMMED, "loss.backward()", 'accelerator.backward(loss, reduction="sum")'),
        (
            "loss = F.cross_entropy(model(x), y, size_average=False)",
            "loss.backward(retain_graph=True)",
            'accelerator.backward(loss, retain_graph=True, reduction="sum")',
        ),
        (
            "loss = F.cross_entropy(model(x), y, reduction='none').mean(dim=1).sum()",
            "loss.backward()",
            'accelerator.backward(loss, reduction="sum")',
        ),
        (
            "loss = F.cross_entropy(model(x), y, reduction='none').mean(1).mean()",
            "loss.backward()",
            "accelerator.backward(loss)",
        ),
        (f"{SUMMED} / x.size(0)", "loss.backward()", "accelerator.backward(loss)"),
        (f"{SUMMED}\nloss /= len(x)", "loss.backward()", "accelerator.backward(loss)"),
    ],
)
def test_reductions(loss: str, before: str, after: str) -> None:
    check_transformed("backward", before, after, loss=loss)


@pytest.mark.parametrize(
    ("batch_size", "after"),
    [("per-process", "accelerator.backward(loss)"), ("total", 'accelerator.backward(loss, reduction="sum")')],
)
def test_a_sum_over_the_configured_batch_size(batch_size: str, after: str) -> None:
    check_transformed(
        "backward",
        "loss.backward()",
        after,
        batch_size=batch_size,
        setup="batch_size = 8",
        loss=f"{SUMMED} / batch_size",
    )


def test_a_mixed_loss_is_left_to_a_person() -> None:
    conversion = check_transformed(
        "backward",
        "loss.backward()",
        "# TODO(accelify ACC705): sum or average all parts of this loss over the batch, "
        'then say reduction="sum" or nothing\naccelerator.backward(loss)',
        loss=f"{SUMMED} + F.cross_entropy(model(x), y)",
    )  # fmt: skip
    assert "ACC406" in {f.code for f in conversion.remaining}


def test_a_criterion_that_is_made_anew_is_the_last_one_before_the_call() -> None:
    again = """
criterion = nn.NLLLoss()
for x, y in loader:
    loss = criterion(F.log_softmax(model(x), dim=1), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
    loss = "loss = criterion(F.log_softmax(model(x), dim=1), y)"
    made = 'criterion = nn.NLLLoss(reduction="sum")'
    after = check_transformed("loss", loss, loss, setup=made, end=again).new_text
    assert after.index('accelerator.backward(loss, reduction="sum")') < after.index(
        made.replace('reduction="sum"', "")
    )
    assert after.count('reduction="sum")') == 2


DRIFTING = """
fake = torch.rand_like(x)
fake.requires_grad = True
for _ in range(2):
    {backward}
    fake.data.sub_(fake.grad.clamp(-0.5, 0.5))
    fake.grad.zero_()
{clearing}
loss = (model(x) - model(fake.detach())).mean()
"""


def test_a_backward_that_names_the_input_stays() -> None:
    stated = DRIFTING.format(
        backward="model(fake).sum().backward(inputs=[fake])", clearing="optimizer.zero_grad()"
    )
    conversion = check_transformed("loss", stated, stated)
    assert "ACC416" not in codes(conversion)


@pytest.mark.parametrize(
    "clearing",
    ["", "model.zero_grad()"],
)
def test_gradients_of_an_input_beside_those_of_parameters_are_named(clearing: str) -> None:
    loss = DRIFTING.format(backward="model(fake).sum().backward()", clearing=clearing)
    conversion = convert(loss=loss)
    assert 'accelerator.backward(model(fake).sum(), reduction="sum")' in place_of(conversion.new_text, "loss")
    (said,) = [f.message for f in conversion.remaining if f.code == "ACC416"]
    assert said == "`fake.grad`, of an input, is as many times as large as there are processes"
    signed = loss.replace("fake.grad.clamp(-0.5, 0.5)", "fake.grad.data.sign()")
    assert "ACC416" not in codes(convert(loss=signed))


def test_the_mean_over_a_share_weighs_an_input_more() -> None:
    loss = DRIFTING.format(backward="model(fake).mean().backward()", clearing="model.zero_grad()")
    assert "ACC416" in codes(convert("total", loss=loss))
    assert "ACC416" not in codes(convert(loss=loss))


@pytest.mark.parametrize(
    "snippets",
    [
        # A tensor that is trained beside the model.
        {
            "ready": "fake = torch.zeros(8, 4, requires_grad=True)",
            "loss": "loss = (model(x) - model(fake)).mean()",
        },
        # An input whose gradient is read of another backward.
        {
            "loss": "loss = F.cross_entropy(model(x), y)",
            "epoch": "fake = torch.zeros_like(x).requires_grad_()\nmodel(fake).sum().backward()\nprint(fake.grad)",
        },
        # One whose gradient nobody reads.
        {"loss": "fake = torch.zeros_like(x, requires_grad=True)\nloss = (model(x) - model(fake)).mean()"},
    ],
)
def test_backwards_that_train(snippets: dict[str, str]) -> None:
    read = "print(fake.grad)\noptimizer.step()" if "ready" in snippets else "optimizer.step()"
    check_transformed("backward", "loss.backward()", "accelerator.backward(loss)", update=read, **snippets)


@pytest.mark.parametrize(
    ("gradients", "given"),
    [
        ("[None] * 2", ""),
        ("[None, None], True", ", retain_graph=True"),
        ("[None for _ in losses], create_graph=True", ", create_graph=True"),
    ],
)
def test_losses_without_gradients_of_their_own(gradients: str, given: str) -> None:
    check_transformed(
        "update",
        f"losses = [loss, model(x).mean()]\ntorch.autograd.backward(losses, {gradients})",
        f"losses = [loss, model(x).mean()]\naccelerator.backward(sum(losses){given})",
    )


@pytest.mark.parametrize("gradients", ["[torch.ones(()), None]", "given", "[None] + given"])
def test_losses_with_gradients_of_their_own_are_left(gradients: str) -> None:
    update = f"given = [loss.detach()]\ntorch.autograd.backward([loss, loss], {gradients})"
    conversion = convert_source(Source.from_text(frame(update=update), PATH), ConvertOptions())
    assert conversion.status == "refused"
    assert "gradients of their own" in conversion.reason
