"""Functions of a class that are written without `self` and called by its name: static methods, but for the mark.

class Trainer:
    def validate(model, loader): ...        # Trainer.validate(model, loader)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from accelify.analysis.scopes import Scope

# The names by which a method gets its object, or its class.
_RECEIVERS = frozenset("self _self self_ slf this me s _ cls klass mcs mcls metacls ctx".split())


def is_without_object(function: Scope) -> bool:
    """Whether a function of a class is only called by the class's name, so that its first parameter is no object.

    Args:
        function: defined directly in a class.
    """
    node, cls = function.node, function.parent
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or cls is None or not _may_be(function):
        return False
    name = getattr(cls.node, "name", "")
    calls = [
        call.func for scope in _every(cls) for call in scope.calls if not _is_of_module(scope, call.func)
    ]
    made = any(isinstance(func, ast.Name) and func.id == name for func in calls)
    called = [func for func in calls if isinstance(func, ast.Attribute)]
    named = {id(func) for func in called if isinstance(func.value, ast.Name) and func.value.id == name}
    own = [func for func in called if func.attr == node.name]
    if any(id(func) in named for func in own):
        return not made or all(id(func) in named for func in own)
    return (not own and not _parts_of_first(function)) or (not made and _is_namespace(cls))


def _is_of_module(scope: Scope, func: ast.expr) -> bool:
    """Whether a function is called by its module: `torch.load`."""
    is_dotted = isinstance(func, ast.Attribute)
    while isinstance(func, ast.Attribute):
        func = func.value
    return is_dotted and isinstance(func, ast.Name) and scope.imports(func.id)


def _may_be(function: Scope) -> bool:
    """Whether a function is one without a mark, whose first parameter is neither called as an object nor filled."""
    node, names = function.node, function.positional()
    if not names or names[0] in _RECEIVERS or getattr(node, "decorator_list", []):
        return False
    own = function.name.rpartition(".")[2]
    # Methods give their object attributes.
    filled = any(isinstance(node.ctx, ast.Store) for node in _parts_of_first(function))
    return not (own.startswith("__") and own.endswith("__")) and not filled


def _parts_of_first(function: Scope) -> list[ast.Attribute]:
    """The attributes of a function's first parameter, where it reads or writes them."""
    first = function.positional()[0]
    return [
        node
        for node in function.of_type(ast.Attribute)
        if isinstance(node.value, ast.Name) and node.value.id == first
    ]


def _is_namespace(cls: Scope) -> bool:
    """Whether a class only groups functions: it derives from nothing, and none of them takes an object."""
    functions = [s for s in cls.children.values() if s.kind == "function"]
    first = {s.positional()[0] if s.positional() else "" for s in functions}
    return (
        isinstance(cls.node, ast.ClassDef)
        and not cls.node.keywords
        and all(isinstance(base, ast.Name) and base.id == "object" for base in cls.node.bases)
        and (len(first) > 1 or "accelerator" in first)  # a converted class may pass it to all of them
        and all(not s.positional() or _may_be(s) for s in functions)
    )


def _every(scope: Scope) -> Iterator[Scope]:
    """All scopes of the module that contains one."""
    while scope.parent is not None:
        scope = scope.parent
    stack = [scope]
    while stack:
        scope = stack.pop()
        yield scope
        stack.extend(scope.children.values())
