"""`torch.cuda.set_device(0)` in functions of modules that stay as they are: the same GPU on every process again."""

from __future__ import annotations

import ast
from collections.abc import Callable

from accelify.analysis.program import Module
from accelify.analysis.scopes import Scope, in_order
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import call_argument, walk

_SELECTING = "torch.cuda.set_device"
_Place = tuple[str, int]


class ReachedElsewhere:
    """The calls of a script that reach some kind of call in modules that stay as they are, through functions there.

    Args:
        script: its model, with the modules that are converted.
        word: what stands in the text of a module with such a call.
        is_one: whether a call of a scope in a module is of that kind.
    """

    def __init__(
        self, script: ScriptModel, word: bytes, is_one: Callable[[Module, Scope, ast.Call], bool]
    ) -> None:
        self._script = script
        self._is_one = is_one
        self._known: dict[Scope, _Place | None] = {}
        others = [m for m in script.program.modules.values() if m not in script.modules]
        self.any = any(module.tree.mentions(word) for module in others)

    def by(self, call: ast.Call) -> tuple[Scope, _Place] | None:
        """The function of another module that a call runs, and the file and line of the call that it reaches."""
        for callee in in_order(self._script.callees(call)) if self.any else ():
            if self._script.interpreter.module_of(callee) not in self._script.modules:
                place = self._place(callee)
                if place is not None:
                    return callee, place
        return None

    def _place(self, scope: Scope) -> _Place | None:
        if scope in self._known:
            return self._known[scope]
        self._known[scope] = None  # a recursive function is looked at once
        module = self._script.interpreter.module_of(scope)
        calls = scope.calls
        found: _Place | None = None
        for call in calls:
            if self._is_one(module, scope, call):
                path, line, _ = module.tree.place(call)
                found = (path, line)
                break
        for call in calls if found is None else ():
            callees = in_order(self._script.callees(call))
            # What is converted does it no more.
            inner = [c for c in callees if self._script.interpreter.module_of(c) not in self._script.modules]
            found = next((place for c in inner if (place := self._place(c)) is not None), None)
            if found is not None:
                break
        self._known[scope] = found
        return found


def selected_elsewhere(
    script: ScriptModel, qualname: Callable[[Module, Scope, ast.expr], str | None]
) -> ReachedElsewhere:
    """The calls of a script that reach a function which selects the same GPU on every process.

    Args:
        script: its model.
        qualname: the name of a library's function, as a module and a scope of the program have it.
    """

    def selects(module: Module, scope: Scope, call: ast.Call) -> bool:
        named = getattr(call.func, "attr", getattr(call.func, "id", "")) == "set_device"
        return named and qualname(module, scope, call.func) == _SELECTING and _is_same_for_all(call, scope)

    return ReachedElsewhere(script, b"set_device", selects)


def _is_same_for_all(call: ast.Call, scope: Scope) -> bool:
    """Whether a GPU is one that the function names or reads from options: none by rank, none from its arguments."""
    device = call_argument(call, 0, "device")
    if device is None or (isinstance(device, ast.Name) and device.id in {a.arg for a in scope.parameters()}):
        return False
    words = [getattr(n, "attr", getattr(n, "id", "")) for n in walk(device)]
    return not any("rank" in word.lower() or word in ("environ", "getenv") for word in words)


__all__ = ["ReachedElsewhere", "selected_elsewhere"]
