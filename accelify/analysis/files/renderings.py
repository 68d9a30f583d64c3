"""What libraries write or fetch behind words that say neither: pictures of graphviz, repositories of torch.hub."""

from __future__ import annotations

import ast
from collections.abc import Callable

from accelify.analysis.syntax import call_argument, is_constant
from accelify.analysis.values import Thing, Values

# Methods of a graph that write its source and its picture; a simulator has a `render`, too.
_RENDERING = frozenset("render view save".split())
_GRAPHS = ("graphviz.", "torchviz.", "pydot.", "pygraphviz.")


def renders(call: ast.Call, values: Callable[[ast.expr], Values]) -> bool:
    """Whether a call is one of a graph's methods that write its picture.

    Args:
        call: any.
        values: what an expression can be.
    """
    func = call.func
    if not isinstance(func, ast.Attribute) or func.attr not in _RENDERING:
        return False
    return any(
        isinstance(one, Thing) and (one.qualname or "").startswith(_GRAPHS) for one in values(func.value)
    )


def fetches_repository(call: ast.Call, name: str | None) -> bool:
    """Whether a call has torch.hub unpack a repository into its cache, which two processes cannot do at once."""
    if name != "torch.hub.load":
        return False
    return not is_constant(call_argument(call, 2, "source"), "local")


__all__ = ["fetches_repository", "renders"]
