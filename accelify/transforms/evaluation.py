"""Evaluation: metrics over all processes, without the samples that padding repeats.

output = model(data)    ->  output = model(data)
                            output, target = accelerator.gather_for_metrics((output, target))
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.data.indirect_loaders import batches_in
from accelify.analysis.data.loaders import is_shardable
from accelify.analysis.metrics.counts import made_once, size_of
from accelify.analysis.metrics.evaluation_loop import NO_MODEL, EvaluationLoop
from accelify.analysis.scopes import Scope, in_order
from accelify.analysis.syntax import call_argument, dotted, names_in, target_names, text_of, walk
from accelify.analysis.values import Entity
from accelify.findings import Severity
from accelify.transforms.base import Change, Context, Rule
from accelify.writer import edits as verbs
from accelify.writer.edits import Edit, InsertAfter, InsertBefore

GATHER = Rule(
    "ACC301",
    "Metrics would cover one process's share of the data only.",
    Severity.ERROR,
    effort=5,
    done="computed metrics over the samples of all processes",
)
REPEATED = Rule("ACC303", "Every process evaluates the whole data set.", Severity.INFO, effort=10)

# Why a function is run by all processes that puts its figures together itself.
_OF_ALL = ("it asks the Accelerator", "it communicates")
# Names by which a function of another module is known to evaluate.
_EVALUATING = frozenset({"no_grad", "inference_mode", "eval"})


def transform(context: Context) -> Iterator[Change]:
    """Yield gather_for_metrics for evaluation loops over sharded loaders, and a note for the others."""
    for evaluation in context.plan.evaluations:
        if context.plan.known.reduces or context.plan.on_main_only(evaluation.loop):
            continue  # its metrics are reduced by the script, or one process sees all of the data
        if not evaluation.loaders & context.plan.prepared:
            known = any(is_shardable(loader) for loader in evaluation.loaders)
            needless = evaluation.only_looks or context.is_guarded(evaluation.loop)
            if known and evaluation.problem not in (None, NO_MODEL) and not needless:
                yield context.change(
                    REPEATED,
                    evaluation.loop.iter,
                    f"every process evaluates all of this data, so that the metrics stay right ({evaluation.problem})",
                    severity=Severity.INFO,
                )
            continue
        if evaluation.problem is not None and (
            evaluation.only_looks or _is_no_evaluation(context, evaluation)
        ):
            continue
        if evaluation.problem is not None:
            context.ungathered.append(evaluation)
            continue
        yield from _gather(context, evaluation)
    yield from _repeated_in_other_modules(context)


def _repeated_in_other_modules(context: Context) -> Iterator[Change]:
    """Functions that are not converted and evaluate a model over data that they load: each is reported once."""
    script, plan = context.script, context.plan
    done: set[Scope] = set()
    for call in script.calls():
        for callee in in_order(script.callees(call) - done):
            if script.interpreter.module_of(callee) in script.modules:
                done.add(callee)
                continue
            if not _evaluates(context, callee) and not _measures(context, call, callee):
                continue
            if context.is_settled(call):
                continue
            effects = context.effects.of(callee)
            runs = effects.calls_model or bool(effects.models)
            if not runs or callee in script.backward_elsewhere or effects.tied in _OF_ALL:
                continue
            given = [*call.args, *[kw.value for kw in call.keywords]]
            if any(t.link("loader") & plan.prepared for a in given for t in batches_in(script.values(a))):
                continue  # it works on what this process sees, as an attack on a batch does
            models = [
                a for a in given if isinstance(a, (ast.Name, ast.Attribute)) and _leads_to_model(context, a)
            ]
            if models and not any(plan.is_prepared(a, v.LOADER) for a in given):
                done.add(callee)
                name = callee.name
                message = (
                    f"every process evaluates all that `{name}` goes through, so that its figures stay right"
                )
                yield context.change(REPEATED, call, message, severity=Severity.INFO)


def _leads_to_model(context: Context, given: ast.expr) -> bool:
    """Whether an argument is a prepared model, or an object that keeps one."""
    prepared = context.plan.prepared
    return context.plan.is_prepared(given, v.MODEL) or any(
        isinstance(contained, Entity) and contained.kind == v.MODEL and contained in prepared
        for one in context.script.entities(given, v.INSTANCE)
        for cls in (one.cls.ancestry() if one.cls is not None else ())
        for values in cls.attributes.values()
        for contained in values
    )


def _evaluates(context: Context, scope: Scope, depth: int = 2) -> bool:
    """Whether a function, or one that it passes the model on to, runs it on the items of its loop, without gradients
    or with the model in evaluation mode."""
    if not isinstance(scope.node, ast.FunctionDef):
        return False
    if any(isinstance(n, ast.For) and _runs_there(context, scope, n) for n in scope.nodes):
        inside = scope.of_type(ast.Name, ast.Attribute)
        marks = [*inside, *(n for d in scope.node.decorator_list for n in walk(d))]
        if any((getattr(n, "attr", "") or getattr(n, "id", "")) in _EVALUATING for n in marks):
            return True
    models = context.effects.of(scope).models if depth else set()
    return any(
        _evaluates(context, inner, depth - 1)
        for call in (scope.nodes if models else ())
        if isinstance(call, ast.Call)
        and any(
            isinstance(a, ast.Name) and a.id in models
            for a in [*call.args, *[kw.value for kw in call.keywords]]
        )
        for inner in context.script.callees(call) - {scope}
    )


def _runs_there(context: Context, scope: Scope, loop: ast.For) -> bool:
    """Whether a loop reads a model that is a parameter of its function, or that is found in another place."""
    names = set(context.effects.of(scope).models)
    if not names:
        return True
    for node in scope.nodes:
        if isinstance(node, ast.Assign) and names_in(node.value) & names:
            names |= {name for target in node.targets for name in target_names(target)}
    return any(names_in(stmt) & names for stmt in loop.body)


def _measures(context: Context, call: ast.Call, callee: Scope) -> bool:
    """Whether a function iterates over a loader that is its argument and returns what it computes.

    The model is in evaluation mode already there: where the function sets that, it does more than evaluate.
    """
    results = [n for n in callee.of_type(ast.Return) if n.value is not None]
    if not results or any(getattr(n, "attr", "") == "train" for n in callee.nodes):
        return False
    return any(context.script.entities(a, v.LOADER) for a in context.plan.elsewhere.gone_through(call))


def left(context: Context) -> Iterator[Change]:
    """Yield what a person has to do for the loops that cannot be gathered. Run when their totals are reduced."""
    for evaluation in context.ungathered:
        if not context.leaves_own(evaluation.loop):
            continue
        yield context.todo(
            GATHER,
            evaluation.loop,
            f"this loop sees one process's share of the data and cannot be gathered by itself: {evaluation.problem}",
            "gather what the metrics need: accelerator.gather_for_metrics((outputs, targets))",
        )


def _is_no_evaluation(context: Context, evaluation: EvaluationLoop) -> bool:
    """Whether a loop runs no model and leaves nothing to gather: it counts, or walks over what was collected before."""
    if evaluation.problem != NO_MODEL:
        return False
    loop = evaluation.loop
    if not any(context.script.is_a(n, v.LOADER) for n in walk(loop.iter) if isinstance(n, ast.expr)):
        return True
    # What it adds up is reduced after it, or reported there.
    return all(isinstance(stmt, ast.AugAssign) and isinstance(stmt.target, ast.Name) for stmt in loop.body)


def _gather(context: Context, evaluation: EvaluationLoop) -> Iterator[Change]:
    tree = context.tree
    accelerator = context.accelerator(evaluation.loop)
    if accelerator is None:
        yield context.todo(
            GATHER, evaluation.loop, "this loop sees one process's share of the data",
            "gather what the metrics need: accelerator.gather_for_metrics((outputs, targets))",
        )  # fmt: skip
        return
    names, swaps = _without_sizes(context, evaluation)
    joined = ", ".join(names)
    line = f"{joined} = {accelerator}.gather_for_metrics({joined if len(names) == 1 else f'({joined})'})"
    edits: list[Edit] = []
    sizes = _sizes(evaluation, names)
    if evaluation.picked.is_needed:
        edits += _picked(context, evaluation, names, sizes, accelerator)
    elif evaluation.after is not None and names:
        edits.append(InsertAfter(evaluation.after, (line, *sizes)))
        edits += _counted_samples(context, evaluation, names)
    for call in evaluation.inline:
        assert evaluation.before is not None
        scope = context.script.scope_of(call)
        free = [n for n in ("output", "outputs", "predictions") if scope.resolve(n) is None]
        if names and free and call.lineno == call.end_lineno and not _is_move(call):
            # One collective for all: the outputs get a separate name.
            begin = f"{free[0]}, {joined} = {accelerator}.gather_for_metrics(("
            edits.append(verbs.insert_before(evaluation.before, begin, call, f", {joined}))"))
            edits.append(verbs.replace(call, free[0]))
            continue
        edits.append(verbs.replace(call, f"{accelerator}.gather_for_metrics(", call, ")", order=10))
        if names:
            edits.append(InsertBefore(evaluation.before, (line,)))
    edits += swaps
    if edits:
        message = "the metrics of this loop would cover one process's share of the data"
        if evaluation.loses_batches:
            message += "; of a loader with drop_last=True, up to N-1 whole batches of a pass are left out"
        change = context.change(GATHER, evaluation.loop.iter, message, edits, core=True)
        reads = [tree.line_of(read) for read in evaluation.picked.nodes]
        if reads:
            # What is read of the gathered entries is renamed down to the last of them.
            last = max(change.finding.end_line, *reads)
            change = change._replace(finding=replace(change.finding, end_line=last))
        yield change


def _is_move(call: ast.expr) -> bool:
    """Whether a call is none but to put something on a device."""
    return isinstance(call, ast.Call) and getattr(call.func, "attr", "") in ("to", "cuda")


def _picked(
    context: Context, evaluation: EvaluationLoop, names: list[str], sizes: list[str], accelerator: str
) -> list[Edit]:
    """Gather the entries that the metrics read, and average the loss that the model makes of its batch."""
    picked, edits = evaluation.picked, list[Edit]()
    named = [pick for pick in picked.picks if pick.name and not pick.measured]
    pairs = [(n, n) for n in names] + [(pick.name, pick.text) for pick in named]
    # Accelerate's gathers what is no tensor by itself only.
    rows = [[pair] for pair in pairs] if context.for_accelerate and named else [pairs] if pairs else []
    lines = []
    for row in rows:
        left, right = (", ".join(side) for side in zip(*row, strict=True))
        value = right if len(row) == 1 else f"({right})"
        lines.append(f"{left} = {accelerator}.gather_for_metrics({value})")
    if lines:
        assert evaluation.after is not None
        edits.append(InsertAfter(evaluation.after, (*lines, *sizes)))
    if names:
        edits += _counted_samples(context, evaluation, names)
    for pick in picked.picks:
        for read in pick.reads:
            if pick.name:
                edits.append(verbs.replace(read, pick.name))
                continue
            verb, how = ("reduce", ', reduction="mean"') if pick.number else ("gather_for_metrics", "")
            edits.append(verbs.replace(read, f"{accelerator}.{verb}(", read, f"{how})", order=10))
    return edits


def _counted_samples(context: Context, evaluation: EvaluationLoop, names: list[str]) -> list[Edit]:
    """`for i in range(batch_size)` over samples that were gathered: as many as there are now."""
    tree, edits, made = context.tree, list[Edit](), set(names)
    batch = names_in(evaluation.loop.target)
    own = next((n for n in names if n in batch), names[0])
    assert evaluation.after is not None
    for stmt in (n for s in evaluation.loop.body for n in walk(s)):
        if not isinstance(stmt, (ast.Assign, ast.For)) or not tree.is_after(stmt, evaluation.after):
            continue
        if isinstance(stmt, ast.Assign):
            if names_in(stmt.value) & made:
                made |= {n for t in stmt.targets for n in target_names(t)}
            continue
        counted = stmt.iter
        if not (isinstance(counted, ast.Call) and dotted(counted.func) == "range" and len(counted.args) == 1):
            continue
        samples = any(
            isinstance(n, ast.Subscript)
            and dotted(n.slice) is not None
            and dotted(n.slice) == dotted(stmt.target)
            and names_in(n.value) & made
            for s in stmt.body
            for n in walk(s)
        )
        if samples and _is_batch_size(context, evaluation, counted.args[0]):
            edits.append(verbs.replace(counted.args[0], f"{own}.size(0)"))
    return edits


def _is_batch_size(context: Context, evaluation: EvaluationLoop, bound: ast.expr) -> bool:
    """Whether a number is the one that the loader's batches were configured with."""
    if not isinstance(bound, (ast.Name, ast.Attribute, ast.Constant)):
        return False
    if k.BATCH_SIZE_NAME.search((dotted(bound) or "").rsplit(".", 1)[-1]):
        return not any(dotted(bound) == name for name, _ in evaluation.sizes)
    given = [
        call_argument(loader.site, 1, "batch_size")
        for loader in evaluation.loaders
        if isinstance(loader.site, ast.Call)
    ]
    wanted = _resolved(context, bound)
    return bool(given) and all(g is not None and _resolved(context, g) == wanted for g in given)


