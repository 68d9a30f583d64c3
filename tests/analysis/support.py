"""Small scripts and the questions that the tests ask about them."""

from __future__ import annotations

import textwrap

from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import Tree
from accelify.analysis.values import Entity

HEAD = """\
import argparse
import copy
import itertools
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader
parser = argparse.ArgumentParser()
args = parser.parse_args()
"""
MODEL = "model = nn.Linear(2, 2)\n"
OPTIMIZER = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
LOADER = "loader = DataLoader(data)\n"
LOOP = "for x, y in loader:\n    F.mse_loss(model(x), y).backward()\n    optimizer.step()\n"


def model_of(body: str, head: str = HEAD) -> ScriptModel:
    """The model of a script: the usual imports and a body."""
    return ScriptModel(Tree(head + textwrap.dedent(body)))


def lines_of(script: ScriptModel, things: set[Entity]) -> list[str]:
    """The places where things are made, as source."""
    return sorted(script.tree.segment(t.site) for t in things if t.site is not None)
