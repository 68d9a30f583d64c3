"""A module that another script starts, and that wraps its model: no other word of it says `distributed`."""

from __future__ import annotations

import pytest

from accelify.linting import lint
from accelify.project import Imports
from accelify.source import Source
from tests.proving.several_programs import named

TRAINER = """\
import torch
from torch.nn.parallel import {wrapper}


class Trainer:
    def __init__(self, model, loader, optimizer, gpu):
        self.gpu, self.loader, self.optimizer = gpu, loader, optimizer
        self.model = {wrapper}(model, device_ids=[gpu])

    def train(self):
        for x in self.loader:
            self.optimizer.zero_grad()
            self.model(x).mean().backward()
            self.optimizer.step()
        torch.save(self.model.module.state_dict(), "m.pt")
"""


@pytest.mark.parametrize(("wrapper", "lines"), [("DistributedDataParallel", [15]), ("DataParallel", [])])
def test_module_with_no_other_word_of_it(wrapper, lines, tmp_path):
    path = tmp_path / "trainer.py"
    path.write_text(TRAINER.format(wrapper=wrapper))
    found = lint(Source.read(path), Imports()).findings
    assert [one.line for one in found if one.code == "ACC702"] == lines


STOPPED = """
def train(model, loader, opt, epochs):
    model = DDP(model)
    best = 10.0
    for epoch in range(epochs):
        loader.sampler.set_epoch(epoch)
        total = 0.0
        for batch in loader:
            opt.zero_grad()
            loss = model(**batch).loss
            loss.backward()
            opt.step()
            total += {figure}
        {reduced}
        if dist.get_rank() == 0:
            print(total / len(loader))
        if total > best:
            break
        best = total
"""


NAMED = [("ACC701", "print(total / len(loader))"), ("ACC704", "if total > best:")]


@pytest.mark.parametrize(
    ("figure", "reduced", "is_right"),
    [("loss.item()", "pass", False), ("loss.detach()", "dist.all_reduce(total)", True), ("1", "pass", True)],
)
def test_what_a_model_of_which_nothing_is_known_gives(figure, reduced, is_right, tmp_path):
    """It is of this rank's batch, as the gradients of it are put together."""
    found = named(STOPPED.format(figure=figure, reduced=reduced), tmp_path)
    assert found == ([] if is_right else NAMED)


HANDED = """
class Trainer:
    def __init__(self, model, loader, opt):
        self.model, self.loader, self.opt = model, loader, opt
        self.is_main = {asked}

    def run(self):
        for x in self.loader:
            self.opt.zero_grad()
            self.model(x).mean().backward()
            self.opt.step()
        if {test}:
            torch.save(self.model.module.state_dict(), "m.pt")
"""
SAVED = ("ACC702", 'torch.save(self.model.module.state_dict(), "m.pt")')


@pytest.mark.parametrize(
    ("asked", "test", "lines"),
    [
        ("not dist.is_initialized() or dist.get_rank() == 0", "self.opt", [SAVED]),
        ("not dist.is_initialized() or dist.get_rank() == 0", "self.is_main", []),
        ("True", "self.opt", []),
    ],
)
def test_module_that_asks_for_its_rank(asked, test, lines, tmp_path):
    """One that trains, with a model that another script wraps: where it asks which process it is, there are others."""
    assert named(HANDED.format(asked=asked, test=test), tmp_path) == lines


SPLIT = """
accelerator = Accelerator()
model = {model}
opt = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(data, batch_size=4, shuffle=True)
model, opt, loader = accelerator.prepare(model, opt, loader)
for x, y in loader:
    opt.zero_grad()
    accelerator.backward(F.mse_loss(model(x), y))
    opt.step()
if accelerator.is_main_process:
    torch.save(model.module.state_dict(), "weights.pt")
"""


@pytest.mark.parametrize(
    ("model", "code"),
    [
        ("torch.nn.DataParallel(torch.nn.Linear(4, 1))", "ACC712"),
        ("torch.nn.Linear(4, 1)", "ACC715"),
    ],
)
def test_a_model_that_has_a_module_on_one_process_too(model, code, tmp_path):
    assert [one for one, _ in named(SPLIT.format(model=model), tmp_path, "accelerate")] == [code]