def _resolved(context: Context, node: ast.expr) -> str:
    """How a number is written, a name that is assigned once by what it is assigned."""
    made = made_once(context.script, node) if isinstance(node, ast.Name) else None
    return text_of(node if made is None else made)


def _sizes(evaluation: EvaluationLoop, names: list[str]) -> list[str]:
    """Lines that take sizes of the batch again, from one of the gathered tensors."""
    lines = []
    for name, expression in evaluation.sizes:
        measured = str(size_of(expression))
        batch = names_in(evaluation.loop.target)
        own = measured if measured in names else next((n for n in names if n in batch), names[0])
        lines.append(f"{name} = {text_of(expression).replace(measured, own, 1)}")
    return lines


def _without_sizes(context: Context, evaluation: EvaluationLoop) -> tuple[list[str], list[Edit]]:
    """Inputs of which only the size is read need not be gathered: a target has as many rows."""
    tree = context.tree
    names = list(evaluation.gathered)
    if evaluation.after is None:
        return names, []
    batch = names_in(evaluation.loop.target)
    swaps: list[Edit] = []
    for name in evaluation.gathered:
        reads = [
            n
            for stmt in evaluation.loop.body
            for n in walk(stmt)
            if isinstance(n, ast.Name)
            and n.id == name
            and isinstance(n.ctx, ast.Load)
            and tree.is_after(n, evaluation.after)
        ]
        others = [n for n in names if n != name and n in batch]
        if name in batch and others and reads and all(_asks_size(context, n) for n in reads):
            names.remove(name)
            swaps += [verbs.replace(read, others[0]) for read in reads]
    return names, swaps


def _asks_size(context: Context, name: ast.Name) -> bool:
    parent = context.tree.parent(name)
    if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name) and parent.func.id == "len":
        return True
    if not isinstance(parent, ast.Attribute):
        return False
    outer = context.tree.parent(parent)
    if parent.attr == "size" and isinstance(outer, ast.Call):
        if not outer.args:
            outer = context.tree.parent(outer)
            return isinstance(outer, ast.Subscript) and text_of(outer.slice) == "0"
        return len(outer.args) == 1 and text_of(outer.args[0]) == "0"
    return (
        parent.attr == "shape"
        and isinstance(outer, ast.Subscript)
        and isinstance(outer.slice, ast.Constant)
        and outer.slice.value == 0
    )
