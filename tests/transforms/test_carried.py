"""Weights of the loss that are carried on from round to round."""

from __future__ import annotations

import pytest

from accelify.proving import prove
from tests.transforms.support import check_noop, codes, convert

LOSS = "fake = model(torch.zeros_like(x)).mean()\nloss = F.cross_entropy(model(x), y) - weight * fake"


@pytest.mark.parametrize(
    ("update", "after"),
    [
        (
            "weight = weight + 0.1 * (loss - fake).item()",
            'weight = weight + 0.1 * accelerator.reduce((loss - fake).item(), reduction="mean")',
        ),
        (
            "balance = (0.5 * loss - fake).item()\nweight = max(weight + 0.1 * balance, 0)",
            'balance = accelerator.reduce((0.5 * loss - fake).item(), reduction="mean")\n'
            "        weight = max(weight + 0.1 * balance, 0)",
        ),
        (
            "balance = 0.5 * loss - fake\nbalance = balance.item()\nweight = min(max(balance, 0), 1)",
            'balance = accelerator.reduce(balance.item(), reduction="mean")\n        weight = min(max(balance, 0), 1)',
        ),
        ("weight += float(loss)", 'weight += accelerator.reduce(float(loss), reduction="mean")'),
    ],
)
def test_the_average_of_all_processes_is_carried_on(update: str, after: str) -> None:
    conversion = convert(build=BUILD, loss=LOSS, update=f"optimizer.step()\n{update}", end="print(weight)")
    assert after in conversion.new_text
    assert "ACC417" in codes(conversion)


def test_what_is_kept_within_limits_behind_is_no_figure_of_its_own() -> None:
    update = "weight = weight + 0.1 * (loss - fake).item()\nweight = min(max(weight, 0), 1)"
    conversion = convert(build=BUILD, loss=LOSS, update=f"optimizer.step()\n{update}", end="print(weight)")
    assert 'accelerator.reduce((loss - fake).item(), reduction="mean")' in conversion.new_text
    assert "ACC417" not in {finding.code for finding in conversion.remaining}


BUILD = "model = nn.Linear(4, 2)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nweight = 0.0"


def test_a_number_under_a_condition_is_averaged() -> None:
    conversion = convert(
        build=BUILD, loss=LOSS, update="optimizer.step()\nif i % 2:\n    weight = weight + loss.item()"
    )
    assert (
        "# TODO(accelify ACC4" in conversion.new_text
        or "accelerator.reduce(loss.item()" in conversion.new_text
    )


def test_a_weight_that_the_loss_of_one_process_decides() -> None:
    conversion = convert(
        build=BUILD, loss=LOSS, update="optimizer.step()\nif loss.item() > 1:\n    weight = 1.5"
    )
    prove([conversion], conversion)
    assert {f.code for f in conversion.remaining} & {"ACC705", "ACC706"}


@pytest.mark.parametrize("update", ["weight = weight * 0.9", "weight = min(weight + 0.1, i)", "weight += 1"])
def test_schedules_are_no_figures(update: str) -> None:
    check_noop("update", f"optimizer.step()\n{update}", "ACC417", build=BUILD, loss=LOSS)


def test_a_total_that_weighs_nothing() -> None:
    conversion = convert(build=BUILD, update="optimizer.step()\nweight += loss.item()")
    assert "ACC417" not in codes(conversion)
