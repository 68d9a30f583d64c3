"""Gradient accumulation written by hand, and mixed precision: what they mean for the Accelerator's constructor."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.script import Backward, ScriptModel
from accelify.analysis.statements.assignments import assigned_once
from accelify.analysis.statements.reaching import last_assignment
from accelify.analysis.syntax import (
    call_argument,
    call_keyword,
    dotted,
    is_constant,
    names_in,
    stores_in,
    text_of,
    walk,
)

# Where the loss of an accumulation window is divided by its size, and what reads the divided loss.
#
# The Accelerator divides within `backward`. So the division goes, what reads the loss between it and the backward
# divides by itself, and where anything else can read the loss the division is made after the backward:
#
#     loss = loss / steps         ->  accelerator.backward(loss)
#     loss.backward()                 loss = loss / steps


@dataclass
class _Division:
    """`loss / steps`: as a separate statement, or inside an expression of which `retained` stays.

    `between` are the reads up to the backward; `later` is the statement that divides after it, if one has to.
    """

    statement: ast.stmt | None
    retained: ast.expr
    whole: ast.expr
    between: list[ast.Name] = field(default_factory=list)
    later: str = ""


def _find_division(
    script: ScriptModel, backward: Backward, loop: ast.For, steps: ast.expr
) -> _Division | str:
    """The one division of a loss by the size of its window, or why the Accelerator's cannot be made of it."""
    loss, tree = backward.loss, script.tree
    size = tree.segment(steps)
    if isinstance(loss, ast.BinOp) and _divides(loss, steps):
        return _Division(None, loss.left, loss)
    if isinstance(loss, ast.Call) and isinstance(loss.func, ast.Attribute):
        if script.is_a(loss.func.value, v.SCALER):
            return "a GradScaler that stays in the script scales the loss"
    divisions = _divisions(script, loss, loop, steps) if isinstance(loss, ast.Name) else []
    if len(divisions) != 1 or not isinstance(loss, ast.Name):
        return f"the loss is not divided by `{size}` once, in this loop"
    division = divisions[0]
    made = division.statement or tree.statement(division.whole)
    line = tree.line_of(made)
    if not _is_in_each_round(script, made, loop):
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


def _is_in_each_round(script: ScriptModel, stmt: ast.stmt, loop: ast.For) -> bool:
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


def _divisions(script: ScriptModel, loss: ast.Name, loop: ast.For, steps: ast.expr) -> list[_Division]:
    """Where a loss is divided in a loop: it is an average over the window if that is once."""
    found: list[_Division] = []
    for node in (n for stmt in loop.body for n in walk(stmt)):
        if isinstance(node, ast.AugAssign) and dotted(node.target) == loss.id:
            if isinstance(node.op, ast.Div):
                if not _divides(node, steps):
                    return []
                found.append(_Division(_with_its_test(script, node, steps), node.value, node.value))
        elif isinstance(node, ast.Assign) and [dotted(t) for t in node.targets] == [loss.id]:
            value = node.value
            if isinstance(value, ast.BinOp) and _divides(value, steps):
                own = dotted(value.left) == loss.id
                whole = _with_its_test(script, node, steps) if own else None
                found.append(_Division(whole, value.left, value))
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


@dataclass
class Window:
    """An accumulation window: statements `first` to `last` of a loop, under `test` the optimizer steps."""

    first: ast.stmt
    last: ast.stmt
    test: ast.expr
    steps: str
    names: frozenset[str]
    flushes: bool
    models: list[str] = field(default_factory=list)
    division: _Division | None = None
    backward: ast.stmt | None = None
    divisor: str = ""

    def argument(self, for_accelerate: bool = False) -> tuple[str, str]:
        """The constructor argument that preserves the numbers of the loop written by hand."""
        if for_accelerate:
            # It divides by the whole window, the last one too, as the loop does.
            return "gradient_accumulation_steps", self.steps
        if self.flushes:
            return (
                "gradient_accumulation_plugin",
                f"GradientAccumulationPlugin(num_steps={self.steps}, scale_last_window=False)",
            )
        return (
            "gradient_accumulation_plugin",
            f"GradientAccumulationPlugin(num_steps={self.steps}, sync_with_dataloader=False, reset_each_epoch=True)",
        )


# How many names may stand for each other.
_DEEPEST = 4
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
    if not _is_in_each_round(script, script.tree.statement(backward.call), loop):
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
    division = _find_division(script, backward, loop, steps)
    if isinstance(division, str):
        return division
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


def _may_be_cpu(device: ast.expr | None) -> bool:
    return device is not None and not is_constant(device, "cuda")


