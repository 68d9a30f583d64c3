"""Evaluation loops."""

from __future__ import annotations

import pytest

from tests.transforms.support import check_noop, check_transformed, convert

GATHER = "output, b = accelerator.gather_for_metrics((output, b))"


def test_a_loop_that_only_looks_stays() -> None:
    check_noop("epoch", "for a, b in test_loader:\n    shape = a.shape\n    break", "ACC301", "ACC303")


def test_no_loop_over_a_loader() -> None:
    check_noop("epoch", "for k in range(3):\n    n = k + 1", "ACC301", "ACC303")


def test_a_carried_state_keeps_the_data_whole() -> None:
    snippet = "state = 0\nfor a, b in test_loader:\n    state = model(a) + state\nn = state.mean()"
    conversion = check_transformed("epoch", snippet, snippet)
    assert "ACC303" in {f.code for f in conversion.remaining}
    assert "accelerator.prepare(model, optimizer, loader)" in conversion.new_text


@pytest.mark.parametrize("loader", ["loader", "test_loader"])
def test_output_and_target_are_gathered(loader: str) -> None:
    check_transformed(
        "epoch",
        f"""
        hits = 0
        with torch.no_grad():
            for a, b in {loader}:
                output = model(a)
                hits += (output.argmax(1) == b).sum().item()
        """,
        f"""
        hits = 0
        with torch.no_grad():
            for a, b in {loader}:
                output = model(a)
                {GATHER}
                hits += (output.argmax(1) == b).sum().item()
        """,
    )


@pytest.mark.parametrize("reduction", ["", ", reduction='sum'"])
def test_a_forward_inside_of_the_loss(reduction: str) -> None:
    check_transformed(
        "epoch",
        f"""
        total = 0
        for a, b in test_loader:
            total += F.cross_entropy(model(a), b{reduction}).item()
        """,
        f"""
        total = 0
        for a, b in test_loader:
            output, b = accelerator.gather_for_metrics((model(a), b))
            total += F.cross_entropy(output, b{reduction}).item()
        """,
    )


def test_collected_outputs() -> None:
    check_transformed(
        "epoch",
        "outputs = []\nfor a, b in test_loader:\n    outputs.append(model(a))\nn = torch.cat(outputs)",
        """
        outputs = []
        for a, b in test_loader:
            outputs.append(accelerator.gather_for_metrics(model(a)))
        n = torch.cat(outputs)
        """,
    )


SHARE = """
def accuracy(output, target):
    return float((output.argmax(1) == target).sum()) / float(target.size(0))
def count(output, target):
    return float((output.argmax(1) == target).sum())
"""


@pytest.mark.parametrize(
    "metric",
    [
        "total += F.cross_entropy(output, b).item()\nn = total / len(test_loader.dataset)",
        "total += accuracy(output, b)\n    n += b.size(0)\nn = total / n",
        "total += 10 * math.log10(1 / F.mse_loss(output, b).item())\nn = total / len(test_loader)",
        "rows[i : i + 4] = output",
        "label = torch.arange(2).repeat(2)\n    total += F.cross_entropy(output, label).item()",
    ],
)
def test_figures_that_gathering_would_change(metric: str) -> None:
    head = "total, n, i = 0, 0, 0\nfor a, b in test_loader:\n    output = model(a)\n    "
    snippet = head + metric
    conversion = check_transformed("epoch", snippet, snippet, imports="import math", setup=SHARE)
    assert "ACC303" in {f.code for f in conversion.remaining}
    assert "accelerator.prepare(model, optimizer, loader)" in conversion.new_text


@pytest.mark.parametrize(
    "metric",
    [
        "total += F.cross_entropy(output, b).item()\nn = total / len(test_loader)",
        "total += F.cross_entropy(output, b, reduction='sum').item()\nn = total / len(test_loader.dataset)",
        "total += count(output, b)\nn = total / len(test_loader.dataset)",
        "total += math.exp(n) * (output.argmax(1) == b).sum().item()",
        "rows['output'] = b - output",
    ],
)
def test_figures_that_gathering_leaves(metric: str) -> None:
    head = "rows, total, n = {}, 0, 0\nfor a, b in test_loader:\n    output = model(a)\n    "
    after = head + f"{GATHER}\n    " + metric
    check_transformed("epoch", head + metric, after, imports="import math", setup=SHARE)


def test_targets_made_in_branches_are_gathered_with_the_outputs() -> None:
    snippet = """
    total = 0
    for batch in test_loader:
        if torch.cuda.is_available():
            a = torch.clamp(batch[0].cuda(), 0)
            b = torch.clamp(batch[1].cuda(), 0)
        else:
            a = torch.relu(batch[0])
            b = torch.relu(batch[1])
        output = model(a)
        total += F.cross_entropy(output, b).item()
    """
    text = convert(epoch=snippet, batch="x, y = x.cuda(), y.cuda()").new_text
    assert "output, b = accelerator.gather_for_metrics((output, b))" in text
