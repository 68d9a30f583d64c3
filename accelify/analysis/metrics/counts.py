"""Numbers of samples and of batches: which count those of all processes, and which those of one."""

from __future__ import annotations

import ast

from accelify.analysis import values as v
from accelify.analysis.script import ScriptModel
from accelify.analysis.statements.enumerated import counter_of
from accelify.analysis.syntax import call_argument, dotted, walk
from accelify.analysis.values import Entity


def size_of(value: ast.expr) -> str | None:
    """The tensor's name, where an expression is the size of its first dimension."""
    if isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Constant) and value.slice.value == 0:
        inner = value.value
        if isinstance(inner, ast.Call) and not inner.args:
            inner = inner.func
        if isinstance(inner, ast.Attribute) and inner.attr in ("size", "shape"):
            return inner.value.id if isinstance(inner.value, ast.Name) else None
    if isinstance(value, ast.Call) and len(value.args) == 1:
        first = value.args[0]
        if isinstance(value.func, ast.Name) and value.func.id == "len":
            return first.id if isinstance(first, ast.Name) else None
        if isinstance(value.func, ast.Attribute) and value.func.attr == "size":
            owner = value.func.value
            if isinstance(first, ast.Constant) and first.value == 0 and isinstance(owner, ast.Name):
                return owner.id
    return None


def shape_of(value: ast.expr) -> ast.expr | None:
    """The tensor, where an expression is the whole of its shape: `x.size()`, `x.shape`."""
    if isinstance(value, ast.Call) and not value.args and not value.keywords:
        func = value.func
        return func.value if isinstance(func, ast.Attribute) and func.attr == "size" else None
    return value.value if isinstance(value, ast.Attribute) and value.attr == "shape" else None


def first_of_shape(stmt: ast.Assign, name: str) -> ast.expr | None:
    """`x.shape[0]`, where a statement unpacks a shape and a name takes the first of it."""
    target = stmt.targets[0]
    if not isinstance(target, (ast.Tuple, ast.List)) or shape_of(stmt.value) is None or not target.elts:
        return None
    first = target.elts[0]
    if not isinstance(first, ast.Name) or first.id != name:
        return None
    return ast.copy_location(ast.Subscript(stmt.value, ast.Constant(0), ast.Load()), stmt.value)


def size_given(stmt: ast.Assign, name: str) -> ast.expr | None:
    """What a statement assigns to a name alone, or `x.shape[0]` where the name takes the first of a shape."""
    if any(isinstance(target, ast.Name) and target.id == name for target in stmt.targets):
        return stmt.value
    return first_of_shape(stmt, name)


def counts_all(script: ScriptModel, divisor: ast.expr, depth: int = 2) -> bool:
    """`len(loader.dataset)` or `len(dataset)`, or a name for it: the samples of all processes, or their batches."""
    while isinstance(divisor, ast.Call) and divisor.args:
        if dotted(divisor.func) not in ("float", "int", "math.ceil", "np.ceil", "round"):
            break
        divisor = divisor.args[0]
    if isinstance(divisor, ast.BinOp) and isinstance(divisor.op, ast.Add):
        # (len(dataset) - 1) // batch_size + 1
        quotient = isinstance(divisor.left, ast.BinOp) and isinstance(divisor.left.op, ast.FloorDiv)
        return (
            quotient and isinstance(divisor.right, ast.Constant) and counts_all(script, divisor.left, depth)
        )
    if isinstance(divisor, ast.BinOp) and isinstance(divisor.op, (ast.Div, ast.FloorDiv)):
        return _counts_all_rounded(script, divisor.left, depth)  # batches, all of them
    if isinstance(divisor, ast.Name):
        made = made_once(script, divisor)
        if made is None and depth:
            given = arguments_for(script, divisor)
            return bool(given) and all(counts_all(script, one, depth - 1) for one in given)
        return made is not None and not isinstance(made, ast.Name) and counts_all(script, made, depth)
    if isinstance(divisor, ast.Subscript) and isinstance(divisor.value, ast.Name):
        # sizes = {"train": len(train_set), "val": len(val_set)}
        made = made_once(script, divisor.value)
        sizes = (
            made.values
            if isinstance(made, ast.Dict)
            else [made.value]
            if isinstance(made, ast.DictComp)
            else []
        )
        return bool(sizes) and all(counts_all(script, size, depth) for size in sizes)
    if not (isinstance(divisor, ast.Call) and dotted(divisor.func) == "len" and divisor.args):
        return False
    counted = divisor.args[0]
    named = isinstance(counted, ast.Attribute) and counted.attr == "dataset"
    return named or script.is_a(counted, v.DATASET)


