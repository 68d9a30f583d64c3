"""Files that are named by what they hold: in a loop over shared out data, each process writes those of its samples."""

from __future__ import annotations

import ast

from accelify.analysis.files.effects import SideEffects
from accelify.analysis.files.written_paths import paths_given
from accelify.analysis.planning.plan import Plan
from accelify.analysis.statements.enumerated import is_enumerated
from accelify.analysis.syntax import dotted, target_names, walk

_TEXT_METHODS = frozenset(
    "split rsplit replace strip rstrip lstrip lower upper zfill join format decode with_suffix splitext".split()
)
# Ways from a part of the batch to the number or text in it.
_SAME = frozenset("item tolist cpu numpy detach int long".split())
_PATHS = ("os.path.", "pathlib.", "builtins.str", "builtins.int", "builtins.format", "builtins.repr")


def writes_own(plan: Plan, effects: SideEffects, call: ast.Call) -> bool:
    """Whether a call writes a file that a sample of the batch gives its name: no other process writes it.

    What is gathered is there on all processes, and needs one of them to write it.
    """
    script = plan.script
    loops = [loop for loop in script.enclosing_loops(call) if isinstance(loop, (ast.For, ast.AsyncFor))]
    shared = [loop for loop, loaders in script.loader_loops if loop in loops and plan.is_sharded(loaders)]
    gathered = {e.loop for e in plan.evaluations if e.problem is None}
    if not shared or any(loop in gathered for loop in shared):
        return False
    named = _Named(plan, shared[-1])
    paths = paths_given(effects, call)
    if paths is not None:
        return any(named.carries(path) for path in paths)
    arguments = [*call.args, *[kw.value for kw in call.keywords]]
    return any(named.carries(argument) and named.is_text(argument) for argument in arguments)


class _Named:
    """The variables of a loop that hold parts of its batch as they are, and those that hold text made of them."""

    def __init__(self, plan: Plan, loop: ast.For | ast.AsyncFor) -> None:
        self.script = plan.script
        self.parts: set[str] = set()
        self.texts: set[str] = set()
        self._bind(loop.target, loop.iter)
        for node in sorted(walk(loop), key=lambda n: (getattr(n, "lineno", 0), getattr(n, "col_offset", 0))):
            if isinstance(node, (ast.For, ast.comprehension)) and node is not loop:
                if any(self.carries(n) for n in walk(node.iter) if isinstance(n, ast.Name)):
                    self._bind(node.target, node.iter)
            elif isinstance(node, ast.Assign) and self.carries(node.value):
                names = {n for target in node.targets for n in target_names(target)}
                self.parts |= names
                self.texts |= names if self.is_text(node.value) else set()

    def _bind(self, target: ast.expr, iterated: ast.expr) -> None:
        """The names of a loop, without those that count its rounds."""
        if isinstance(iterated, ast.Call) and dotted(iterated.func) == "range":
            return
        if isinstance(target, ast.Tuple) and len(target.elts) == 2 and is_enumerated(self.script, iterated):
            target = target.elts[1]
        self.parts |= set(target_names(target))

    def carries(self, node: ast.expr) -> bool:
        """Whether an expression is made of a part of the batch itself, and not of what a model makes of it."""
        if isinstance(node, ast.Name):
            return node.id in self.parts
        if isinstance(node, ast.Subscript):
            return self.carries(node.value) or self.carries(node.slice)
        if isinstance(node, (ast.Attribute, ast.FormattedValue)):
            return self.carries(node.value)
        if isinstance(node, ast.BinOp):
            return self.carries(node.left) or self.carries(node.right)
        if isinstance(node, (ast.JoinedStr, ast.Tuple, ast.List)):
            return any(
                self.carries(n) for n in (node.values if isinstance(node, ast.JoinedStr) else node.elts)
            )
        if isinstance(node, ast.Call):
            func, given = node.func, [*node.args, *[kw.value for kw in node.keywords]]
            name = self.script.qualname(func) or ""
            if isinstance(func, ast.Attribute) and not name and func.attr in _TEXT_METHODS | _SAME:
                filled = func.attr in ("format", "join") and any(self.carries(a) for a in given)
                return filled or self.carries(func.value)
            if self._is_taken_out(node):
                return True
            return name.startswith(_PATHS) and any(self.carries(a) for a in given)
        return False

    def _is_taken_out(self, call: ast.Call) -> bool:
        """Whether a function of the program is handed the batch, or parts of it, and nothing that runs a model."""
        given = [*call.args, *[kw.value for kw in call.keywords]]
        callees = self.script.callees(call)
        return (
            bool(callees)
            and not any(callee.is_method for callee in callees)
            and any(self.carries(a) for a in given)
            and all(isinstance(a, ast.Constant) or self.carries(a) for a in given)
        )

    def is_text(self, node: ast.expr) -> bool:
        """Whether an expression is a text or a path, as far as can be seen."""
        if isinstance(node, ast.Name):
            return node.id in self.texts
        if isinstance(node, ast.Call):
            name = self.script.qualname(node.func) or ""
            return name.startswith(_PATHS) or (
                isinstance(node.func, ast.Attribute) and not name and node.func.attr in _TEXT_METHODS
            )
        if isinstance(node, ast.BinOp):
            return self.is_text(node.left) or self.is_text(node.right)
        if isinstance(node, ast.Subscript):
            return self.is_text(node.value)
        return isinstance(node, ast.JoinedStr) or (
            isinstance(node, ast.Constant) and isinstance(node.value, str)
        )


__all__ = ["writes_own"]
