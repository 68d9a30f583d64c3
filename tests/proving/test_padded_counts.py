"""Sums over the samples of an evaluation, of which samplers and prepared loaders repeat some to fill up the shares."""

from __future__ import annotations

import pytest

from accelify.rule_codes import published
from tests.proving.several_programs import GROUP, LOOP, NET, findings, named

HEAD = (
    GROUP
    + NET
    + LOOP
    + """
test = TensorDataset(torch.ones({rows}, 4), torch.ones({rows}, 1))
test_loader = DataLoader(test, batch_size=4, sampler=DistributedSampler(test, shuffle=False{more}))
"""
)
SUMS = {
    "two sums": """
right, seen = torch.zeros(1), torch.zeros(1)
with torch.no_grad():
    for x, y in test_loader:
        right += (model(x).round() == y).sum()
        seen += y.size(0)
dist.all_reduce(right)  # here
dist.all_reduce(seen)
print(dist.get_rank(), right.item() / seen.item())
""",
    "one tensor": """
counts = torch.zeros(2)
with torch.no_grad():
    for x, y in test_loader:
        counts[0] += (model(x).round() == y).sum()
        counts[1] += y.size(0)
dist.all_reduce(counts, op=dist.ReduceOp.SUM)  # here
if dist.get_rank() == 0:
    print((counts[0] / counts[1]).item())
""",
    "by the length of the data": """
right = torch.zeros(1)
with torch.no_grad():
    for x, y in test_loader:
        right += (model(x).round() == y).sum()
dist.all_reduce(right)  # here
if dist.get_rank() == 0:
    print(right.item() / len(test))
""",
    "in a function": """
def evaluate(model, loader):
    right, seen = 0, 0
    with torch.no_grad():
        for x, y in loader:
            right += (model(x).round() == y).sum().item()
            seen += y.size(0)
    both = torch.tensor([right, seen])
    dist.all_reduce(both)  # here
    return both[0].item() / both[1].item()


accuracy = evaluate(model, test_loader)
if dist.get_rank() == 0:
    print(accuracy)
""",
}


def lines(text, tmp_path, rows=61, more="", head="torch"):
    return named(text.replace("{rows}", str(rows)).replace("{more}", more), tmp_path, head)


@pytest.mark.parametrize("rest", SUMS.values(), ids=SUMS)
def test_sums_over_filled_up_shares(rest, tmp_path):
    ((code, line),) = lines(HEAD + rest, tmp_path)
    assert code == "ACC713"
    assert line.endswith("# here")


@pytest.mark.parametrize("rest", SUMS.values(), ids=SUMS)
@pytest.mark.parametrize(("rows", "more"), [(61, ", drop_last=True"), (64, "")])
def test_sums_over_shares_of_equal_size(rest, rows, more, tmp_path):
    assert not lines(HEAD + rest, tmp_path, rows, more)


def test_sums_where_the_script_asks_for_the_rest(tmp_path):
    asked = "\nassert len(test) % dist.get_world_size() == 0\n"
    assert not lines(HEAD + asked + SUMS["two sums"], tmp_path)


def test_sums_over_the_samples_by_their_numbers(tmp_path):
    own = """
part = torch.utils.data.Subset(test, range(dist.get_rank(), len(test), dist.get_world_size()))
test_loader = DataLoader(part, batch_size=4)
"""
    assert not lines(HEAD + own + SUMS["two sums"].replace("model(x)", "model.module(x)"), tmp_path)


def test_sums_of_training(tmp_path):
    text = """
seen = torch.zeros(1)
for x, y in test_loader:
    opt.zero_grad()
    F.mse_loss(model(x), y).backward()
    opt.step()
    seen += y.size(0)
dist.all_reduce(seen)
if dist.get_rank() == 0:
    print(seen.item())
"""
    assert not lines(HEAD + text, tmp_path)


ACCELERATED = """
accelerator = Accelerator()
test = TensorDataset(torch.ones(61, 4), torch.ones(61, 1))
model = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
loader, test_loader = DataLoader(data, batch_size=4), DataLoader(test, batch_size=4)
model, opt, loader, test_loader = accelerator.prepare(model, opt, loader, test_loader)
for x, y in loader:
    opt.zero_grad()
    accelerator.backward(F.mse_loss(model(x), y))
    opt.step()
right, seen = torch.zeros(1, device=accelerator.device), torch.zeros(1, device=accelerator.device)
with torch.no_grad():
    for x, y in test_loader:
        out = model(x)
{rows}        right += (out.round() == y).sum()
        seen += y.shape[0]
{sums}
accelerator.print(right.item() / seen.item())
"""
REDUCED = "right = accelerator.reduce(right)  # here\nseen = accelerator.reduce(seen)\n"
GATHERED = "right = accelerator.gather(right).sum()  # here\nseen = accelerator.gather(seen).sum()\n"


@pytest.mark.parametrize("sums", [REDUCED, GATHERED])
def test_sums_over_prepared_loaders(sums, tmp_path):
    ((code, line),) = lines(ACCELERATED.format(rows="", sums=sums), tmp_path, head="accelerate")
    assert code == "ACC713"
    assert line.endswith("# here")


def test_sums_over_what_is_gathered_for_metrics(tmp_path):
    rows = "        out, y = accelerator.gather_for_metrics((out, y))\n"
    assert not lines(ACCELERATED.format(rows=rows, sums=""), tmp_path, head="accelerate")


@pytest.mark.parametrize("sums", [REDUCED, GATHERED])
def test_sums_over_batches_that_are_not_filled_up(sums, tmp_path):
    text = ACCELERATED.format(rows="", sums=sums).replace("Accelerator()", "Accelerator(even_batches=False)")
    assert not lines(text, tmp_path, head="accelerate")


UNPREPARED = """
accelerator = Accelerator()
rows = {rows}
loader, test = DataLoader(data, batch_size=4, shuffle=True), DataLoader(rows, batch_size=4)
model = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
model, opt, loader{prepared} = accelerator.prepare(model, opt, loader{prepared})
for x, y in loader:
    opt.zero_grad()
    accelerator.backward(F.mse_loss(model(x), y))
    opt.step()
right = 0
with torch.no_grad():
    for x, y in test:
        right += (accelerator.gather(model(x)) > 0).sum().item()
accelerator.print(right)
"""


@pytest.mark.parametrize(
    ("rows", "prepared", "way"),
    [
        (
            "TensorDataset(torch.randn(62, 4), torch.ones(62, 1))",
            "",
            "prepare it: `accelerator.prepare(...)`",
        ),
        ("torch.load('rows.pt', map_location='cpu')", ", test", "use accelerator.gather_for_metrics"),
    ],
)
def test_a_gather_says_what_it_puts_together(rows: str, prepared: str, way: str, tmp_path) -> None:
    found = findings(UNPREPARED.format(rows=rows, prepared=prepared), tmp_path, "accelerate")
    (message,) = [published(one).message for one in found if one.code == "ACC713"]
    assert message.endswith(way)
