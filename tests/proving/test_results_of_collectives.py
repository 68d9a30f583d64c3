"""Collectives of torch.distributed write to what they get, and give nothing."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import named

HEAD = """
dist.init_process_group("gloo")
parts = [torch.ones(3) for number in range(4)]
"""


@pytest.mark.parametrize(
    "line",
    [
        "means = [dist.all_reduce(part.clone()) for part in parts]",
        "total = dist.all_reduce(parts[0].clone()) * 2",
        "total = dist.broadcast(parts[0], src=0)",
    ],
)
def test_a_result_that_is_used_is_named(line, tmp_path):
    assert named(f"{HEAD}{line}\n", tmp_path) == [("ACC701", line)]


@pytest.mark.parametrize(
    "line",
    [
        "dist.all_reduce(parts[0])",
        "work = dist.all_reduce(parts[0], async_op=True); work.wait()",
        "[dist.all_reduce(part) for part in parts]",
        "reduce = lambda part: dist.all_reduce(part); reduce(parts[0])",
        "[dist.all_reduce(part, async_op=True).wait() for part in parts]",
    ],
)
def test_one_that_is_not_is_quiet(line, tmp_path):
    assert named(f"{HEAD}{line}\n", tmp_path) == []


TAKEN = """
accelerator = Accelerator()
model = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
loaders = {{"train": DataLoader(data, batch_size=4, shuffle=True), "val": DataLoader(data, batch_size=4)}}
done = accelerator.prepare(model, opt, loaders["train"], loaders["val"])
{taken}
for x, y in loaders["train"]:
    accelerator.backward(F.mse_loss(model(x), y))
    opt.step()
    opt.zero_grad()
"""


@pytest.mark.parametrize(
    ("taken", "is_right"),
    [
        ('model, opt = done[:2]\nloaders["val"], loaders["train"] = done[2:]', False),
        ('model, opt = done[:2]\nloaders["train"], loaders["val"] = done[2:]', True),
        ('model = done[0]\nopt = done[1]\nloaders["train"] = done[2]\nloaders["val"] = done[3]', True),
        ('model = done[0]\nopt = done[1]\nloaders["val"] = done[2]\nloaders["train"] = done[3]', False),
    ],
)
def test_what_prepare_gives_is_taken_by_its_number(taken, is_right, tmp_path):
    found = named(TAKEN.format(taken=taken), tmp_path, "accelerate")
    assert [code for code, _ in found] == ([] if is_right else ["ACC711"])


COLLECTED = """
accelerator = Accelerator()
model = torch.nn.Linear(4, 3)
model, loader = accelerator.prepare(model, DataLoader(data, batch_size=4))


def predicted():
    rows = []
    for x, y in loader:
        rows.append({row})
    return torch.cat(rows)


rows = {rows}
accelerator.print(len(rows))
"""


@pytest.mark.parametrize(
    ("row", "rows", "is_right"),
    [
        ("accelerator.gather_for_metrics(model(x))", "accelerator.gather_for_metrics(predicted())", False),
        ("accelerator.gather_for_metrics(model(x))", "predicted()", True),
        ("model(x)", "accelerator.gather_for_metrics(predicted())", True),
    ],
)
def test_rows_of_all_that_are_gathered_once_more(row, rows, is_right, tmp_path):
    found = named(COLLECTED.format(row=row, rows=rows), tmp_path, "accelerate")
    assert (("ACC713", f"rows = {rows}") in found) != is_right


HANDED = """
def mean_of(value, group):
    if group is None:
        return value
    {reduced}
    return value / 2


dist.init_process_group("gloo")
sampler = DistributedSampler(data)
model = DDP(torch.nn.Linear(4, 1))
total = torch.zeros(())
for x, y in DataLoader(data, batch_size=4, sampler=sampler):
    total += F.mse_loss(model(x), y).detach()
mean = mean_of(total, dist)
if dist.get_rank() == 0:
    print(mean)
"""


@pytest.mark.parametrize(
    ("reduced", "is_right"), [("group.all_reduce(value)", True), ("group.barrier()", False)]
)
def test_a_module_that_a_helper_gets_is_there(reduced, is_right, tmp_path):
    found = named(HANDED.format(reduced=reduced), tmp_path)
    assert found == ([] if is_right else [("ACC701", "print(mean)")])
