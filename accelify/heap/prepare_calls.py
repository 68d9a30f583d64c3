"""Calls of `prepare`: what they get, and in which order their results are taken."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from accelify.heap.dividing import divides
from accelify.heap.run import Run
from accelify.heap.values import Instance, Value


def of_prepare(run: Run, args: Sequence[Value], node: ast.AST) -> list[int]:
    """Meet a call of `prepare`: of a share of the data, or whose results are taken in another order.

    Args:
        run: the run.
        args: what it gets.
        node: the call.

    Returns:
        For each result the number of the argument that its name is meant for, as the arguments' names say.
    """
    for value in args:
        for ref in value.of(Instance):
            if ref.kind == "loader" and not ref.prepared and (why := divides(run, ref)) is not None:
                text = "`prepare` divides once more a loader whose data are each process's share already"
                text = f"{text}; leave it out, or give it all data"
                run.meet("misuse", node, text, [Value(why=why)], detail="divided")
    order = list(range(len(args)))
    found = taken(run, node)
    if found is None or not isinstance(node, ast.Call) or any(isinstance(a, ast.Starred) for a in node.args):
        return order
    names = [ast.unparse(one) for one in node.args]
    if len(found) != len(names):
        if len(found) > 1:
            text = (
                f"`prepare` gives {len(names)} objects, and {len(found)} are taken; take as many as it gives"
            )
            run.meet("misuse", node, text, detail="taken")
        return order
    wrong = [(target, name) for target, name in zip(found, names, strict=True) if target in names]
    wrong = [(target, name) for target, name in wrong if target != name]
    if not wrong:
        return order
    target, name = wrong[0]
    text = f"`prepare` gives its objects in the order of its arguments: `{target}` becomes `{name}`"
    text = f"{text}; write the names in the order of the arguments"
    rest = iter([number for number, name in enumerate(names) if name not in found])
    meant = [names.index(target) if target in names else next(rest, -1) for target in found]
    if sorted(meant) == order:
        order, right = meant, ", ".join(found[meant.index(number)] for number in order)
        text = f"{text}: `{right}`"
    run.meet("misuse", node, text, detail="taken")
    return order


def taken(run: Run, node: ast.AST) -> list[str] | None:
    """The texts of what a call is assigned to, also by way of a name; None where it is not assigned."""
    pairs = list(assigned(run.module.tree))
    target = next((target for value, target in pairs if value is node), None)
    if isinstance(target, ast.Name):
        named = [one for value, one in pairs if getattr(value, "id", "") == target.id]
        if (by_number := _by_number(target.id, pairs)) is not None:
            return by_number
        target = named[0] if len(named) == 1 and isinstance(named[0], ast.Tuple) else target
    if target is None:
        return None
    parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
    return None if any(isinstance(p, ast.Starred) for p in parts) else [*map(ast.unparse, parts)]


def _by_number(name: str, pairs: Sequence[tuple[ast.expr, ast.expr]]) -> list[str] | None:
    """The texts of what is taken of a name by numbers from 0 on, `model, optimizer = prepared[:2]`; None where it is
    not all taken so, and once."""
    found = list[str]()
    for value, target in pairs:
        if not (isinstance(value, ast.Subscript) and getattr(value.value, "id", "") == name):
            continue
        part = value.slice
        first = (part.lower or ast.Constant(0)) if isinstance(part, ast.Slice) else part
        several = isinstance(part, ast.Slice) and isinstance(target, ast.Tuple | ast.List)
        if getattr(first, "value", None) != len(found) or isinstance(part, ast.Slice) != several:
            return None
        found += map(ast.unparse, target.elts if isinstance(target, ast.Tuple | ast.List) else [target])
    return found or None


def assigned(tree: ast.Module | None) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What a module assigns, each with its first target."""
    for stmt in ast.walk(tree) if tree is not None else ():
        if isinstance(stmt, ast.Assign):
            yield stmt.value, stmt.targets[0]
