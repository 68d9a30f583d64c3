"""Whether an error ends the run, or a handler around it catches it and continues."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator

from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import dotted
from accelify.analysis.values import Class

_EXITS = frozenset({"sys.exit", "builtins.exit", "builtins.quit", "os._exit", "os.abort"})
_ANY = frozenset({"Exception", "BaseException"})
# What is raised from outside, or to leave, and so caught for itself alone.
_APART = frozenset({"KeyboardInterrupt", "SystemExit", "GeneratorExit", "StopIteration"})


def is_caught(script: ScriptModel, stop: ast.Raise) -> bool:
    """Whether a `raise` is caught around it, or around a call of its function, by a handler that continues after it.

    One for another error does not count, nor one whose last line raises again or ends the run.
    """
    raised = stop.exc.func if isinstance(stop.exc, ast.Call) else stop.exc
    names = _names(script, raised) if raised is not None else set()
    return _is_caught_at(script, stop, names, set())


def _is_caught_at(script: ScriptModel, place: ast.AST, names: set[str], seen: set[Scope]) -> bool:
    child = place
    for ancestor in script.tree.ancestors(place):
        if isinstance(ancestor, (ast.Try, ast.TryStar)) and any(child is s for s in ancestor.body):
            if any(_catches(script, h.type, names) and not _ends_run(script, h) for h in ancestor.handlers):
                return True
        elif isinstance(ancestor, (ast.With, ast.AsyncWith)):
            for kind in _suppressed(script, ancestor):
                if _catches(script, kind, names):
                    return True
        elif isinstance(ancestor, ast.Lambda):
            return False
        elif isinstance(ancestor, (ast.FunctionDef, ast.AsyncFunctionDef)):
            scope = script.scope_for(ancestor)
            if scope in seen:
                return False
            seen.add(scope)
            return any(_is_caught_at(script, call, names, seen) for call in script.callers(scope))
        child = ancestor
    return False


def _suppressed(script: ScriptModel, block: ast.With | ast.AsyncWith) -> Iterator[ast.expr]:
    """What `with contextlib.suppress(...)` lets pass."""
    for item in block.items:
        call = item.context_expr
        if isinstance(call, ast.Call) and script.qualname(call.func) == "contextlib.suppress":
            yield from call.args


def _catches(script: ScriptModel, kind: ast.expr | None, raised: set[str]) -> bool:
    """Whether a handler of a kind can catch an error of some names, its own and its bases'; none is any error."""
    if kind is None:
        return True
    kinds = kind.elts if isinstance(kind, (ast.Tuple, ast.List)) else [kind]
    for one in kinds:
        name = (dotted(one) or "").rpartition(".")[2]
        if isinstance(one, ast.Name) and script.tree.assigns(name):
            return True  # several in a name, which are not looked at
        name = getattr(getattr(builtins, name, None), "__name__", name) if name else ""  # IOError is OSError
        if name in raised or (name in _ANY and not raised & (_APART - {"StopIteration"})):
            return True
        # Of a library's error it is not known what it is derived from.
        known = "BaseException" in raised or not raised.isdisjoint(_ANY)
        if not known and name not in _APART:
            return True
    return False


def _ends_run(script: ScriptModel, handler: ast.ExceptHandler) -> bool:
    last = handler.body[-1]
    call = last.value if isinstance(last, ast.Expr) else None
    return isinstance(last, ast.Raise) or (
        isinstance(call, ast.Call) and script.qualname(call.func) in _EXITS
    )


def _names(script: ScriptModel, raised: ast.expr) -> set[str]:
    """The names of an error's class and of all that it is derived from, as far as they are known."""
    name = (dotted(raised) or "").rpartition(".")[2]
    found = {name} if name else set()
    for contained in script.values(raised):
        if isinstance(contained, Class):
            for cls in contained.ancestry():
                assert isinstance(cls.scope.node, ast.ClassDef)
                bases = {(dotted(base) or "").rpartition(".")[2] for base in cls.scope.node.bases}
                found |= {cls.name} | {own for base in bases for own in _builtin(base) or {base}}
    return found | _builtin(name)


def _builtin(name: str) -> set[str]:
    """The names of one of Python's built-in errors and of those that it is derived from."""
    known = getattr(builtins, name, None) if name else None
    if not (isinstance(known, type) and issubclass(known, BaseException)):
        return set()
    return {cls.__name__ for cls in known.__mro__ if cls is not object}
