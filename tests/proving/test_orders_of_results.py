"""Results of `prepare` that are taken in another order than its arguments: what to write, and what else is wrong."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import findings, named

TAKEN = """
accelerator = Accelerator()
rows = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
loader = DataLoader(rows, batch_size=4, shuffle=True)
model = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
sched = torch.optim.lr_scheduler.StepLR(opt, 10)
{taken}
for x, y in loader:
    loss = F.mse_loss(model(x), y)
    accelerator.backward(loss)
    opt.step()
    sched.step()
    opt.zero_grad()
"""
WRONG = [
    "model, loader, opt = accelerator.prepare(model, opt, loader)",
    "opt, loader, model = accelerator.prepare(model, opt, loader)",
    "done = accelerator.prepare(model, opt, loader)\nmodel, loader, opt = done",
    "done = accelerator.prepare(model, opt, loader)\nmodel = done[0]\nloader = done[1]\nopt = done[2]",
]


@pytest.mark.parametrize("taken", WRONG)
def test_the_names_are_to_be_written_in_the_order_of_the_arguments(taken, tmp_path):
    found = findings(TAKEN.format(taken=taken), tmp_path, "accelerate")
    (message,) = [one.message for one in found if one.code == "ACC711"]
    assert message.endswith("; write the names in the order of the arguments: `model, opt, loader`")


@pytest.mark.parametrize("taken", WRONG)
def test_what_else_is_wrong_is_named_beside_it(taken, tmp_path):
    found = named(TAKEN.format(taken=taken), tmp_path, "accelerate")
    assert [code for code, _ in found] == ["ACC705", "ACC711", "ACC706"]


def test_a_new_name_stands_for_what_is_left(tmp_path):
    taken = "ddp, loader, opt = accelerator.prepare(model, opt, loader)"
    found = findings(TAKEN.format(taken=taken).replace("(model(x)", "(ddp(x)"), tmp_path, "accelerate")
    (message,) = [one.message for one in found if one.code == "ACC711"]
    assert message.endswith("`ddp, opt, loader`")
    assert not any("loader`, which is not prepared" in one.message for one in found)


def test_a_name_that_is_written_twice_is_put_in_no_order(tmp_path):
    taken = "model, _, _, loader, opt = accelerator.prepare(model, opt, sched, loader, loader)"
    found = findings(TAKEN.format(taken=taken), tmp_path, "accelerate")
    (message,) = [one.message for one in found if one.code == "ACC711"]
    assert message.endswith("write the names in the order of the arguments")


def test_the_right_order_says_nothing_of_it(tmp_path):
    taken = "model, opt, loader, sched = accelerator.prepare(model, opt, loader, sched)"
    found = named(TAKEN.format(taken=taken), tmp_path, "accelerate")
    assert [code for code, _ in found] == ["ACC705"]


VALIDATED = """
accelerator = Accelerator()
{seed}
rows = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
loader, val = DataLoader(rows, batch_size=4, shuffle=True), DataLoader(rows, batch_size=4)
model = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
model, opt, loader = accelerator.prepare(model, opt, loader)


def evaluate(model, loader):
    right = 0
    with torch.no_grad():
        for x, y in loader:
            {moved}
            right += (model(x) == y).sum().item()
    return right


for x, y in loader:
    accelerator.backward(F.mse_loss(model(x), y))
    opt.step()
    opt.zero_grad()
accelerator.print(evaluate(model, val))
"""
CALL = "right += (model(x) == y).sum().item()"


@pytest.mark.parametrize("seed", ["", "torch.manual_seed(0)"])
def test_a_batch_of_an_unprepared_loader_is_on_the_host_whatever_its_rows_are(seed, tmp_path):
    found = named(VALIDATED.format(seed=seed, moved="pass"), tmp_path, "accelerate")
    assert ("ACC710", CALL) in found


@pytest.mark.parametrize("seed", ["", "torch.manual_seed(0)"])
def test_one_that_is_moved_is_not(seed, tmp_path):
    moved = "x, y = x.to(accelerator.device), y.to(accelerator.device)"
    found = named(VALIDATED.format(seed=seed, moved=moved), tmp_path, "accelerate")
    assert "ACC710" not in [code for code, _ in found]
