"""Embeddings with max_norm, whose forward scales in place the rows that it looks up, and no others."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis import values as v
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import call_argument, is_constant
from accelify.analysis.values import Thing

# Where each takes its max_norm.
_PLACES = {"torch.nn.Embedding": 3, "torch.nn.EmbeddingBag": 2}


def bounded_embeddings(script: ScriptModel, prepared: set[Thing]) -> Iterator[tuple[Thing, ast.expr]]:
    """The embeddings of prepared models that bound the norm of their rows, with the bound as it is written."""
    for thing in list(script.interpreter.things.values()):
        if not isinstance(thing, Thing) or thing.kind != v.MODEL or thing.qualname not in _PLACES:
            continue
        if not isinstance(thing.site, ast.Call) or thing.module is None:
            continue
        bound = call_argument(thing.site, _PLACES[thing.qualname], "max_norm")
        if bound is None or is_constant(bound, None) or _is_never_given(script, thing, bound):
            continue
        if thing in prepared or script.owners_of(thing) & prepared:
            yield thing, bound


def _is_never_given(script: ScriptModel, thing: Thing, bound: ast.expr) -> bool:
    """Whether a bound is a parameter of the function around it that is None, as no call tells it anything else."""
    if not isinstance(bound, ast.Name) or thing.module is None:
        return False
    scope = thing.module.scopes.of(bound)
    if scope.kind != "function" or not isinstance(scope.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return False
    arguments = scope.node.args
    every = [*arguments.posonlyargs, *arguments.args]
    defaults = [*[None] * (len(every) - len(arguments.defaults)), *arguments.defaults]
    pairs = [
        *zip(every, defaults, strict=True),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    if not any(a.arg == bound.id and is_constant(default, None) for a, default in pairs):
        return False
    names = scope.positional()[1 if scope.self_name() is not None else 0 :]
    index = names.index(bound.id) if bound.id in names else len(every)
    for _, call in script.interpreter.callers.get(scope, ()):
        given = call_argument(call, index, bound.id)
        if any(kw.arg is None for kw in call.keywords) or (
            given is not None and not is_constant(given, None)
        ):
            return False
    return True
