"""Counts of rounds that a converted script multiplies by the number of processes, as it should where they mean samples.

`step += accelerator.num_processes` for `step += 1`: what the count of an original is to be that has N of its batches in
one, and so makes one round where N processes make one each. Found by holding the two texts against each other.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from accelify.verify.observe.multiplied import Extent, extent_of
from accelify.verify.observe.sites import Site

_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_ASSIGNMENTS = (ast.Assign, ast.AnnAssign, ast.AugAssign)


@dataclass(frozen=True)
class MultipliedCount:
    """One count.

    Args:
        site: its statement in the converted script.
        file: of the original.
        extent: of what is multiplied, in the original.
    """

    site: Site
    file: str
    extent: Extent


def by_file(counts: Iterable[MultipliedCount]) -> dict[str, list[Extent]]:
    """The extents in each file of the original."""
    found: dict[str, list[Extent]] = {}
    for count in counts:
        found.setdefault(count.file, []).append(count.extent)
    return found


def multiplied_counts(texts: Mapping[Path, tuple[str, str]]) -> list[MultipliedCount]:
    """The counts of all files.

    Args:
        texts: the files that are not the same in both versions, each before and after.
    """
    found = []
    for path, (before, after) in texts.items():
        try:
            old, new = ast.parse(before), ast.parse(after)
        except (SyntaxError, ValueError, RecursionError):
            continue
        file = os.fspath(path)
        counted = _counted(old)
        sizes = _names_of_sizes(new)
        for before_it, statement in _pairs(_assignments(old), _assignments(new)):
            part = _multiplied(before_it, statement, sizes)
            if part is not None and _is_count(before_it, part, counted):
                found.append(MultipliedCount((file, statement.lineno), file, extent_of(part)))
    return found


def _pairs(
    old: dict[str, list[ast.stmt]], new: dict[str, list[ast.stmt]]
) -> Iterator[tuple[ast.stmt, ast.stmt]]:
    """The statements that correspond to each other: as many to the same target, in the same function of both texts."""
    for key, statements in old.items():
        if len(others := new.get(key, [])) == len(statements):
            yield from zip(statements, others, strict=True)


def _assignments(tree: ast.AST, scope: str = "") -> dict[str, list[ast.stmt]]:
    """The assignments below a node, in their order, by their function and what they assign to."""
    found: dict[str, list[ast.stmt]] = {}
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, _ASSIGNMENTS):
            targets: list[ast.expr] = node.targets if isinstance(node, ast.Assign) else [node.target]
            kind = type(node.op if isinstance(node, ast.AugAssign) else node).__name__
            found.setdefault(f"{scope} {kind} {' '.join(map(ast.dump, targets))}", []).append(node)
        inner = f"{scope}.{node.name}" if isinstance(node, _SCOPES) else scope
        for key, statements in _assignments(node, inner).items():
            found.setdefault(key, []).extend(statements)
    return found


def _counted(tree: ast.Module) -> set[str]:
    """Names and attributes that go with the rounds: added to in a loop, or set by the loop itself."""
    found: set[str] = set()
    for loop in ast.walk(tree):
        if not isinstance(loop, _LOOPS):
            continue
        targets: list[ast.expr] = [node.target for node in ast.walk(loop) if isinstance(node, ast.AugAssign)]
        if isinstance(loop, (ast.For, ast.AsyncFor)):
            targets += [loop.target]
        found.update(ast.dump(part, annotate_fields=False) for target in targets for part in _read(target))
    return found


def _read(node: ast.expr) -> list[ast.expr]:
    """The names and attributes in an expression, each as where it is read."""
    parts = [part for part in ast.walk(node) if isinstance(part, (ast.Name, ast.Attribute))]
    return [
        ast.Name(part.id, ast.Load())
        if isinstance(part, ast.Name)
        else ast.Attribute(part.value, part.attr, ast.Load())
        for part in parts
    ]


def _is_count(statement: ast.stmt, part: ast.expr, counted: set[str]) -> bool:
    """Whether what is multiplied is a count of rounds, and no size such as a learning rate."""
    if isinstance(statement, ast.AugAssign) and part is statement.value:
        return isinstance(statement.op, ast.Add) and isinstance(part, ast.Constant)
    return any(ast.dump(read, annotate_fields=False) in counted for read in _read(part))


def _names_of_sizes(tree: ast.Module) -> frozenset[str]:
    """Names that are assigned once, the number of processes."""
    values: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            values.setdefault(node.targets[0].id, []).append(node.value)
    return frozenset(
        name for name, all_of in values.items() if len(all_of) == 1 and _is_size(all_of[0], frozenset())
    )


def _is_size(node: ast.AST, names: frozenset[str]) -> bool:
    if isinstance(node, ast.Call):
        function = node.func
        return getattr(function, "attr", getattr(function, "id", "")) == "get_world_size"
    if isinstance(node, ast.Name):
        return node.id in names
    return isinstance(node, ast.Attribute) and node.attr == "num_processes"


def _multiplied(before: ast.AST, after: ast.AST, sizes: frozenset[str]) -> ast.expr | None:
    """The one part of `before` that is multiplied by the number of processes in `after`, which is as it else."""
    if isinstance(before, ast.expr) and _is_product(before, after, sizes):
        return before
    if type(before) is not type(after):
        return None
    found = None
    for name, value in ast.iter_fields(before):
        ones = value if isinstance(value, list) else [value]
        other = getattr(after, name, None)
        others = other if isinstance(other, list) else [other]
        if len(ones) != len(others):
            return None
        for one, two in zip(ones, others, strict=True):
            if _same(one, two):
                continue
            if found is not None or not (isinstance(one, ast.AST) and isinstance(two, ast.AST)):
                return None
            found = _multiplied(one, two, sizes)
            if found is None:
                return None
    return found


def _is_product(before: ast.expr, after: ast.AST, sizes: frozenset[str]) -> bool:
    if isinstance(before, ast.Constant) and before.value == 1 and _is_size(after, sizes):
        return True
    if not (isinstance(after, ast.BinOp) and isinstance(after.op, ast.Mult)):
        return False
    sides = [(after.left, after.right), (after.right, after.left)]
    return any(_same(before, one) and _is_size(size, sizes) for one, size in sides)


def _same(one: object, two: object) -> bool:
    if isinstance(one, ast.AST) and isinstance(two, ast.AST):
        return ast.dump(one) == ast.dump(two)
    return type(one) is type(two) and one == two
