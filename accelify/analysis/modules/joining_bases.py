"""Base classes of other modules that choose a device for what trains, move it there, or save it: they come along.

class Basic:                                                      (another module)
    def __init__(self, args):
        self.device = self.pick_device()                          chosen in a method
        self.model = self.build_model().to(self.device)           moved there
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING

from accelify.analysis import knowledge as k
from accelify.analysis.devices.class_devices import names_a_gpu, own_devices
from accelify.analysis.program import Module
from accelify.analysis.syntax import call_argument, dotted
from accelify.analysis.values import Class

if TYPE_CHECKING:
    from accelify.analysis.script import ScriptModel

_WRITING = ("torch.save", "torch.load", "SummaryWriter")


def placing_bases(script: ScriptModel) -> list[Module]:
    """Modules with base classes of what trains here, whose methods move what is trained or choose a device for it.

    What a constructor assigns a device that it names itself is left out: the subclass overwrites it after that.
    """
    return _bases(script, _places)


def writing_bases(script: ScriptModel) -> list[Module]:
    """Modules with base classes of what trains here, whose methods save, load or log it."""
    return _bases(script, _writes)


def _bases(script: ScriptModel, wanted: Callable[[Class], bool]) -> list[Module]:
    found: set[Module] = set()
    training = {scope.owner_class for scope in script.training_scopes}
    for cls in script.interpreter.classes():
        if cls.scope.node not in training or cls.module not in script.modules:
            continue
        found |= {
            base.module
            for base in cls.ancestry()
            if base.module not in script.modules and base.module.path is not None and wanted(base)
        }
    # In the order in which they are imported: places in them are compared by it.
    return [module for module in dict.fromkeys(script.program.modules.values()) if module in found]


def _places(cls: Class) -> bool:
    """Whether a method of a class moves something, or chooses a device other than by assigning it to `self`."""
    if not cls.module.tree.mentions("cuda") and not cls.module.tree.mentions(".to("):
        return False
    named = {value for _, value in own_devices(cls.scope.node)}
    for method in cls.scope.children.values():
        for node in method.nodes if method.kind == "function" else ():
            if isinstance(node, ast.Assign) and node.value not in named and names_a_gpu(node.value):
                return True
            if isinstance(node, ast.Return) and node.value is not None and names_a_gpu(node.value):
                return True
            if isinstance(node, ast.Call) and _moves(node):
                return True
    return False


def _writes(cls: Class) -> bool:
    """Whether a method of a class saves or loads by torch, or makes a writer."""
    return any(
        isinstance(node, ast.Call) and (dotted(node.func) or "").endswith(_WRITING)
        for method in cls.scope.children.values()
        for node in method.nodes
    )


def _moves(call: ast.Call) -> bool:
    """Whether a call moves to a GPU: `x.cuda()`, `x.to(self.device)`."""
    if not isinstance(call.func, ast.Attribute):
        return False
    given = call_argument(call, 0, "device") if call.func.attr == "to" else None
    if given is None:
        return call.func.attr == "cuda"
    return names_a_gpu(given) or bool(k.DEVICE_NAME.search((dotted(given) or "").rpartition(".")[2]))
