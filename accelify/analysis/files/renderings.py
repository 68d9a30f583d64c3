"""What libraries write, show or fetch by functions whose names do not say so: pictures of graphviz, windows of
simulators, repositories of torch.hub."""

from __future__ import annotations

import ast

from accelify.analysis.syntax import call_argument, is_constant
from accelify.analysis.values import Entity, Values

# Methods of a graph that write its source and its picture; a simulator opens a window by its `render`.
RENDERING = frozenset("render view save".split())
_GRAPHS = ("graphviz.", "torchviz.", "pydot.", "pygraphviz.")
_SIMULATORS = ("gym.make", "gymnasium.make")


def renders(contained: Values) -> bool:
    """Whether what has a method of `RENDERING` is a graph, whose picture that writes.

    Args:
        contained: what the object can evaluate to.
    """
    return _is_of(contained, _GRAPHS)


def opens_window(call: ast.Call, parent: ast.AST | None, contained: Values) -> bool:
    """Whether a call shows an environment in a window: `env.render()`, where the picture is not used.

    Args:
        call: the call of a method.
        parent: the node around the call.
        contained: what the object can evaluate to.
    """
    named = isinstance(call.func, ast.Attribute) and call.func.attr == "render"
    return named and isinstance(parent, ast.Expr) and _is_of(contained, _SIMULATORS)


def _is_of(contained: Values, names: tuple[str, ...]) -> bool:
    return any(isinstance(one, Entity) and (one.qualname or "").startswith(names) for one in contained)


def fetches_repository(call: ast.Call, name: str | None) -> bool:
    """Whether a call has torch.hub unpack a repository into its cache, which two processes cannot do at once."""
    if name != "torch.hub.load":
        return False
    return not is_constant(call_argument(call, 2, "source"), "local")
