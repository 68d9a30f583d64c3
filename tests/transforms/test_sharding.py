"""What keeps several processes from sharing the work."""

from __future__ import annotations

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


def test_an_exit_on_a_local_number_is_left_to_a_person() -> None:
    conversion = check_transformed(
        "update",
        "optimizer.step()\nif loss.item() < 0.1:\n    break",
        """
        optimizer.step()
        # TODO(accelify ACC405): let all processes agree: accelerator.reduce(value) before the test
        if loss.item() < 0.1:
            break
        """,
    )
    assert "ACC405" in {f.code for f in conversion.remaining}


@pytest.mark.parametrize(
    "term", ["torch.matmul(output, output.t())", "torch.cdist(output, output)", "output @ output.T"]
)
def test_losses_over_the_whole_batch(term: str) -> None:
    loss = f"output = model(x)\nloss = F.cross_entropy(output, y) + ({term}).mean()"
    assert "ACC408" in {f.code for f in convert(loss=loss).remaining}
