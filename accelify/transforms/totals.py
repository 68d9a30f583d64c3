"""Running totals of a training loop, made whole before they are used.

for data, target in loader:
    ...
    running_loss += loss.item()
                                    ->  running_loss = accelerator.reduce(running_loss, reduction="mean")
print(running_loss / len(loader))
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis.losses import SUM
from accelify.analysis.syntax import dotted
from accelify.edits import Edit, InsertAfter
from accelify.findings import Safety
from accelify.transforms.base import Change, Context, Rule

TOTALS = Rule(
    "ACC302",
    "running-totals",
    "A running total covers one process's share of the data only.",
    safety=Safety.REVIEW,
    effort=5,
)


def transform(context: Context) -> Iterator[Change]:
    """Yield the reduction of running totals behind the loops that train on sharded loaders."""
    for loop, loaders in context.script.loader_loops:
        if not context.plan.is_sharded(loaders) or not any(context.script.trains(s) for s in loop.body):
            continue
        totals = _totals(context, loop)
        accelerator = context.accelerator(loop) if totals else None
        if accelerator is None:
            continue
        lines = []
        for reduction in ("sum", "mean"):
            names = [name for name, kind in totals.items() if kind == reduction]
            if names:
                joined = ", ".join(names)
                value = joined if len(names) == 1 else f"({joined})"
                lines.append(f'{joined} = {accelerator}.reduce({value}, reduction="{reduction}")')
        edits: list[Edit] = [InsertAfter(loop, tuple(lines))]
        context.reduced.update((context.script.scope_of(loop), name) for name in totals)
        yield context.change(
            TOTALS,
            loop.iter,
            f"{', '.join(f'`{n}`' for n in totals)} would cover one process's share of the data",
            edits,
        )


def _totals(context: Context, loop: ast.For | ast.AsyncFor) -> dict[str, str]:
    """Names that add something up over a loop and are read behind it, with how their parts are put together."""
    found: dict[str, str] = {}
    stored: set[str] = set()
    for stmt in loop.body:
        for node in ast.walk(stmt):
            if isinstance(node, ast.Assign):
                stored |= {n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name)}
    for stmt in loop.body:
        for node in ast.walk(stmt):
            name, value = _addition(node)
            if name is None or value is None:
                continue
            if name in stored and not isinstance(node, ast.Assign):
                found.pop(name, None)
                continue
            if isinstance(node, ast.Assign) and _assigned_twice(loop, name):
                continue
            kind = _kind(context, value)
            if kind is not None and found.get(name, kind) == kind:
                found[name] = kind
    return {
        n: kind
        for n, kind in found.items()
        if _starts_over(context, loop, n) and _is_read_behind(context, loop, n)
    }


def _addition(node: ast.AST) -> tuple[str | None, ast.expr | None]:
    """The name and value of `total += value` or `total = total + value`."""
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add) and isinstance(node.target, ast.Name):
        return node.target.id, node.value
    if (
        isinstance(node, ast.Assign)
        and len(node.targets) == 1
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.BinOp)
        and isinstance(node.value.op, ast.Add)
        and isinstance(node.value.left, ast.Name)
        and node.value.left.id == node.targets[0].id
    ):
        return node.targets[0].id, node.value.right
    return None, None


def _assigned_twice(loop: ast.For | ast.AsyncFor, name: str) -> bool:
    return (
        sum(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store) for n in ast.walk(loop))
        > 1
    )


def _kind(context: Context, value: ast.expr) -> str | None:
    """`sum` for what counts or adds over samples, `mean` for an average per batch, None for plain counters."""
    if isinstance(value, ast.Constant):
        return None
    size = False
    for node in ast.walk(value):
        if (
            (isinstance(node, ast.Attribute) and node.attr in ("size", "shape", "numel"))
            or (isinstance(node, ast.Call) and dotted(node.func) in ("len", "sum"))
            or (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in ("sum", "nelement")
            )
            or (
                isinstance(node, ast.Call)
                and context.script.qualname(node.func) in ("torch.sum", "numpy.sum")
            )
        ):
            size = True
    if size:
        return (
            None
            if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Div) and not _is_loss(context, value)
            else "sum"
        )
    if not _is_loss(context, value):
        return None
    loss = _loss_inside(value)
    if loss is not None and context.plan.reductions.of(loss) == SUM:
        return "sum"
    return "mean"


def _loss_inside(value: ast.expr) -> ast.expr | None:
    """The tensor of `loss.item()`, `loss.data[0]`, `float(loss)`."""
    node: ast.expr = value
    while True:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            node = node.func.value
        elif isinstance(node, ast.Call) and dotted(node.func) == "float" and node.args:
            node = node.args[0]
        elif (isinstance(node, ast.Attribute) and node.attr == "data") or isinstance(node, ast.Subscript):
            node = node.value
        elif isinstance(node, ast.BinOp):
            node = node.left
        else:
            return node if isinstance(node, ast.Name) else None


def _is_loss(context: Context, value: ast.expr) -> bool:
    losses = {b.loss.id for b in context.script.backwards if isinstance(b.loss, ast.Name)}
    names = {n.id for n in ast.walk(value) if isinstance(n, ast.Name)}
    return bool(names & losses) or any("loss" in n.lower() for n in names)


def _starts_over(context: Context, loop: ast.For | ast.AsyncFor, name: str) -> bool:
    """Whether the total is set to nothing before each run of the loop, in the same block or function."""
    node: ast.AST = loop
    while True:
        block = context.tree.block_of(node)[2]
        for stmt in block[: block.index(node)]:
            for inner in ast.walk(stmt):
                if isinstance(inner, ast.Name) and inner.id == name and isinstance(inner.ctx, ast.Store):
                    return True
        parent = context.tree.parent(node)
        if not isinstance(parent, (ast.With, ast.Try, ast.If)):
            return False
        node = parent


def _is_read_behind(context: Context, loop: ast.For | ast.AsyncFor, name: str) -> bool:
    end = context.tree.end(loop)
    scope = context.script.scope_of(loop).resolve(name)
    if scope is None:
        return False
    return any(context.tree.start(n) > end for n in context.script.reads(name, scope))
