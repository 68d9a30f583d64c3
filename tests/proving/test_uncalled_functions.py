"""Functions of a module that nothing calls there: each may be called alone, by another script."""

from __future__ import annotations

from tests.proving.several_programs import named

FACTORY = """
def create(steps):
    return Accelerator(gradient_accumulation_steps=steps)
"""
PLAIN = """
def train(model, loader):
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        opt.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        opt.step()
"""
PREPARED = """
def main(model, loader):
    accelerator = create(2)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    model, loader, opt = accelerator.prepare(model, loader, opt)
    for x, y in loader:
        opt.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        opt.step()
"""


def test_an_accelerator_of_another_function_is_none_of_this_one(tmp_path):
    assert named(FACTORY + PLAIN, tmp_path, "accelerate") == []


def test_one_that_the_function_makes_is_its_own(tmp_path):
    found = named(FACTORY + PREPARED, tmp_path, "accelerate")
    assert ("ACC712", "loss.backward()") in found
    assert [code for code, _ in found].count("ACC705") == 1


def test_what_a_script_never_calls_that_runs_is_not_named(tmp_path):
    text = """
state = PartialState()
def show():
    print(1)
def show_once():
    print(2)
if state.is_main_process:
    show_once()
    print(3)
"""
    text = text.replace("\nstate", "\nfrom accelerate import PartialState\nstate", 1)
    assert named(text, tmp_path, "accelerate") == []


def test_what_a_module_never_calls_others_may(tmp_path):
    text = "\nfrom accelerate import PartialState\nstate = PartialState()\ndef show():\n    print(1)\n"
    assert named(text, tmp_path, "accelerate") == [("ACC702", "print(1)")]


WRITER = """
class Part(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(4, 1)

    def forward(self, x):
        return self.body(x)

    def describe(self, step):
        print(step, self.body)


def shown(step):
    print(step)


class Worker:
    def __init__(self, rank):
        self.rank = rank
        self.model = DDP(Part())

    def update(self, step):
        if CONDITION:
            self.model.module.describe(step)
            shown(step)
"""


def test_what_another_one_calls_on_the_main_process(tmp_path):
    """A function above the one that calls it under a condition is not done by all."""
    assert named(WRITER.replace("CONDITION", "self.rank == 0"), tmp_path) == []
    found = named(WRITER.replace("CONDITION", "step > 0"), tmp_path)
    assert found == [("ACC702", "print(step, self.body)"), ("ACC702", "print(step)")]
