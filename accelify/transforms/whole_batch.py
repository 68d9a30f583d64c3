"""Losses that compare the samples of a batch with each other: each process sees its own samples only.

scores = images @ texts.t()
distances = torch.cdist(features, features)
distances = ((a.view(n, d, 1) - b.t()) ** 2).sum(1)
distances.addmm_(1, -2, features, features.t())
d = a.unsqueeze(0) - a.unsqueeze(1)
density = log_density(z.view(n, 1, d), mean.view(1, n, d))
target = q ** 2 / q.sum(0)
loss = criterion(fake - real.mean(0, keepdim=True), valid)
loss = loss + torch.log(torch.sum(torch.exp(scores)))
scores[:, j] = (x * centres[j]).sum(1)
loss = F.cross_entropy(scores, torch.arange(len(x)))    (in the forward of a model, too)
loss = -torch.diag(F.log_softmax(a @ b.t(), dim=1)).mean()
own = scores[range(n), range(n)]
loss = (margin + scores - scores.diag().view(-1, 1)).clamp(min=0).sum()
loss = losses.TripletMarginLoss()(features, target)     (of pytorch_metric_learning)
loss = F.cross_entropy(scores, y, reduction="none").topk(k, largest=False)[0].mean()
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.devices.filled_matrices import runs_in_forward
from accelify.analysis.devices.made_of_numbers import is_made_of_numbers
from accelify.analysis.losses.pitted_samples import PittedSamples
from accelify.analysis.scopes import Scope
from accelify.analysis.statements.given_none import is_ruled_out
from accelify.analysis.syntax import dotted, names_in, target_names
from accelify.analysis.trained import is_in_model
from accelify.analysis.values import Class, Thing
from accelify.transforms.base import Change, Context, Rule, short
from accelify.transforms.compared_samples import compares_by_size, compares_samples

WHOLE_BATCH = Rule(
    "ACC408", "whole-batch-loss", "A loss compares the samples of a batch with each other.", effort=15
)
_MARK = "gather the samples of all processes first if the loss is meant over the whole batch"


def transform(context: Context) -> Iterator[Change]:
    """Yield a finding for each comparison of samples in what makes a loss."""
    if not context.plan.shares_training_data:
        return
    tree, pitted = context.tree, PittedSamples(context.script)
    for node in tree.nodes(ast.BinOp, ast.Call):
        if not _may_compare(node):
            continue
        scope = context.script.scope_of(node)
        if isinstance(node, ast.Call) and pitted.pits(scope, node):
            if not (
                _sees_all(context, node) or _serves_evaluation(context, scope) or _is_evaluated(context, node)
            ):
                yield context.todo(WHOLE_BATCH, node, _message(context, node), _MARK)
            continue
        filled = isinstance(node, ast.Call) and compares_by_size(context, scope, node)
        if not filled and not compares_samples(context, scope, node):
            continue
        if (
            (_has_parameters(context, scope) and (not filled or runs_in_forward(scope)))
            or _is_of_weights(scope, node)
            or _sees_all(context, node)
            or (not filled and is_made_of_numbers(context.script, scope, node))
            or _serves_evaluation(context, scope)
            or is_ruled_out(context.script, node, scope)
            or not (scope.of_type(ast.Return) or any(map(context.script.trains, scope.calls)))
        ):
            continue
        yield context.todo(WHOLE_BATCH, node, _message(context, node), _MARK)
    yield from _in_other_modules(context, pitted)


def _message(context: Context, node: ast.AST) -> str:
    index = context.tree.parent(node)
    if isinstance(index, ast.Tuple) and isinstance(whole := context.tree.parent(index), ast.Subscript):
        node = whole  # `scores[range(n), range(n)]`
    text = short(context.tree.segment(node))
    return f"`{text}` compares the samples of a batch; a process sees its own only"


def _in_other_modules(context: Context, pitted: PittedSamples) -> Iterator[Change]:
    """Criteria of modules that are not converted with the script, where they are called to train."""
    script, known = context.script, dict[Scope, str]()
    making = _making_losses(context)
    for call in script.calls():
        if not script.callees(call) and not script.is_a(call.func, v.CRITERION):
            continue
        if script.scope_of(call) not in making or _sees_all(context, call):
            continue
        if any(
            script.is_a(a, v.LOADER, v.DATASET) for a in [*call.args, *[kw.value for kw in call.keywords]]
        ):
            continue  # it goes through data of its own: no loss of this batch
        held = script.things(call.func, v.CRITERION, v.MODEL)
        ruled_out = {_forward(t) for t in held if _is_ruled_out(context, call, t)}
        forwards = {f for t in held if t.kind == v.CRITERION and (f := _forward(t)) is not None}
        for callee in (*script.callees(call), *forwards):
            if callee in ruled_out:
                continue
            where = _place(context, callee, known)
            if not where and not _is_evaluated(context, call):
                where = _told(context, pitted.within(callee))
            if where:
                message = (
                    f"`{short(context.tree.segment(call.func))}` compares the samples of a batch ({where}); a process "
                    "sees its own only"
                )
                yield context.todo(WHOLE_BATCH, call, message, _MARK)
                break


def _told(context: Context, found: tuple[Scope, ast.expr] | None) -> str:
    """How it is said where in another module something stands; "" for nothing."""
    if found is None:
        return ""
    module = context.script.interpreter.module_of(found[0])
    return f"{module.path.name if module.path is not None else 'another module'}, line {found[1].lineno}"


def _making_losses(context: Context) -> set[Scope]:
    """The functions that train, and those of the script that they call, but for what evaluates and for models."""
    script = context.script
    found = set(script.training_scopes)
    queue = list(found)
    while queue:
        for call in queue.pop().calls:
            for callee in script.callees(call) - found:
                if script.interpreter.module_of(callee) in script.modules and not (
                    _evaluates(context, callee) or _has_parameters(context, callee)
                ):
                    found.add(callee)
                    queue.append(callee)
    return found


def _is_ruled_out(context: Context, call: ast.Call, criterion: Thing) -> bool:
    """Whether a call stands under `isinstance(criterion, Other)`, so that it is another criterion that runs."""
    inner: ast.AST = call
    for ancestor in context.tree.ancestors(call):
        test = ancestor.test if isinstance(ancestor, ast.If) and inner in ancestor.body else None
        inner = ancestor
        if isinstance(test, ast.Call) and isinstance(test.func, ast.Name) and test.func.id == "isinstance":
            asked, kind = (*test.args, None, None)[:2]
            if asked is None or not isinstance(kind, (ast.Name, ast.Attribute)) or criterion.cls is None:
                continue
            name = (dotted(kind) or "").rpartition(".")[2]
            if ast.dump(asked) == ast.dump(call.func):
                return name not in {one.name for one in criterion.cls.ancestry()}
    return False


def _forward(criterion: Thing) -> Scope | None:
    """What a criterion of a class of the program runs."""
    found = criterion.cls.method("forward") if criterion.cls is not None else None
    return found[1] if found is not None else None


def _place(context: Context, scope: Scope, known: dict[Scope, str], depth: int = 3) -> str:
    """Where a function of another module, or one that it calls, compares samples; "" where none does."""
    if scope not in known:
        known[scope] = ""
        script = context.script
        module = script.interpreter.module_of(scope)
        learned = _has_parameters(context, scope)
        if module in script.modules or (learned and runs_in_forward(scope)):
            return ""
        for node in scope.nodes:
            if (isinstance(node, ast.Call) and compares_by_size(context, scope, node)) or (
                isinstance(node, (ast.BinOp, ast.Call))
                and not learned
                and compares_samples(context, scope, node)
                and not _is_of_weights(scope, node)
                and not is_made_of_numbers(script, scope, node)
            ):
                known[scope] = _told(context, (scope, node))
                break
            if isinstance(node, ast.Call) and depth:
                # Of what a model's own loss calls, its methods alone.
                inner = [
                    _place(context, c, known, depth - 1)
                    for c in script.callees(node)
                    if not learned or _has_parameters(context, c)
                ]
                if any(inner):
                    known[scope] = next(filter(None, inner))
                    break
    return known[scope]


def _serves_evaluation(context: Context, scope: Scope, depth: int = 3) -> bool:
    """Whether everything that calls a function evaluates: goes through data of its own without training on it."""
    script = context.script
    if scope in script.training_scopes or not script.callers(scope) or not depth:
        return False
    callers = [(one, call) for call in script.callers(scope) if (one := script.scope_of(call)) is not scope]
    return all(
        _evaluates(context, one, call) or _serves_evaluation(context, one, depth - 1) for one, call in callers
    )


def _evaluates(context: Context, scope: Scope, within: ast.Call | None = None) -> bool:
    """Whether a function that does not train goes through a loader, by itself or by what it calls, or says that it
    evaluates; what it says in a `with` holds for a call `within` that alone."""
    script = context.script
    if scope in script.training_scopes:
        return False
    called = {one for node in scope.calls for one in script.callees(node)}
    reading = {script.scope_of(loop) for loop, _ in script.loader_loops}
    if reading & {scope, *called}:
        return True
    marks = getattr(scope.node, "decorator_list", [])
    said = {script.qualname(n.func if isinstance(n, ast.Call) else n) for n in marks}
    part = within is not None and not script.is_without_gradients(within)
    return bool(said & set(k.NO_GRAD)) or any(
        isinstance(node, ast.Call)
        and (
            (
                script.qualname(node.func) in k.NO_GRAD
                and not (part and isinstance(context.tree.parent(node), ast.withitem))
            )
            or (isinstance(node.func, ast.Attribute) and node.func.attr == "eval" and not node.args)
        )
        for node in scope.nodes
    )


def _is_evaluated(context: Context, node: ast.AST) -> bool:
    """Whether a node stands in a loop, or in a function, that goes through data without training on it."""
    loops = context.script.enclosing_loops(node)
    return any(e.loop in loops for e in context.plan.evaluations) or _evaluates(
        context, context.script.scope_of(node)
    )


def _sees_all(context: Context, node: ast.AST) -> bool:
    """Whether a node stands in a loop over data that every process goes through whole."""
    loops = context.script.enclosing_loops(node)
    read = [loaders for loop, loaders in context.script.loader_loops if loop in loops]
    return bool(read) and not any(loaders & context.plan.prepared for loaders in read)


def _is_of_weights(scope: Scope, node: ast.AST) -> bool:
    """Whether a comparison is one of weights with each other, which a loop over a model's parameters goes through."""
    names = names_in(node)
    return any(
        isinstance(loop, ast.For)
        and isinstance(loop.iter, ast.Call)
        and isinstance(loop.iter.func, ast.Attribute)
        and loop.iter.func.attr in ("parameters", "named_parameters", "modules", "children")
        and names & set(target_names(loop.target))
        for loop in scope.nodes
    )


def _has_parameters(context: Context, scope: Scope) -> bool:
    """Whether a scope is a method of a module that learns something: a model or a part of one, and no criterion."""
    owner = scope.owner_class
    if owner is None or not is_in_model(context.script, scope):
        return False
    cls = context.script.interpreter.things.get((owner, "class"))
    for one in cls.ancestry() if isinstance(cls, Class) else ():
        for method in one.scope.children.values():
            for node in method.nodes:
                if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                    if isinstance(node.targets[0], ast.Attribute) and _learns(
                        context, one, method, node.value
                    ):
                        return True
    return False


def _learns(context: Context, cls: Class, method: Scope, made: ast.Call) -> bool:
    attribute = made.func.attr if isinstance(made.func, ast.Attribute) else getattr(made.func, "id", "")
    held = context.script.interpreter.evaluate(cls.module, method, made)
    return attribute == "Parameter" or any(isinstance(one, Thing) and one.kind == v.MODEL for one in held)


def _may_compare(node: ast.BinOp | ast.Call) -> bool:
    return isinstance(node, ast.Call) or isinstance(node.op, (ast.Sub, ast.MatMult, ast.Div))
