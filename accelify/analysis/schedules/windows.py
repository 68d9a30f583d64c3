"""Gradient accumulation written by hand: what it means for the Accelerator's constructor."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from accelify.analysis import values as v
from accelify.analysis.schedules.divided_losses import Division, find_division, is_in_each_round
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import call_argument, dotted, is_constant, names_in, text_of, walk


@dataclass
class Window:
    """An accumulation window: statements `first` to `last` of a loop, under `test` the optimizer steps."""

    first: ast.stmt
    last: ast.stmt
    test: ast.expr
    steps: str
    names: frozenset[str]
    flushes: bool
    # Whether a schedule goes on in each batch, and not with the optimizer.
    by_batches: bool
    models: list[str] = field(default_factory=list)
    division: Division | None = None
    backward: ast.stmt | None = None
    divisor: str = ""

    def argument(self, for_accelerate: bool = False) -> tuple[str, str]:
        """The constructor argument that preserves the numbers of the loop written by hand."""
        if for_accelerate:
            # It divides by the whole window, the last one too, as the loop does.
            return "gradient_accumulation_steps", self.steps
        ends = (
            "scale_last_window=False" if self.flushes else "sync_with_dataloader=False, reset_each_epoch=True"
        )
        words = f"num_steps={self.steps}, {'adjust_scheduler=False, ' if self.by_batches else ''}{ends}"
        return "gradient_accumulation_plugin", f"GradientAccumulationPlugin({words})"


_NO_COUNTER = "the loop around the backward is no `for i, batch in enumerate(loader)`"


def find_window(script: ScriptModel) -> Window | str:
    """The one accumulation window of a script, or what about it is not the form that the Accelerator takes over."""
    if len(script.backwards) != 1:
        return f"there are {len(script.backwards)} backward passes"
    backward = script.backwards[0]
    loops = script.enclosing_loops(backward.call)
    loader_loops = {id(loop) for loop, _ in script.loader_loops}
    loop = loops[0] if loops else None
    if not isinstance(loop, ast.For) or id(loop) not in loader_loops or not isinstance(loop.iter, ast.Call):
        return _NO_COUNTER
    if dotted(loop.iter.func) not in ("enumerate", "tqdm") or not isinstance(loop.target, ast.Tuple):
        return _NO_COUNTER
    counter = loop.target.elts[0]
    if not isinstance(counter, ast.Name):
        return _NO_COUNTER
    start = 0
    inner = loop.iter
    while isinstance(inner, ast.Call) and dotted(inner.func) == "tqdm" and inner.args:
        if not isinstance(inner.args[0], ast.Call):
            return _NO_COUNTER
        inner = inner.args[0]
    begin = call_argument(inner, 1, "start")
    if begin is not None:
        if not is_constant(begin, 0, 1) or not isinstance(begin, ast.Constant):
            return "the counter begins with another number than 0 and 1"
        start = int(str(begin.value))
    steps_statement = backward_statement = None
    for stmt in loop.body:
        if any(n is backward.call for n in walk(stmt)):
            backward_statement = stmt
        if (
            isinstance(stmt, ast.If)
            and not stmt.orelse
            and _steps(script, stmt)
            and backward_statement is not None
        ):
            steps_statement = stmt
    if not isinstance(backward_statement, ast.stmt) or not isinstance(steps_statement, ast.If):
        return "the step does not follow the backward in the same loop, under an `if` without `else`"
    if not is_in_each_round(script, script.tree.statement(backward.call), loop):
        return "the backward stands under a condition or a loop of its own"
    if any(
        isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr == "zero_grad"
        for stmt in loop.body
        if stmt is not steps_statement
        for n in walk(stmt)
    ):
        return "gradients are set to zero outside of the `if` around the step"
    parsed = _test(steps_statement.test, counter.id, start)
    if parsed is None:
        return (
            f"the condition of the step is not `({counter.id} + 1) % n == 0`, with a name or a number for n"
        )
    steps, flushes = parsed
    division = find_division(script, backward, loop, steps)
    if isinstance(division, str):
        return division
    with_steps = _goes_on(script, [steps_statement])
    by_batches = _goes_on(script, [stmt for stmt in loop.body if stmt is not steps_statement])
    if with_steps and by_batches:
        return "one schedule goes on in each batch, and another one with the optimizer"
    size = script.tree.segment(steps)
    given = from_caller(script, steps)
    if given is None:
        return f"`{size}` is not the same wherever this function is called"
    window = Window(
        loop.body[0],
        steps_statement,
        steps_statement.test,
        script.tree.segment(given),
        frozenset(names_in(given)),
        flushes,
        by_batches,
    )
    window.division = division
    window.backward = script.tree.statement(backward.call)
    window.divisor = size
    for call in (n for stmt in loop.body for n in walk(stmt)):
        if isinstance(call, ast.Call) and isinstance(call.func, (ast.Name, ast.Attribute)):
            if script.models_of(call.func) & script.trained_models:
                text = script.tree.segment(call.func)
                if text not in window.models:
                    window.models.append(text)
    return window if window.models else "the model is not called in this loop"


def _steps(script: ScriptModel, stmt: ast.If) -> bool:
    return any(
        isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr == "step"
        and (script.is_a(n.func.value, v.OPTIMIZER) or (n.args and script.is_a(n.args[0], v.OPTIMIZER)))
        for s in stmt.body for n in walk(s)
    )  # fmt: skip


def _goes_on(script: ScriptModel, body: list[ast.stmt]) -> bool:
    """Whether a schedule takes a step in some statements that is counted by its calls."""
    return any(
        isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr == "step"
        and not n.args and not n.keywords and script.is_a(n.func.value, v.SCHEDULER)
        for stmt in body for n in walk(stmt)
    )  # fmt: skip


def _test(test: ast.expr, counter: str, start: int) -> tuple[ast.expr, bool] | None:
    """The window's size and whether the last, shorter window steps too."""
    flushes = False
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or) and len(test.values) == 2:
        second = text_of(test.values[1])
        if "len(" not in second or counter not in second:
            return None
        flushes, test = True, test.values[0]
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], ast.Eq):
        return None
    if (
        not is_constant(test.comparators[0], 0)
        or not isinstance(test.left, ast.BinOp)
        or not isinstance(test.left.op, ast.Mod)
    ):
        return None
    left = text_of(test.left.left).replace(" ", "").strip("()")
    if left != (f"{counter}+1" if start == 0 else counter):
        return None
    steps = test.left.right
    if not isinstance(steps, (ast.Name, ast.Attribute, ast.Constant)):
        return None
    return steps, flushes


def from_caller(script: ScriptModel, node: ast.expr) -> ast.expr | None:
    """What the one call of a function passes for a parameter; any other expression is itself."""
    for _ in range(4):
        if not isinstance(node, ast.Name):
            return node
        scope = script.scope_of(node).resolve(node.id)
        if scope is None or scope.kind != "function" or not scope.takes(node.id):
            return node
        names = [a.arg for a in scope.parameters()]
        index = names.index(node.id) - (1 if scope.self_name() is not None else 0)
        given = [call_argument(call, index, node.id) for call in script.callers(scope)]
        texts = {None if g is None else script.tree.segment(g) for g in given}
        if len(texts) != 1 or given[0] is None:
            return None
        node = given[0]
    return None


def accumulates_by_hand(script: ScriptModel) -> ast.If | None:
    """An optimizer step under `if i % n == 0` (or the like) after a backward in the same loop."""
    for backward in script.backwards:
        for loop in script.enclosing_loops(backward.call)[:1]:
            for stmt in loop.body:
                if isinstance(stmt, ast.If) and _steps(script, stmt) and not script.trains(stmt):
                    if any(isinstance(n, ast.Mod) for n in walk(stmt.test)):
                        return stmt
    return None
