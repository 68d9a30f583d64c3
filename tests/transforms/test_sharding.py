"""What keeps several processes from sharing the work."""

from __future__ import annotations

import textwrap

import pytest

from tests.transforms.support import check_noop, check_transformed, convert

SIZE = {"setup": "batch_size = 8"}
CODES = ("ACC402", "ACC404", "ACC405", "ACC408")


@pytest.mark.parametrize(
    "snippet",
    [
        "h = torch.zeros(x.size(0), 4)",
        "batch_size = x.size(0)\nh = torch.zeros(batch_size, 4)",
        "h = torch.zeros(8, 4)",
        "h = x.view(-1, 4)",
        "if i > 100:\n    break",
        "if epoch == 3:\n    break",
        "h = torch.matmul(x, x.new_ones(4, 2))",
    ],
)
def test_sizes_and_exits_that_are_right_stay(snippet: str) -> None:
    check_noop("batch", snippet, *CODES)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("h = torch.zeros(batch_size, 4)", "h = torch.zeros(x.size(0), 4)"),
        ("é = torch.randn(batch_size, 4) + 1", "é = torch.randn(x.size(0), 4) + 1"),
        ("h = x.view(batch_size, -1)", "h = x.view(x.size(0), -1)"),
        ("h = x.reshape(batch_size, 4)", "h = x.reshape(-1, 4)"),
    ],
)
def test_the_batchs_own_size(before: str, after: str) -> None:
    check_transformed("batch", before, after, **SIZE)


@pytest.mark.parametrize(
    ("test", "agreed"),
    [
        ("loss.item() < 0.1", 'accelerator.reduce(loss.item(), reduction="mean") < 0.1'),
        ("i > 3 and loss < 0.1", 'i > 3 and accelerator.reduce(loss, reduction="mean") < 0.1'),
        ("torch.isnan(loss).any()", 'torch.isnan(accelerator.reduce(loss, reduction="mean")).any()'),
    ],
)
def test_processes_agree_when_to_leave(test: str, agreed: str) -> None:
    check_transformed(
        "update",
        f"optimizer.step()\nif {test}:\n    break",
        f"optimizer.step()\nif {agreed}:\n    break",
    )


def test_processes_agree_which_batch_to_skip() -> None:
    loss = "loss = F.cross_entropy(model(x), y)\nif {}:\n    continue"
    agreed = 'torch.isnan(accelerator.reduce(loss, reduction="mean"))'
    check_transformed("loss", loss.format("torch.isnan(loss)"), loss.format(agreed))


@pytest.mark.parametrize(
    ("before", "test"),
    [
        ("", "(output.argmax(1) == y).all()"),
        ("if y.sum() > 3:", "loss.item() < 0.1"),
    ],
)
def test_an_exit_on_a_local_number_is_left_to_a_person(before: str, test: str) -> None:
    stop = f"if {test}:\n    break"
    if before:
        stop = before + "\n" + textwrap.indent(stop, "    ")
    conversion = convert(
        loss="output = model(x)\nloss = F.cross_entropy(output, y)",
        update=f"optimizer.step()\n{stop}\nbest = loss.item()",
    )
    assert "ACC405" in {f.code for f in conversion.remaining}


@pytest.mark.parametrize(
    "term", ["torch.matmul(output, output.t())", "torch.cdist(output, output)", "output @ output.T"]
)
def test_losses_over_the_whole_batch(term: str) -> None:
    loss = f"output = model(x)\nloss = F.cross_entropy(output, y) + ({term}).mean()"
    assert "ACC408" in {f.code for f in convert(loss=loss).remaining}
