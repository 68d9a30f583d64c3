"""Files that are named by what they hold: in a loop over sharded data, each process writes those of its samples."""

from __future__ import annotations

import ast

from accelify.analysis.files.effects import SideEffects
from accelify.analysis.files.written_paths import paths_given
from accelify.analysis.planning.plan import Plan
from accelify.analysis.scopes import handed_to
from accelify.analysis.script import ScriptModel
from accelify.analysis.statements.enumerated import is_enumerated
from accelify.analysis.syntax import dotted, target_names, walk

_TEXT_METHODS = frozenset(
    "split rsplit replace strip rstrip lstrip lower upper zfill join format decode with_suffix splitext".split()
)
# Ways from a part of the batch to the number or text in it.
_SAME = frozenset("item tolist cpu numpy detach int long".split())
# How many calls are followed from what writes to the loop over the data.
_FARTHEST = 2
_PATHS = ("os.path.", "pathlib.", "builtins.str", "builtins.int", "builtins.format", "builtins.repr")


def writes_own(plan: Plan, effects: SideEffects, call: ast.Call) -> bool:
    """Whether a call writes a file that a sample of the batch gives its name: no other process writes it.

    What is gathered is there on all processes, and needs one of them to write it.
    """
    named = _named_at(plan, call)
    if named is None:
        return False
    paths = paths_given(effects, call)
    if paths is not None:
        return any(named.carries(path) for path in paths)
    arguments = [*call.args, *[kw.value for kw in call.keywords]]
    return any(named.carries(argument) and named.is_text(argument) for argument in arguments)


def _named_at(plan: Plan, call: ast.Call, far: int = 0) -> _Named | None:
    """What is named after samples at a call, in a loop over sharded data or a function that such loops call."""
    script = plan.script
    loops = [loop for loop in script.enclosing_loops(call) if isinstance(loop, (ast.For, ast.AsyncFor))]
    shared = [loop for loop, loaders in script.loader_loops if loop in loops and plan.is_sharded(loaders)]
    if shared:
        gathered = {e.loop for e in plan.evaluations if e.problem is None}
        return None if any(loop in gathered for loop in shared) else _Named(script, shared[-1], set())
    scope = script.scope_of(call)
    callers = script.callers(scope) if scope.kind == "function" and far < _FARTHEST else []
    if not callers or script.called_from_elsewhere(scope):
        return None
    given: list[set[str]] = []
    for caller in callers:
        around = _named_at(plan, caller, far + 1)
        if around is None:
            return None
        given.append({name for argument, name in handed_to(caller, scope) if around.carries(argument)})
    parts = set.intersection(*given)
    return _Named(script, scope.node, parts) if parts else None


class _Named:
    """The variables of a loop, or of a function, that hold parts of its batch as they are, and those that hold text
    made of them.

    Args:
        script: its model.
        block: the loop over the batches, or the function.
        parts: the parameters of the function that get parts of the batch.
    """

    def __init__(self, script: ScriptModel, block: ast.AST, parts: set[str]) -> None:
        self.script = script
        self.parts = parts
        self.texts: set[str] = set()
        if isinstance(block, (ast.For, ast.AsyncFor)):
            self._bind(block.target, block.iter)
        for node in sorted(walk(block), key=lambda n: (getattr(n, "lineno", 0), getattr(n, "col_offset", 0))):
            if isinstance(node, (ast.For, ast.comprehension)) and node is not block:
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
        if isinstance(node, (ast.ListComp, ast.GeneratorExp)):  # `[os.path.basename(p) for p in paths]`
            for part in node.generators:
                if any(self.carries(n) for n in walk(part.iter) if isinstance(n, ast.Name)):
                    self._bind(part.target, part.iter)
            return self.carries(node.elt)
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
        """Whether a function of the program gets the batch, or parts of it, and nothing that runs a model."""
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
