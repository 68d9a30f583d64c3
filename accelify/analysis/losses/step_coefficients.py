"""What of a loss goes by a count of steps: `fit + min(1, step / 1000) * divergence`, `fit + (divergence - c).abs()`.

Of N processes each makes 1/N of the steps of an epoch, so that such a part of the loss comes in N times later. What is
made from epochs, or from the share of an epoch that is done (steps over the length of the loader), does not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set
from typing import NamedTuple

from accelify.analysis.interpretation.torch_calls import TENSOR_KINDS
from accelify.analysis.schedules.counted_steps import CountedSteps, Trace
from accelify.analysis.scopes import Scope, in_order
from accelify.analysis.script import ScriptModel, is_in_model
from accelify.analysis.syntax import dotted, walk
from accelify.analysis.training_loops import Loop
from accelify.analysis.values import Entity

_DEEPEST = 6
_SCALING = (ast.Mult, ast.Div)
_ORDER = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
# What gives a tensor whose gradient is another where something is added before: `(divergence - capacity).abs()`.
_BENDING = frozenset(
    "abs absolute clamp clamp_min clamp_max clip exp log log1p max maximum min minimum pow relu sigmoid softplus sqrt "
    "square tanh".split()
)
# What leaves a tensor what it is, or puts its elements together.
_PASSING = frozenset("contiguous double float mean reshape squeeze sum to unsqueeze view".split())


class StepCoefficient(NamedTuple):
    """What scales or bends a part of a loss, or the test on which it depends: `node`, counted by `counter`.

    `of_model` is whether a model computes with it, which it is set in.
    """

    node: ast.expr
    counter: str
    of_model: bool = False


def step_coefficients(script: ScriptModel, loop: Loop) -> list[StepCoefficient]:
    """The factors and tests in the losses of a loop over batches that follow a count of its steps."""
    found = [
        one for backward in script.backwards for one in _parts(script, loop, backward.loss, backward.scope)
    ]
    if not found:
        return []
    steps = CountedSteps(script, loop)
    if steps.counted_by_length(script.enclosing_loops(loop)):
        return []
    counted: dict[ast.expr, StepCoefficient] = {}
    for node, scope in found:
        trace = Trace(steps)
        if scope in steps.reached:
            trace.follow(node, scope)
        if trace.counters and not trace.by_length:
            counted.setdefault(node, StepCoefficient(node, min(trace.counters)))
    return list(counted.values())


def model_coefficients(script: ScriptModel, loop: Loop, models: Set[Entity]) -> list[StepCoefficient]:
    """What a loop over batches sets in its models by a count of steps, and what they compute with in their methods:

    net.beta = min(1, step / 1000)    (and `return fit + self.beta * divergence` in the model)
    """
    setting = {
        stmt: target
        for stmt in script.tree.nodes(ast.Assign)
        if not isinstance(stmt.value, ast.Constant)
        for target in stmt.targets[:1]
        if isinstance(target, ast.Attribute) and isinstance(target.value, (ast.Name, ast.Attribute))
        if any(_reckons_with(model, target.attr) for model in script.models_of(target.value) & models)
    }
    if not setting:
        return []
    steps = CountedSteps(script, loop)
    if steps.counted_by_length(script.enclosing_loops(loop)):
        return []
    found: list[StepCoefficient] = []
    for scope in steps.reached:
        for stmt in steps.nodes(scope):
            if stmt in setting and isinstance(stmt, ast.Assign) and not is_in_model(script, scope):
                trace = Trace(steps)
                trace.follow(stmt.value, scope)
                if trace.counters and not trace.by_length:
                    found.append(StepCoefficient(stmt.value, min(trace.counters), True))
    return found


def _reckons_with(model: Entity, attribute: str) -> bool:
    """Whether a model's class has methods that compute with an attribute, or ask how far it went."""
    for cls in model.cls.ancestry() if model.cls is not None else ():
        tree = cls.module.tree
        for method in cls.scope.children.values():
            for node in method.nodes:
                if (
                    isinstance(node, ast.Attribute)
                    and node.attr == attribute
                    and isinstance(node.ctx, ast.Load)
                ):
                    around = tree.parent(node)
                    if isinstance(around, ast.BinOp) and not isinstance(around.op, ast.Mod):
                        return True
                    if isinstance(around, ast.Compare) and isinstance(around.ops[0], _ORDER):
                        return True
    return False


