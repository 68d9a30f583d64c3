"""What libraries write or fetch behind words that say neither: pictures of graphviz, repositories of torch.hub."""

from __future__ import annotations

import ast

from accelify.analysis.syntax import call_argument, is_constant
from accelify.analysis.values import Thing, Values

# Methods of a graph that write its source and its picture; a simulator has a `render`, too.
RENDERING = frozenset("render view save".split())
_GRAPHS = ("graphviz.", "torchviz.", "pydot.", "pygraphviz.")


def renders(held: Values) -> bool:
    """Whether what has a method of `RENDERING` is a graph, whose picture that writes.

    Args:
        held: what the object can be.
    """
    return any(isinstance(one, Thing) and (one.qualname or "").startswith(_GRAPHS) for one in held)


def fetches_repository(call: ast.Call, name: str | None) -> bool:
    """Whether a call has torch.hub unpack a repository into its cache, which two processes cannot do at once."""
    if name != "torch.hub.load":
        return False
    return not is_constant(call_argument(call, 2, "source"), "local")


__all__ = ["RENDERING", "fetches_repository", "renders"]
