"""Backward and clipping."""

from __future__ import annotations

import pytest

from tests.transforms.support import check_noop, check_transformed

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
        ("loss.backward(retain_graph=True,)", "accelerator.backward(loss, retain_graph=True,)"),
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
        "# TODO(accelify ACC406): sum or average all parts of this loss over the batch, "
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