def _parts(script: ScriptModel, loop: Loop, loss: ast.expr, scope: Scope) -> Iterator[tuple[ast.expr, Scope]]:
    """The numbers that change the gradients of parts of a loss, and the tests that decide about parts of it.

    Such a number is a factor, or is added, raised to or compared with where a curve follows, as in `(x - c).abs()`.
    """
    queue: list[tuple[ast.expr, Scope, int, bool]] = [(loss, scope, 0, False)]
    seen: set[tuple[ast.AST, bool]] = set()
    for node, place, far, bent in queue:  # which grows
        if (node, bent) in seen or far > _DEEPEST:
            continue
        seen.add((node, bent))
        if isinstance(node, ast.BinOp):
            power = isinstance(node.op, ast.Pow)
            for side in (node.left, node.right):
                if (bent or power or isinstance(node.op, _SCALING)) and _is_number(script, side):
                    yield side, place
                else:
                    queue.append((side, place, far, bent or power))
        elif isinstance(node, ast.UnaryOp):
            queue.append((node.operand, place, far, bent))
        elif isinstance(node, ast.IfExp):
            yield from ((node.test, place),) if _compares(node.test) else ()
            queue += [(node.body, place, far, bent), (node.orelse, place, far, bent)]
        elif isinstance(node, ast.Name):
            for stmt in _given(script, place, node.id):
                if isinstance(stmt, ast.AugAssign) and isinstance(stmt.op, _SCALING):
                    yield from ((stmt.value, place),) if _is_number(script, stmt.value) else ()
                    continue
                queue.append((stmt.value, place, far + 1, bent))
                for ancestor in script.tree.ancestors(stmt):
                    if ancestor is loop or ancestor is place.node:
                        break
                    if isinstance(ancestor, ast.If) and _compares(ancestor.test):
                        yield ancestor.test, place
        elif isinstance(node, ast.Call) and not script.models_run(node):
            of_program = False
            for callee in in_order(script.callees(node)):
                of_program = True
                if script.interpreter.module_of(callee) in script.modules:
                    values = [n.value for n in callee.of_type(ast.Return) if n.value is not None]
                    queue += [(value, callee, far + 1, bent) for value in values]
            for given, bends in () if of_program else _operands(node):
                if bends and _is_number(script, given):
                    yield given, place
                else:
                    queue.append((given, place, far, bent or bends))


def _operands(call: ast.Call) -> Iterator[tuple[ast.expr, bool]]:
    """What a call of torch's works on, as `x` in `x.abs()` and `torch.mean(x)`; each with whether a curve is made."""
    last = str(dotted(call.func) or getattr(call.func, "attr", "")).rpartition(".")[2]
    if last in _BENDING or last in _PASSING:
        given = [*call.args, *[kw.value for kw in call.keywords]]
        if isinstance(call.func, ast.Attribute):
            yield call.func.value, last in _BENDING
        yield from ((value, last in _BENDING) for value in given)


def _given(script: ScriptModel, scope: Scope, name: str) -> list[ast.Assign | ast.AugAssign]:
    """The assignments of a name in its function."""
    if scope.resolve(name) is not scope:
        return []
    return [
        stmt
        for top in scope.node.body
        for stmt in script.tree.assigned_in(top, name)
        if isinstance(stmt, (ast.Assign, ast.AugAssign))
    ]


def _is_number(script: ScriptModel, node: ast.expr) -> bool:
    """Whether a factor is no tensor as far as can be seen, and no constant."""
    if isinstance(node, ast.Constant):
        return False
    for part in walk(node):
        if isinstance(part, ast.Call) and script.models_run(part):
            return False
        if isinstance(part, (ast.Name, ast.Attribute, ast.Call)) and script.is_a(part, *TENSOR_KINDS):
            return False
    return True


def _compares(test: ast.expr) -> bool:
    """Whether a test asks whether something is reached; `step % 16 == 0` is a rhythm, and stays one."""
    return any(
        isinstance(n, ast.Compare) and all(isinstance(op, _ORDER) for op in n.ops) for n in walk(test)
    ) and (not any(isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mod) for n in walk(test)))
