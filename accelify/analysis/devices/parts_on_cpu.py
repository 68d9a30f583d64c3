"""Parts of a model that are made on the CPU, unlike the others, by a device argument.

loss_device = torch.device("cpu")
model = Encoder(device, loss_device)    # self.scale = nn.Parameter(torch.ones(1)).to(loss_device)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from accelify.analysis.devices.device_flags import Devices
from accelify.analysis.program import Module
from accelify.analysis.scopes import handed_to, in_order
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import dotted


class PartOnCpu(NamedTuple):
    """A name for the CPU that a model is made with.

    Args:
        device: the name, where it is set to the CPU.
        model: what is called to make the model.
        moved: what is moved there when it is a parameter already, with its module.
    """

    device: ast.expr
    model: str
    moved: tuple[tuple[Module, ast.Call], ...]


def parts_on_cpu(script: ScriptModel, devices: Devices) -> Iterator[PartOnCpu]:
    """The names for the CPU that are next to a choice and go into a model."""
    for assignment, calls in devices.parts:
        moved = dict.fromkeys(pair for call in calls for pair in _moved(script, call, assignment.target))
        yield PartOnCpu(assignment.target, dotted(calls[0].func) or "the model", tuple(moved))


def _moved(script: ScriptModel, call: ast.Call, device: ast.expr) -> Iterator[tuple[Module, ast.Call]]:
    """`nn.Parameter(...).to(device)`: on another device it gives a copy, which is no parameter."""
    for callee in in_order(script.callees(call)):
        names = {name for given, name in handed_to(call, callee) if dotted(given) == dotted(device)}
        for node in callee.nodes:
            if not isinstance(node, ast.Call) or len(node.args) != 1 or node.keywords:
                continue
            made = (
                node.func.value if isinstance(node.func, ast.Attribute) and node.func.attr == "to" else None
            )
            if not isinstance(made, ast.Call) or (dotted(made.func) or "").rpartition(".")[2] != "Parameter":
                continue
            if isinstance(node.args[0], ast.Name) and node.args[0].id in names:
                yield script.interpreter.module_of(callee), node