def scales_on_gpu_alone(script: ScriptModel) -> bool:
    """Whether no gradient is scaled on a CPU: each GradScaler is of CUDA, which torch takes where none is named."""
    scalers = script.calls_to(k.SCALER_CLASSES)
    legacy = [call for call in scalers if ".cuda.amp" in (script.qualname(call.func) or "")]
    return not any(_may_be_cpu(call_argument(call, 0, "device")) for call in scalers if call not in legacy)


def _switch(script: ScriptModel, call: ast.Call, positional: bool) -> ast.expr | None:
    """What switches a cast or a scaler on: its `enabled`, or the condition under which it is made."""
    switch = call_keyword(call, "enabled")
    if switch is None and positional and call.args:
        switch = call.args[0]
    if switch is not None:
        return switch
    for ancestor in script.tree.ancestors(call):
        if isinstance(ancestor, (ast.If, ast.IfExp)) and not isinstance(ancestor.test, ast.Constant):
            inside = ancestor.body if isinstance(ancestor.body, list) else [ancestor.body]
            within = any(call is n for part in inside for n in walk(part))
            return ancestor.test if within and script.is_uniform(ancestor.test) else None
        if isinstance(ancestor, (ast.FunctionDef, ast.Lambda)):
            return None
    return None


def _asks_for_gpu(script: ScriptModel, test: ast.expr) -> bool:
    """`device.type == "cuda"` asks what is_available() asks, as does `scaler is not None`."""
    return any(
        script.is_a(node, v.DEVICE) or script.is_a(node, v.SCALER)
        if isinstance(node, ast.Name)
        else isinstance(node, ast.Call) and script.qualname(node.func) in k.AVAILABILITY_CALLS
        for node in walk(test)
    )


def _conditions(script: ScriptModel, test: ast.expr, depth: int = 0) -> list[ast.expr]:
    """What has to be true all together."""
    made = assigned_once(script.scope_of(test), test)
    parts: list[ast.expr] = []
    if isinstance(made, ast.BoolOp) and isinstance(made.op, ast.And):
        parts = made.values
    elif isinstance(made, ast.IfExp) and is_constant(made.orelse, False):
        parts = [made.test, made.body]
    if parts and depth < _DEEPEST:
        return [one for part in parts for one in _conditions(script, part, depth + 1)]
    return [made if made is not None and _asks_for_gpu(script, made) else test]


def mixed_precision(script: ScriptModel) -> tuple[str, frozenset[str] | None] | None:
    """The `mixed_precision` argument that autocast and GradScaler ask for, as source, with the names it reads; None for
    these where what decides has no one name."""
    autocasts = script.calls_to(k.AUTOCAST_CLASSES)
    scalers = script.calls_to(k.SCALER_CLASSES)
    if (not autocasts and not scalers) or not script.understands_precision:
        return None
    kind, cpu_kind, enabled, names = "fp16", "no", "", frozenset[str]()
    for call in [*autocasts, *scalers]:
        legacy = ".cuda.amp" in (script.qualname(call.func) or "")
        dtype = call_keyword(call, "dtype")
        word = (dotted(dtype) or "").rpartition(".")[2] if dtype is not None else ""
        if word == "bfloat16":
            kind = "bf16"
        if call in autocasts and not legacy and _may_be_cpu(call_argument(call, 0, "device_type")):
            # torch's own choice there is bfloat16.
            cpu_kind = "fp16" if word in ("float16", "half") else "bf16"
        switch = _switch(script, call, positional=legacy and call in autocasts)
        tests = _conditions(script, switch) if switch is not None else []
        asked = [test for test in tests if not isinstance(test, ast.Constant)]
        further = [test for test in asked if not _asks_for_gpu(script, test)]
        if len(further) < len(asked):
            cpu_kind = "no"
        if enabled or not further:
            continue
        given = [from_caller(script, test) for test in further]
        known = [one for one in given if one is not None]
        if len(known) < len(given) or not all(map(script.is_uniform, further)):
            return kind, None
        texts = [(one, script.tree.segment(one)) for one in known]
        enabled = " and ".join(f"({t})" if isinstance(one, ast.BoolOp | ast.IfExp) else t for one, t in texts)
        names = frozenset(name for one in known for name in names_in(one))
    alike = kind == cpu_kind
    value = f'"{kind}"' if alike else f'"{kind}" if torch.cuda.is_available() else "{cpu_kind}"'
    if enabled:
        value = f'{value} if {enabled} else "no"' if alike else f'({value}) if {enabled} else "no"'
        if cpu_kind == "no":
            value = f'"{kind}" if {enabled} and torch.cuda.is_available() else "no"'
    return value, names
