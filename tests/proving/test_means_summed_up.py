"""A mean of each process that is summed up over them is N times the mean, unless it is divided by their number."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import GROUP, NET, named

TRAINING = """
for x, y in loader:
    opt.zero_grad()
    loss = {loss}
    loss.backward()
    opt.step()
    {reduced}
    if dist.get_rank() == 0:
        print({shown})
"""
SUMMED = ("ACC713", "dist.all_reduce(loss)")
MEAN, SUM = "F.mse_loss(model(x), y)", "F.mse_loss(model(x), y, reduction='sum')"


@pytest.mark.parametrize(
    ("loss", "reduced", "shown", "is_right"),
    [
        (MEAN, "dist.all_reduce(loss)", "loss.item()", False),
        (MEAN, "dist.all_reduce(loss)", "loss.item() / dist.get_world_size()", True),
        (MEAN, "dist.all_reduce(loss)", "loss.item() / int(os.environ['GPUS'])", True),
        (MEAN, "dist.all_reduce(loss, op=dist.ReduceOp.AVG)", "loss.item()", True),
        (MEAN + " / dist.get_world_size()", "dist.all_reduce(loss)", "loss.item()", True),
        (SUM, "dist.all_reduce(loss)", "loss.item()", True),
        (MEAN + " * 4", "dist.all_reduce(loss)", "loss.item()", True),
    ],
)
def test_a_loss_of_a_round(loss, reduced, shown, is_right, tmp_path):
    text = GROUP + NET + TRAINING.format(loss=loss, reduced=reduced, shown=shown)
    assert (SUMMED in named(text, tmp_path)) != is_right


EPOCH = """
total, seen = 0.0, 0
for x, y in loader:
    opt.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
    opt.step()
    total += loss.item() * x.size(0)
    seen += {count}
mean = torch.tensor({figure})
{reduced}
if dist.get_rank() == 0:
    print(mean.item())
"""
ALL, ROWS = "dist.all_reduce(mean)", "x.size(0)"


@pytest.mark.parametrize(
    ("count", "figure", "reduced", "line"),
    [
        (ROWS, "total / seen", ALL, ALL),
        (ROWS, "total / seen", f"{ALL}\nmean /= dist.get_world_size()", ""),
        (ROWS, "total / seen", f"{ALL}\ndist.all_reduce(mean)\nmean /= dist.get_world_size()", ALL),
        (ROWS, "total / seen", "dist.all_reduce(mean, op=dist.ReduceOp.AVG)", ""),
        (ROWS, "total", ALL, ""),
        (ROWS, "[total, seen]", f"{ALL}\nmean = mean[0] / mean[1]", ""),
        # How much of all that is, differs between the processes.
        ("(y > 0).sum().item()", "total / seen", ALL, ALL),
    ],
)
def test_a_ratio_of_counts_of_a_share(count, figure, reduced, line, tmp_path):
    text = GROUP + NET + EPOCH.format(count=count, figure=figure, reduced=reduced)
    assert named(text, tmp_path) == ([("ACC713", line)] if line else [])


LISTED = """
import numpy as np
errors = []
for x, y in loader:
    out = model(x).detach().numpy(){scaled}
    errors.append(np.mean(np.abs(out - y.numpy())))
value = torch.tensor(np.mean(np.array(errors)){rounded})
dist.all_reduce(value)
{after}
if dist.get_rank() == 0:
    print(value.item())
"""


@pytest.mark.parametrize(
    ("scaled", "rounded", "after", "is_right"),
    [
        ("", ".round(3)", "pass", False),
        ("", ".round(decimals=3)", "pass", False),
        ("", ".round(3)", "value /= dist.get_world_size()", True),
        ("", ".round()", "pass", True),  # a number of its own
        (" / 255 / np.sqrt(y.numpy() + 1)", ".round(3)", "pass", False),
        (" / int(os.environ['GPUS']) / dist.get_world_size()", "", "pass", True),
    ],
)
def test_a_mean_of_means_with_so_many_digits(scaled, rounded, after, is_right, tmp_path):
    text = GROUP + NET + LISTED.format(scaled=scaled, rounded=rounded, after=after)
    assert named(text, tmp_path) == [("ACC713", "dist.all_reduce(value)")] * (not is_right)
