"""A module that another script starts, and that wraps its model: no other word of it says `distributed`."""

from __future__ import annotations

import pytest

from accelify.linting import lint
from accelify.project import Imports
from accelify.source import Source

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
