"""Figures that were put together are quiet, those of one share are named, with the rows that they are of."""

from __future__ import annotations

from textwrap import dedent

import pytest

from tests.proving.several_programs import GROUP, LOOP, NET, findings, named


@pytest.mark.parametrize(
    ("value", "is_right"), [("mean(loss)", True), ("loss", False), ("mean(loss) - loss", False)]
)
def test_figures_that_were_put_together_in_a_table(value, is_right, tmp_path):
    text = f"""
    from tabulate import tabulate


    def mean(value):
        value = value.clone()
        dist.all_reduce(value)
        value /= dist.get_world_size()
        return value


    total, count, row = 0, 0, {{}}
    for x, y in loader:
        opt.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        opt.step()
        total += ({value}).item() * len(x)
        count += len(x)
    row["loss"] = total / count
    lines = tabulate([list(row.values())], ["loss"]).splitlines()
    if dist.get_rank() == 0:
        print(lines[1])
    """
    assert ("ACC701" in dict(named(GROUP + NET + dedent(text), tmp_path))) != is_right


@pytest.mark.parametrize(
    ("asked", "fed", "is_right"),
    [("dist.get_rank() == 0", "torch.cat(parts)", True), ("x is not None", "out", False)],
)
def test_a_metric_that_the_main_process_alone_is_fed(asked, fed, is_right, tmp_path):
    text = f"""
    class Accuracy:
        def __init__(self):
            self.right = 0

        def update(self, out):
            self.right += (out > 0).sum().item()

        def reset(self):
            for name in self.__dict__:
                self.__dict__[name] = 0


    metric = Accuracy()
    for epoch in range(3):
        for x, y in loader:
            out = model(x)
            parts = [torch.zeros_like(out) for _ in range(dist.get_world_size())]
            dist.all_gather(parts, out)
            if {asked}:
                metric.update({fed})
            dist.barrier()
        if dist.get_rank() == 0:
            print(metric.right)
            metric.reset()
    """
    assert ("ACC701" in dict(named(GROUP + NET + dedent(text), tmp_path))) != is_right


def test_the_chain_of_a_figure_leads_to_the_rows_that_it_counts(tmp_path):
    """A model that mixes rows is shown to a figure of one share no more than the loader that it was trained with."""
    text = """
    right = count = 0
    other = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=False))
    for x, y in other:
        right += (model(x) > y).sum().item()
        count += len(y)
    if dist.get_rank() == 0:
        print(right / count)
    """
    mixing = NET.replace("torch.nn.Linear(4, 4)", "torch.nn.BatchNorm1d(4)")
    found = findings(GROUP + mixing + LOOP + dedent(text), tmp_path)
    message = next(one.message for one in found if one.code == "ACC701")
    assert "this rank's batch of `other`" in message


def test_the_chain_of_a_figure_ends_where_its_rows_are_shared_out(tmp_path):
    """That the rows are others on each process by a seed is named where they are drawn."""
    text = """
    torch.manual_seed(dist.get_rank())
    part, other = torch.utils.data.random_split(data, [40, 20])
    total = 0
    for x, y in DataLoader(other, batch_size=4, sampler=DistributedSampler(other, shuffle=False)):
        total += F.mse_loss(model(x), y).item()
    if dist.get_rank() == 0:
        print(total)
    """
    found = findings(GROUP + NET + dedent(text), tmp_path)
    message = next(one.message for one in found if one.code == "ACC701")
    assert "whose data differ between them (line" in message
    assert "the rank (line" not in message


def test_a_figure_of_rows_that_each_process_draws_for_itself(tmp_path):
    """They are no shares of one set of rows, which could be put together."""
    text = """
    from torch.utils.data import random_split
    torch.manual_seed(dist.get_rank())
    used, left = random_split(data, [48, 12])
    total = 0
    for x, y in DataLoader(left, batch_size=4):
        total += F.mse_loss(model(x), y).item()
    if dist.get_rank() == 0:
        print(total)
    """
    found = [one for one in findings(GROUP + NET + dedent(text), tmp_path) if one.code == "ACC701"]
    assert len(found) == 1
    assert "let all processes draw the same data first" in found[0].message
    assert "put it together" not in found[0].message


@pytest.mark.parametrize("key", ["()", "...", "None", "..., None", "*()", "[]"])
@pytest.mark.parametrize("drawn", [True, False])
def test_parts_by_no_number(key, drawn, tmp_path):
    """`mean[()]` is the mean, one that each process draws for itself as well as one that all have alike."""
    text = GROUP + NET + LOOP
    text += f"mean = torch.{'rand' if drawn else 'ones'}(4).mean()\nif dist.get_rank() == 0:\n    print(mean[{key}])\n"
    assert named(text, tmp_path) == ([("ACC701", f"print(mean[{key}])")] if drawn else [])


@pytest.mark.parametrize(
    ("over", "key"), [("sums", "name"), ("sums.keys()", "name"), ("sums.items()", "name, _")]
)
@pytest.mark.parametrize(
    ("count", "is_right"), [("seen * dist.get_world_size()", True), ("seen", False), ("seen * 2", False)]
)
def test_each_element_of_a_table_is_put_together(count, is_right, over, key, tmp_path):
    """What a round writes to the element of its key, no other one reads."""
    text = f"""
    from collections import defaultdict

    sums, seen = defaultdict(float), 0
    with torch.no_grad():
        for x, y in loader:
            for name, value in {{"loss": F.mse_loss(model(x), y).item()}}.items():
                sums[name] += value * x.size(0)
            seen += x.size(0)
    for {key} in {over}:
        total = torch.tensor(sums[name])
        dist.all_reduce(total)
        sums[name] = (total / ({count})).item()
    if dist.get_rank() == 0:
        print(dict(sums))
    """
    assert ("ACC701" not in dict(named(GROUP + NET + LOOP + dedent(text), tmp_path))) == is_right
