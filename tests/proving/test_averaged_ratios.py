"""Ratios that each process makes of its own sums, and the processes average: not the ratio of all."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import GROUP, LOOP, NET, named

HEAD = GROUP + NET + LOOP + "world = dist.get_world_size()\n"
SHOWN = "if dist.get_rank() == 0:\n    print({})\n"
PASS = """
with torch.no_grad():
    for x, y in loader:
        out = model(x)
"""
BY_CLASS = f"""
sums, counts = torch.zeros(10), torch.zeros(10)
{PASS}        for one in range(10):
            sums[one] += out[y == one].sum()
            counts[one] += (y == one).sum()
"""
BY_INDEX = f"""
sums, counts = torch.zeros(10, 1), torch.zeros(10, 1)
{PASS}        sums.scatter_add_(0, y.long(), out)
        counts.scatter_add_(0, y.long(), torch.ones_like(y))
"""
COUNTED = f"""
sums, counts = torch.zeros(1), torch.zeros(1)
{PASS}        sums += ((out > 0) & (y > 0)).sum()
        counts += (out > 0).sum()
"""
SAMPLES = f"""
sums, counts = torch.zeros(1), torch.zeros(1)
{PASS}        sums += (out.round() == y).sum()
        counts += y.size(0)
"""
AVERAGED = """
means = sums / counts
dist.all_reduce(means)
means /= world
"""
BY_AVG = """
means = sums / counts
dist.all_reduce(means, op=dist.ReduceOp.AVG)
"""
FIRST = """
dist.all_reduce(sums)
dist.all_reduce(counts)
means = sums / counts
"""
SMALLEST = BY_AVG.replace("AVG", "MIN")


@pytest.mark.parametrize("sums", [BY_CLASS, BY_INDEX, COUNTED])
@pytest.mark.parametrize("way", [AVERAGED, BY_AVG])
def test_ratios_of_each_process(sums, way, tmp_path):
    (found,) = named(HEAD + sums + way + SHOWN.format("means"), tmp_path)
    assert found[0] == "ACC713"
    assert found[1].startswith("dist.all_reduce(means")


@pytest.mark.parametrize("sums", [BY_CLASS, BY_INDEX, COUNTED, SAMPLES])
def test_sums_that_are_put_together_first(sums, tmp_path):
    assert not named(HEAD + sums + FIRST + SHOWN.format("means"), tmp_path)


@pytest.mark.parametrize("way", [AVERAGED, BY_AVG])
def test_ratios_by_as_many_samples_on_each_process(way, tmp_path):
    assert not named(HEAD + SAMPLES + way + SHOWN.format("means"), tmp_path)


def test_the_smallest_ratio(tmp_path):
    assert "ACC713" not in dict(named(HEAD + COUNTED + SMALLEST + SHOWN.format("means"), tmp_path))


def test_two_figures_of_which_one_is_a_mean_of_rounds(tmp_path):
    text = f"""
total, right, rounds = 0.0, 0, 0
{PASS}        total += F.mse_loss(out, y).item()
        right += (out.round() == y).sum().item()
        rounds += 1
both = torch.tensor([total / rounds, right])
dist.all_reduce(both)
"""
    assert not named(HEAD + text + SHOWN.format("both[0] / world, both[1] / len(data)"), tmp_path)


@pytest.mark.parametrize(
    "made",
    ['accelerator.reduce(sums / counts, reduction="mean")', "accelerator.gather(sums / counts).mean()"],
)
def test_ratios_beside_an_accelerator(made, tmp_path):
    text = f"""
accelerator = Accelerator(even_batches=False)
model = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
model, opt, loader = accelerator.prepare(model, opt, DataLoader(data, batch_size=4))
for x, y in loader:
    opt.zero_grad()
    accelerator.backward(F.mse_loss(model(x), y))
    opt.step()
{COUNTED}
mean = {made}
accelerator.print(mean.item())
"""
    assert named(text, tmp_path, "accelerate") == [("ACC713", f"mean = {made}")]


OF_ALL = """
total = 0.0
for x, y in loader:
    score = F.mse_loss(model(x), y).detach()
    dist.all_reduce(score)
    total += score{divided}
if dist.get_rank() == 0:
    print(total / len(loader))
"""


@pytest.mark.parametrize(("divided", "count"), [("", 1), (" / dist.get_world_size()", 0)])
def test_a_total_of_all_by_the_batches_of_one(divided, count, tmp_path):
    found = named(GROUP + NET + OF_ALL.format(divided=divided), tmp_path)
    assert found == [("ACC713", "print(total / len(loader))")] * count
