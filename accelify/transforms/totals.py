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

from accelify.analysis import values as v
from accelify.analysis.evaluation import size_of
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
_TENSOR_METHODS = frozenset("sum mean eq ne gt lt ge le add mul div pow sqrt abs".split())


def transform(context: Context) -> Iterator[Change]:
    """Yield the reduction of running totals behind the loops that train on sharded loaders."""
    if context.plan.known.reduces:
        return  # put together by hand
    loops = [
        loop
        for loop, loaders in context.script.loader_loops
        if context.plan.is_sharded(loaders) and any(context.script.trains(s) for s in loop.body)
    ]
    cut = context.plan.hand_cut
    if cut is not None and isinstance(cut.loop, (ast.For, ast.AsyncFor)):
        loops.append(cut.loop)
    for loop in loops:
        totals = _totals(context, loop)
        accelerator = context.accelerator(loop) if totals else None
        if accelerator is None:
            continue
        lines = []
        edits: list[Edit] = []
        tensors = [name for name in totals if context.for_accelerate and _is_tensor(context, loop, name)]
        for reduction in ("sum", "mean"):
            names = [name for name, kind in totals.items() if kind == reduction]
            if context.for_accelerate:
                # Its reduce takes tensors alone. Numbers stay what they are when they are gathered as objects.
                parts = f" / {accelerator}.num_processes" if reduction == "mean" else ""
                lines += [f"{n} = sum(gather_object([{n}])){parts}" for n in names if n not in tensors]
                names = [n for n in names if n in tensors]
            if names:
                joined = ", ".join(names)
                value = joined if len(names) == 1 else f"({joined})"
                lines.append(f'{joined} = {accelerator}.reduce({value}, reduction="{reduction}")')
        if len(tensors) < len(totals) and context.for_accelerate:
            module = context.script.module_of(loop).scopes.module.node
            assert isinstance(module, ast.Module)
            edits.append(context.import_line(module, "from accelerate.utils import gather_object")[0])
        edits.append(InsertAfter(loop, tuple(lines)))
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
    found = {
        n: kind
        for n, kind in found.items()
        if _starts_over(context, loop, n) and _is_read_behind(context, loop, n)
    }
    for counter in [n for n in found if _only_counts(context, loop, n)]:
        divided = _divided_by(context, loop, counter)
        if not divided <= set(found):
            # It divides something that stays this process's own.
            del found[counter]
            found.update(dict.fromkeys(set(found) & divided, "mean"))
    return found


def _only_counts(context: Context, loop: ast.For | ast.AsyncFor, name: str) -> bool:
    """Whether a total is a number of samples and nothing else."""
    values = [value for node in ast.walk(loop) for own, value in [_addition(node)] if own == name]
    return bool(values) and all(
        size_of(v) is not None or (isinstance(v, ast.Name) and _is_batch_size(context, v))
        for v in values
        if v is not None
    )


def _divided_by(context: Context, loop: ast.For | ast.AsyncFor, counter: str) -> set[str]:
    """The variables that a counter divides behind the loop."""
    scope = context.script.scope_of(loop).resolve(counter)
    found: set[str] = set()
    for read in context.script.reads(counter, scope) if scope is not None else ():
        parent = context.tree.parent(read)
        if context.tree.start(read) > context.tree.end(loop) and isinstance(parent, ast.BinOp):
            if isinstance(parent.op, ast.Div) and parent.right is read:
                names = [n for n in ast.walk(parent.left) if isinstance(n, ast.Name)]
                found |= {n.id for n in names if context.script.scope_of(n).resolve(n.id) is not None}
    return found


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
            (isinstance(node, ast.Name) and _is_batch_size(context, node))
            or (isinstance(node, ast.Attribute) and node.attr in ("size", "shape", "numel"))
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


def _is_batch_size(context: Context, name: ast.Name) -> bool:
    """Whether a name is the size of the batch at hand: `n = x.size(0)` in the loops around it."""
    loops = context.script.enclosing_loops(name)
    values = [
        stmt.value
        for loop in loops
        for stmt in ast.walk(loop)
        if isinstance(stmt, ast.Assign)
        and any(isinstance(t, ast.Name) and t.id == name.id for t in stmt.targets)
    ]
    return bool(values) and all(size_of(value) is not None for value in values)


def _is_tensor(context: Context, loop: ast.For | ast.AsyncFor, name: str) -> bool:
    """Whether something that is no plain number is added to a total."""
    additions = [value for node in ast.walk(loop) for n, value in [_addition(node)] if n == name]
    return any(value is not None and _gives_tensor(context, value) for value in additions)


def _gives_tensor(context: Context, node: ast.expr, depth: int = 0) -> bool:
    if isinstance(node, ast.BinOp):
        return any(_gives_tensor(context, side, depth) for side in (node.left, node.right))
    if isinstance(node, ast.UnaryOp):
        return _gives_tensor(context, node.operand, depth)
    if isinstance(node, ast.Compare):
        return True
    if isinstance(node, ast.Call):
        if context.script.qualname(node.func) is not None:
            known = context.script.qualname(node.func) or ""
            inside = known == "builtins.sum" and any(isinstance(a, ast.Compare) for a in node.args)
            return known.startswith("torch.") or inside
        if isinstance(node.func, ast.Attribute):
            return node.func.attr in _TENSOR_METHODS or (
                node.func.attr in ("cpu", "detach", "clone", "float", "double", "long")
                and _gives_tensor(context, node.func.value, depth)
            )
        return context.script.is_a(node, v.OUTPUT)
    if isinstance(node, ast.Attribute):
        return node.attr == "data" and _gives_tensor(context, node.value, depth)
    if not isinstance(node, ast.Name) or depth > 3:
        return False
    if any(isinstance(b.loss, ast.Name) and b.loss.id == node.id for b in context.script.backwards):
        return True
    scope = context.script.scope_of(node).resolve(node.id)
    return any(
        _gives_tensor(context, stmt.value, depth + 1)
        for stmt in context.tree.nodes(ast.Assign)
        for target in stmt.targets
        if isinstance(target, ast.Name) and target.id == node.id
        if context.script.scope_of(stmt).resolve(node.id) is scope
    )


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
