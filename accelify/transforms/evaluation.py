"""Evaluation: metrics over all processes, without the duplicates of padding.

output = model(data)    ->  output = model(data)
                            output, target = accelerator.gather_for_metrics((output, target))
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify import edits as verbs
from accelify.analysis.evaluation import EvaluationLoop, size_of
from accelify.analysis.syntax import walk
from accelify.edits import Edit, InsertAfter, InsertBefore
from accelify.findings import Severity
from accelify.transforms.base import Change, Context, Rule

GATHER = Rule(
    "ACC301",
    "gather-metrics",
    "Metrics would cover one process's share of the data only.",
    Severity.ERROR,
    effort=5,
)
REPEATED = Rule(
    "ACC303", "evaluation-repeated", "Every process evaluates the whole data set.", Severity.INFO, effort=10
)


def transform(context: Context) -> Iterator[Change]:
    """Yield gather_for_metrics for evaluation loops over sharded loaders, and a note for the others."""
    for evaluation in context.plan.evaluations:
        if context.plan.known.reduces or context.plan.on_main_only(evaluation.loop):
            continue  # its metrics are put together by hand, or one process sees all of the data
        if not evaluation.loaders & context.plan.prepared:
            if evaluation.problem is not None and not evaluation.only_looks:
                yield context.change(
                    REPEATED,
                    evaluation.loop.iter,
                    f"every process evaluates all of this data, so that the metrics stay right ({evaluation.problem})",
                    severity=Severity.INFO,
                )
            continue
        if evaluation.problem is not None and evaluation.only_looks:
            continue
        if evaluation.problem is not None:
            yield context.todo(
                GATHER,
                evaluation.loop,
                f"it sees one process's share of the data and cannot be gathered by itself: {evaluation.problem}",
                "gather what the metrics need: accelerator.gather_for_metrics((outputs, targets))",
            )
            continue
        yield from _gather(context, evaluation)


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
    sizes = _sizes(context, evaluation, names)
    if evaluation.after is not None and names:
        edits.append(InsertAfter(evaluation.after, (line, *sizes)))
    for call in evaluation.inline:
        assert evaluation.before is not None
        text = tree.segment(call)
        scope = context.script.scope_of(call)
        free = [n for n in ("output", "outputs", "predictions") if scope.resolve(n) is None]
        if names and free and "\n" not in text and ".to(" not in text and ".cuda(" not in text:
            # One collective for all: the outputs get a name of their own.
            line = f"{free[0]}, {joined} = {accelerator}.gather_for_metrics(({text}, {joined}))"
            edits += [InsertBefore(evaluation.before, (line,)), verbs.replace(tree, call, free[0])]
            continue
        edits.append(verbs.insert(tree, tree.start(call), f"{accelerator}.gather_for_metrics(", 10))
        edits.append(verbs.insert(tree, tree.end(call), ")", -10))
        if names:
            edits.append(InsertBefore(evaluation.before, (line,)))
    edits += swaps
    if edits:
        yield context.change(
            GATHER,
            evaluation.loop.iter,
            "the metrics of this loop would cover one process's share of the data",
            edits,
            core=True,
        )


def _sizes(context: Context, evaluation: EvaluationLoop, names: list[str]) -> list[str]:
    """Lines that take sizes of the batch again, from one of the gathered tensors."""
    lines = []
    for name, expression in evaluation.sizes:
        measured = size_of(expression)
        batch = {n.id for n in walk(evaluation.loop.target) if isinstance(n, ast.Name)}
        own = measured if measured in names else next((n for n in names if n in batch), names[0])
        text = context.tree.segment(expression)
        lines.append(
            f"{name} = {text.replace(str(measured), own, 1)}" if measured else f"{name} = {own}.size(0)"
        )
    return lines


def _without_sizes(context: Context, evaluation: EvaluationLoop) -> tuple[list[str], list[Edit]]:
    """Inputs that are only asked for their size need not be gathered: a target has as many rows."""
    tree = context.tree
    names = list(evaluation.gathered)
    if evaluation.after is None:
        return names, []
    end = tree.end(evaluation.after)
    batch = {n.id for n in walk(evaluation.loop.target) if isinstance(n, ast.Name)}
    swaps: list[Edit] = []
    for name in evaluation.gathered:
        reads = [
            n
            for stmt in evaluation.loop.body
            for n in walk(stmt)
            if isinstance(n, ast.Name)
            and n.id == name
            and isinstance(n.ctx, ast.Load)
            and tree.start(n) > end
        ]
        others = [n for n in names if n != name and n in batch]
        if (
            name in batch
            and others
            and reads
            and all(_asks_size(context, n) and not tree.in_fstring(n) for n in reads)
        ):
            names.remove(name)
            swaps += [verbs.replace(tree, read, others[0]) for read in reads]
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
            return isinstance(outer, ast.Subscript) and ast.unparse(outer.slice) == "0"
        return len(outer.args) == 1 and ast.unparse(outer.args[0]) == "0"
    return (
        parent.attr == "shape"
        and isinstance(outer, ast.Subscript)
        and isinstance(outer.slice, ast.Constant)
        and outer.slice.value == 0
    )
