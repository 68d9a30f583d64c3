"""Flags of other modules that only ask the machine: `USE_CUDA = torch.cuda.is_available()` in `util.py`."""

from __future__ import annotations

import ast

from accelify.analysis.devices.module_devices import constant_of
from accelify.analysis.program import Module
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import dotted


class MachineFlags:
    """The flags that the modules of a program bind so.

    Args:
        script: the script that may read them.
    """

    def __init__(self, script: ScriptModel) -> None:
        self.script = script
        self._known: dict[tuple[Module, str], object] = {}
        for module in script.program.modules.values():
            if module.tree.mentions(b"is_available"):
                self._known |= {(module, name): True for name in _flags(module)}

    def holds(self, node: ast.Name | ast.Attribute) -> bool:
        """Whether a node reads one of them, by whatever way it was imported."""
        return bool(self._known and constant_of(self.script, node, self._known))


def _flags(module: Module) -> set[str]:
    """What a module binds once, outside of its functions, and to nothing but the answer of the machine."""
    bound: dict[str, list[ast.expr]] = {}
    for node in module.scopes.module.nodes:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            bound.setdefault(dotted(node.targets[0]) or "", []).append(node.value)
    return {name for name, values in bound.items() if len(values) == 1 and _asks_machine(values[0])}


def _asks_machine(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and (dotted(value.func) or "").endswith("cuda.is_available")
