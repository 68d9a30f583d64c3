"""What a script does with what it loads of a file, as its text shows: weights, numbers that it counts on, names."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator


def is_of_weights(tree: ast.Module | None, loaded: ast.AST) -> bool:
    """Whether `load_state_dict` gets what a call loads, or a part of it.

    Args:
        tree: the module.
        loaded: the call.
    """
    names = set(_names_of(tree, loaded))
    return any(
        part is loaded or (isinstance(part, ast.expr) and ast.unparse(part) in names)
        for call in _calls(tree)
        if getattr(call.func, "attr", "") == "load_state_dict"
        for arg in call.args
        for part in ast.walk(arg)
    )


def is_of_names(tree: ast.Module | None, loaded: ast.AST) -> bool:
    """Whether the elements of what a call loads become the keys of a dictionary, which no tensors are.

    Args:
        tree: the module.
        loaded: the call.
    """
    names = set(_names_of(tree, loaded))
    zipped = (
        pairs.args[0]
        for call in _calls(tree)
        for pairs in call.args[:1]
        if getattr(call.func, "id", "") == "dict" and isinstance(pairs, ast.Call) and pairs.args
        if getattr(pairs.func, "id", "") == "zip"
    )
    return any(one is loaded or ast.unparse(one) in names for one in zipped)


def is_counted_on(trees: Iterable[ast.Module | None], tree: ast.Module | None, loaded: ast.AST) -> bool:
    """Whether a script adds a number to what a call loads, under the name that it gets: `self.step += 1`.

    Args:
        trees: all modules.
        tree: that of the call.
        loaded: the call.
    """
    whole = set(_names_of(tree, loaded, whole=True))
    fields = {text.rpartition(".")[2] for text in whole if "." in text}
    return any(
        isinstance(one.value, ast.Constant)
        and (
            (module is tree and ast.unparse(one.target) in whole) or getattr(one.target, "attr", "") in fields
        )
        for module in trees
        for one in (ast.walk(module) if module is not None else ())
        if isinstance(one, ast.AugAssign)
    )


def _names_of(tree: ast.Module | None, loaded: ast.AST, whole: bool = False) -> Iterator[str]:
    """The names and attributes that get what a call loads, or else a part of it."""
    for one in ast.walk(tree) if tree is not None else ():
        if isinstance(one, ast.Assign) and (
            one.value is loaded or (not whole and any(part is loaded for part in ast.walk(one.value)))
        ):
            yield from (ast.unparse(target) for target in one.targets)


def _calls(tree: ast.Module | None) -> Iterator[ast.Call]:
    return (one for one in (ast.walk(tree) if tree is not None else ()) if isinstance(one, ast.Call))
