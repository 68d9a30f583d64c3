"""Messages about one sample that this process reads, in what a data set or a collate function does with it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import lru_cache

from accelify.heap.run import Event
from accelify.obligations.error_messages import MESSAGES

_GETS = "__getitem__"


def is_of_own_sample(event: Event, events: Sequence[Event]) -> bool:
    """Whether what is shown goes by one sample: it stands in a handler or under a condition where samples are read. The
    processes read other samples, and what the main process alone shows hides those of the others."""
    if (
        event.kind not in MESSAGES
        or event.module.tree is None
        or not _is_conditional(event.module.tree, event.node)
    ):
        return False
    trees = {str(one.module.path): one.module.tree for one in events if one.module.tree is not None}
    places = [(str(event.module.path), event.line), *((str(path), line) for path, line in event.via)]
    return any(
        first <= line <= last
        for path, line in places
        for first, last in (_reading(trees[path]) if path in trees else ())
    )


@lru_cache(maxsize=64)
def _reading(tree: ast.Module) -> tuple[tuple[int, int], ...]:
    """The lines of the functions that read samples: of data sets, and those that put batches together."""
    collating = {
        ast.unparse(word.value).rpartition(".")[2]
        for one in ast.walk(tree)
        if isinstance(one, ast.Call)
        for word in one.keywords
        if word.arg == "collate_fn"
    }
    return tuple(
        (one.lineno, one.end_lineno or one.lineno)
        for one in ast.walk(tree)
        if isinstance(one, ast.FunctionDef) and (one.name == _GETS or one.name in collating)
    )


def _is_conditional(tree: ast.Module, node: ast.AST) -> bool:
    return any(one is node for one in _under_conditions(tree))


@lru_cache(maxsize=64)
def _under_conditions(tree: ast.Module) -> tuple[ast.AST, ...]:
    """The calls under a condition or in a handler of a function."""
    return tuple(_within(tree, False))


def _within(node: ast.AST, under: bool) -> Iterator[ast.AST]:
    if under and isinstance(node, ast.Call):
        yield node
    for one in ast.iter_child_nodes(node):
        if isinstance(node, ast.If):
            inside = under or one is not node.test
        elif isinstance(one, ast.FunctionDef | ast.ClassDef | ast.Lambda):
            inside = False
        else:
            inside = under or isinstance(one, ast.ExceptHandler)
        yield from _within(one, inside)
