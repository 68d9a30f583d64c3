"""Where the loss of an accumulation window is divided by its size, and what reads the divided loss.

The Accelerator divides within `backward`. So the division goes, what reads the loss between it and the backward divides
by itself, and where anything else can read the loss the division is made after the backward:

    loss = loss / steps         ->  accelerator.backward(loss)
    loss.backward()                 loss = loss / steps
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from accelify.analysis import values as v
from accelify.analysis.script import Backward, ScriptModel
from accelify.analysis.statements.reaching_assignments import last_assignment
from accelify.analysis.syntax import dotted, is_constant, stores_in, walk


@dataclass
class Division:
    """`loss / steps`: as a separate statement, or inside an expression of which `retained` stays.

    `between` are the reads up to the backward; `later` is the statement that divides after it, if one has to.
    """

    statement: ast.stmt | None
    retained: ast.expr
    whole: ast.expr
    between: list[ast.Name] = field(default_factory=list)
    later: str = ""


def find_division(script: ScriptModel, backward: Backward, loop: ast.For, steps: ast.expr) -> Division | str:
    """The one division of a loss by the size of its window, or why the Accelerator's cannot be made of it."""
    loss, tree = backward.loss, script.tree
    size = tree.segment(steps)
    if isinstance(loss, ast.BinOp) and _divides(loss, steps):
        return Division(None, loss.left, loss)
    if isinstance(loss, ast.Call) and isinstance(loss.func, ast.Attribute):
        if script.is_a(loss.func.value, v.SCALER):
            return "a GradScaler that stays in the script scales the loss"
    divisions = _divisions(script, loss, loop, steps) if isinstance(loss, ast.Name) else []
    if len(divisions) != 1 or not isinstance(loss, ast.Name):
        return f"the loss is not divided by `{size}` once, in this loop"
    division = divisions[0]
    made = division.statement or tree.statement(division.whole)
    line = tree.line_of(made)
    if not is_in_each_round(script, made, loop):
        return f"the loss is divided by `{size}` only under a condition (line {line})"
    placed = [n for n in walk(loop) if isinstance(n, (ast.stmt, ast.expr))]
    passed = [n for n in placed if tree.is_after(n, made) and tree.is_before(n, backward.call)]
    if any(n in stores_in(loop).get(loss.id, ()) for n in passed):
        return f"`{loss.id}` is changed between its division (line {line}) and the backward"
    scope = backward.scope.resolve(loss.id) or backward.scope
    reads = [read for read in script.reads(loss.id, scope) if read is not loss]
    division.between = [read for read in reads if read in passed]
    if any(tree.in_fstring(n) or script.scope_of(n) is not backward.scope for n in division.between):
        return "the divided loss is read in an f-string or a function before the backward"
    undivided = {read for read in reads if _is_undivided(script, read, loop, made)}
    if set(reads) - set(division.between) - undivided or _has_other_name(script, made, undivided):
        if any(isinstance(n, (ast.Break, ast.Continue)) for n in passed):
            return f"the backward can be left out after the loss was divided (line {line})"
        own = division.statement is made and not isinstance(made, ast.If)
        division.later = tree.segment(made) if own else f"{loss.id} = {loss.id} / {size}"
    return division


def is_in_each_round(script: ScriptModel, stmt: ast.stmt, loop: ast.For) -> bool:
    """Whether a statement of a loop stands under no condition and in no other loop."""
    tree = script.tree
    around = [a for a in tree.ancestors(stmt) if a is not loop and tree.is_within(a, {loop})]
    return all(isinstance(a, (ast.With, ast.AsyncWith, ast.Try)) for a in around)


def _divides(node: ast.AST, steps: ast.expr) -> bool:
    by = getattr(node, "right", None) if isinstance(node, ast.BinOp) else getattr(node, "value", None)
    return (
        isinstance(node, (ast.BinOp, ast.AugAssign))
        and isinstance(node.op, ast.Div)
        and isinstance(by, ast.expr)
        and ast.dump(by) == ast.dump(steps)
    )


def _divisions(script: ScriptModel, loss: ast.Name, loop: ast.For, steps: ast.expr) -> list[Division]:
    """Where a loss is divided in a loop: it is an average over the window if that is once."""
    found: list[Division] = []
    for node in (n for stmt in loop.body for n in walk(stmt)):
        if isinstance(node, ast.AugAssign) and dotted(node.target) == loss.id:
            if isinstance(node.op, ast.Div):
                if not _divides(node, steps):
                    return []
                found.append(Division(_with_its_test(script, node, steps), node.value, node.value))
        elif isinstance(node, ast.Assign) and [dotted(t) for t in node.targets] == [loss.id]:
            value = node.value
            if isinstance(value, ast.BinOp) and _divides(value, steps):
                own = dotted(value.left) == loss.id
                whole = _with_its_test(script, node, steps) if own else None
                found.append(Division(whole, value.left, value))
    return found


def _with_its_test(script: ScriptModel, stmt: ast.stmt, steps: ast.expr) -> ast.stmt:
    """A division with the `if steps > 1:` around it: by one it changes nothing."""
    around = script.tree.parent(stmt)
    test = around.test if isinstance(around, ast.If) and around.body == [stmt] and not around.orelse else None
    if isinstance(around, ast.If) and isinstance(test, ast.Compare) and len(test.ops) == 1:
        more = isinstance(test.ops[0], (ast.Gt, ast.NotEq)) and is_constant(test.comparators[0], 1)
        if more and ast.dump(test.left) == ast.dump(steps):
            return around
    return stmt


def _is_undivided(script: ScriptModel, read: ast.Name, loop: ast.For, made: ast.stmt) -> bool:
    """Whether a read is sure to see the loss of its round before it is divided."""
    tree = script.tree
    if tree.is_within(read, {made}):
        return True
    last = last_assignment(tree, read) if tree.is_before(read, made) else None
    return last is not None and tree.is_within(last, {loop})


def _has_other_name(script: ScriptModel, made: ast.stmt, undivided: set[ast.Name]) -> bool:
    """Whether a loss that is divided in place can be reached by another name: `out.loss`, after `loss = out.loss`."""
    if not isinstance(made, ast.AugAssign) or not isinstance(made.target, ast.Name):
        return False
    source = last_assignment(script.tree, made.target)
    if source is None or not isinstance(source.value, (ast.Call, ast.BinOp)) or len(source.targets) > 1:
        return True
    around = [script.tree.parent(read) for read in undivided]
    return any(
        not isinstance(a, (ast.BinOp, ast.Compare, ast.FormattedValue)) and getattr(a, "attr", "") != "item"
        for a in around
    )