def _counts_all_rounded(script: ScriptModel, dividend: ast.expr, depth: int) -> bool:
    """Samples of all processes with what rounds up added, as in `(len(dataset) + batch_size - 1) // batch_size`."""
    while isinstance(dividend, ast.BinOp) and isinstance(dividend.op, (ast.Add, ast.Sub)):
        if counts_all(script, dividend.right, depth) and isinstance(dividend.op, ast.Add):
            dividend = dividend.right
        elif any(isinstance(n, ast.Call) for n in walk(dividend.right)):
            return False
        else:
            dividend = dividend.left
    return counts_all(script, dividend, depth)


def arguments_for(script: ScriptModel, name: ast.Name) -> list[ast.expr]:
    """What the callers of a function pass for a parameter that it never sets."""
    scope = script.scope_of(name).resolve(name.id)
    if scope is None or scope.kind != "function":
        return []
    names = scope.positional()[1 if scope.self_name() is not None else 0 :]
    given = []
    for call in script.callers(scope) if name.id in {a.arg for a in scope.parameters()} else ():
        index = names.index(name.id) if name.id in names else len(call.args)
        value = call_argument(call, index, name.id)
        if value is None:
            return []
        given.append(value)
    return given


def made_once(script: ScriptModel, name: ast.Name) -> ast.expr | None:
    """What a variable is assigned, where that is once."""
    scope = script.scope_of(name).resolve(name.id)
    values = [
        stmt.value for stmt in script.tree.assigns(name.id) if script.scope_of(stmt).resolve(name.id) is scope
    ]
    return values[0] if len(values) == 1 else None


def counts_own(
    script: ScriptModel, loop: ast.For | ast.AsyncFor | ast.While, loaders: set[Entity], divisor: ast.expr
) -> bool:
    """Whether a divisor counts the batches of one process: `len(loader)`, `i + 1`, `n` with `n += batch_size`.

    Args:
        script: its model.
        loop: over the batches.
        loaders: those that give each process a different share.
        divisor: of a total of the loop.
    """
    for node in walk(divisor):
        if isinstance(node, ast.Call) and dotted(node.func) == "len" and len(node.args) == 1:
            if script.entities(node.args[0], v.LOADER) & loaders:
                return True
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            if node.id == counter_of(script, loop) or steps_of(script, loop, node.id):
                return True
            made = made_once(script, node)
            if (
                made is not None
                and script.scope_of(node).kind == "function"
                and not isinstance(made, ast.Name)
            ):
                if script.scope_of(made) is script.scope_of(node) and counts_own(script, loop, loaders, made):
                    return True
    return False


def steps_of(script: ScriptModel, loop: ast.For | ast.AsyncFor | ast.While, name: str) -> bool:
    """Whether a variable counts the rounds of a loop: `n += 1` or `n += batch_size` for each batch, and no more."""
    added = [
        stmt.value
        for stmt in walk(loop)
        if isinstance(stmt, ast.AugAssign) and isinstance(stmt.op, ast.Add) and dotted(stmt.target) == name
    ]
    return bool(added) and all(size_of(value) is None and script.is_uniform(value) for value in added)
