"""Differences between Hugging Face Accelerate and accelify's runtime (`convert --runtime accelerate`).

loss = optimizer.step(closure)    ->  loss = optimizer.optimizer.step(closure)
scheduler.last_epoch              ->  scheduler.scheduler.last_epoch
loss = model.nll(x)               ->  loss = accelerator.unwrap_model(model).nll(x)
accelerator.backward(loss)            accelerator.backward(loss)
                                      for parameter in model.parameters():
                                          if parameter.grad is not None:
                                              parameter.grad = accelerator.reduce(parameter.grad, reduction="mean")
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.losses.reduction_kinds import SUM
from accelify.analysis.scopes import Scope
from accelify.analysis.syntax import call_argument, call_keyword, is_constant
from accelify.analysis.values import Entity
from accelify.findings import Safety, Severity
from accelify.transforms.base import Change, Context, Rule
from accelify.writer import edits as verbs
from accelify.writer.edits import Edit, InsertAfter


def _rule(code: str, name: str, summary: str, effort: int, severity: Severity = Severity.INFO) -> Rule:
    return Rule(code, summary, severity, effort=effort)


LAST_BATCH = _rule("ACC601", "last-batch", "Accelerate fills the last batch of an epoch up.", 5)
ORDER = _rule("ACC602", "order", "Accelerate shuffles in an order of its own.", 0)
SUMMED = _rule("ACC603", "summed-loss", "A summed loss is multiplied by the number of processes.", 0)
SCHEDULE = _rule("ACC604", "batch-schedule", "Accelerate can run ahead of a schedule of batches.", 5)
WINDOW = _rule("ACC605", "accumulation", "Accelerate has no window of this kind.", 0)
METHOD = Rule(
    "ACC606",
    "Accelerate's wrapped model has no methods but forward, and reduces no gradients for them.",
    safety=Safety.REVIEW,
    effort=15,
    done="averaged gradients that Accelerate's wrapper does not",
)
WRAPPER = Rule(
    "ACC607",
    "Accelerate's optimizers and schedulers hide what the wrapped ones have.",
    effort=1,
    done="read the objects inside Accelerate's wrappers",
)
REDUCER = _rule("ACC608", "reducer", "DistributedDataParallel wants every parameter used once.", 15)
DIVIDES = _rule("ACC609", "split-batches", "The processes must divide the batch size.", 2)
LOADER = _rule("ACC610", "loader", "Accelerate makes another loader of this one.", 15, Severity.WARNING)
SHAPES = _rule("ACC611", "gather-shapes", "Accelerate gathers equal shapes only.", 5, Severity.WARNING)
AUTOCAST = _rule("ACC612", "autocast", "Accelerate's models give float32 in autocast too.", 2)
CPU = _rule("ACC613", "cpu", "Processes on the CPU have to be asked for.", 1)

_OPTIMIZER = frozenset(
    "step zero_grad state_dict load_state_dict param_groups state defaults add_param_group train eval "
    "step_was_skipped optimizer".split()
)
_SCHEDULER = frozenset("step get_last_lr get_lr print_lr state_dict load_state_dict scheduler".split())


def transform(context: Context) -> Iterator[Change]:
    """Yield a finding for each difference, with the edits that remove it where there are any."""
    if not context.for_accelerate:
        return
    yield from _launching(context)
    yield from _loaders(context)
    yield from _losses(context)
    yield from _schedules(context)
    yield from _windows(context)
    yield from _methods(context)
    yield from _wrappers(context)
    yield from _reducer(context)
    yield from _gathers(context)
    yield from _autocasts(context)


def _launching(context: Context) -> Iterator[Change]:
    anchor = context.plan.anchor
    place = (anchor.before or anchor.after) if anchor is not None else None
    if place is not None and context.plan.arguments.get("cpu") != "True":
        yield context.change(
            CPU,
            place,
            "without a GPU several processes find each other only with ACCELERATE_USE_CPU=true in their environment",
        )


def _loaders(context: Context) -> Iterator[Change]:
    trained = context.script.training_loaders
    for entity in sorted(context.plan.prepared, key=lambda t: getattr(t.site, "lineno", 0)):
        call = entity.site
        if (
            entity.kind != v.LOADER
            or not isinstance(call, ast.Call)
            or entity.module not in context.script.modules
        ):
            continue
        yield from _made_anew(context, entity, call)
        if context.plan.batch_size == "total":
            size = call_argument(call, 1, "batch_size")
            text = f" ({context.tree.segment(size)})" if size is not None else ""
            yield context.change(
                DIVIDES,
                call,
                f"the number of processes has to divide the batch size{text}, or Accelerate raises",
            )
        if entity not in trained:
            continue  # gather_for_metrics cuts off what was padded, and metrics do not depend on the order
        drops = call_keyword(call, "drop_last")
        if drops is None or is_constant(drops, False):
            yield context.change(
                LAST_BATCH,
                call,
                "where the processes do not divide the last batches of an epoch, Accelerate fills them up with samples "
                "of its beginning, which then count twice",
            )
        shuffles = call_argument(call, 2, "shuffle")
        if (
            shuffles is not None
            and not is_constant(shuffles, False)
            and call_keyword(call, "generator") is None
        ):
            yield context.change(
                ORDER,
                call,
                "several processes shuffle with a generator of Accelerate's: another order than a single process has, "
                "so that single losses cannot be compared",
            )


def _made_anew(context: Context, entity: Entity, call: ast.Call) -> Iterator[Change]:
    if entity.cls is not None and (entity.cls.method("__iter__") or entity.cls.method("__len__")):
        message = (
            f"Accelerate makes a plain DataLoader of it: __iter__ and __len__ of `{entity.cls.name}` are lost"
        )
        yield context.change(LOADER, call, message)
    if call_keyword(call, "batch_sampler") is not None:
        message = "Accelerate needs a `batch_size` of the batch sampler, or DataLoaderConfiguration(even_batches=False)"
        yield context.change(LOADER, call, message)
    dataset = call_argument(call, 0, "dataset")
    for made in context.script.entities(dataset, v.DATASET) if dataset is not None else ():
        if made.cls is not None and any(b.endswith("IterableDataset") for b in made.cls.external_bases()):
            message = "Accelerate iterates it on the main process alone and sends the others their batches"
            yield context.change(LOADER, call, message)


def _losses(context: Context) -> Iterator[Change]:
    if not context.plan.is_sharded(context.script.training_loaders):
        return
    for backward in context.script.backwards:
        if context.plan.reductions.of(backward.loss) == SUM:
            yield context.change(
                SUMMED,
                backward.call,
                "Accelerate averages over processes, so the summed loss is multiplied by their number: the same "
                "update, but for samples that fill a last batch up",
            )


def _schedules(context: Context) -> Iterator[Change]:
    if context.plan.batch_size == "total":
        return
    for call in context.script.calls():
        func = call.func
        if (
            isinstance(func, ast.Attribute)
            and func.attr == "step"
            and context.script.entities(func.value, v.SCHEDULER) & context.plan.prepared
        ):
            yield context.change(
                SCHEDULE,
                call,
                "Accelerate steps it once for each process: where they do not divide the batches of an epoch, the "
                "schedule ends up to N-1 steps early each epoch",
            )


def _windows(context: Context) -> Iterator[Change]:
    window = context.plan.stored_window
    if window is not None:
        yield context.change(
            WINDOW,
            window.test,
            "the window stays counted by hand, which is right: Accelerate's own "
            + ("would hold the scheduler back" if window.flushes else "does not start over with each epoch"),
        )


def _methods(context: Context) -> Iterator[Change]:
    """Where the model is trained only through other methods, no wrapper reduces its gradients: add the reduction."""
    script, tree = context.script, context.tree
    unit = tree.indent_unit()
    for backward in script.backwards:
        names: list[str] = []
        for node in context.trained_methods:
            elsewhere = script.scope_of(node) is not backward.scope or tree.is_before(backward.call, node)
            if elsewhere or _runs_forward(context, script.models_of(node.value), backward.scope):
                continue
            text = tree.segment(node.value)
            if text not in names:
                names.append(text)
        accelerator = context.accelerator(backward.call)
        if not names or accelerator is None:
            continue
        lines = [
            line
            for name in names
            for line in (
                f"for parameter in {name}.parameters():",
                f"{unit}if parameter.grad is not None:",
                f'{unit}{unit}parameter.grad = {accelerator}.reduce(parameter.grad, reduction="mean")',
            )
        ]
        edits: list[Edit] = [InsertAfter(tree.statement(backward.call), tuple(lines))]
        message = f"{', '.join(names)}: trained by a method of its own, which the wrapper does not see"
        yield context.change(METHOD, backward.call, message, edits, core=True)


def _runs_forward(context: Context, models: set[Entity], scope: Scope) -> bool:
    """Whether a function runs the wrapped model itself, whose backward then reduces all gradients."""
    return any(
        context.script.models_of(
            c.func.value if isinstance(c.func, ast.Attribute) and c.func.attr == "forward" else c.func
        )
        & models
        and context.script.scope_of(c) is scope
        for c in context.script.calls()
    )


def _wrappers(context: Context) -> Iterator[Change]:
    tree, script = context.tree, context.script
    for node in tree.nodes(ast.Attribute):
        if context.is_claimed(node) or not isinstance(node.value, (ast.Name, ast.Attribute)):
            continue
        inner = ""
        for kind, known in ((v.OPTIMIZER, _OPTIMIZER), (v.SCHEDULER, _SCHEDULER)):
            if not script.entities(node.value, kind) & context.plan.prepared:
                continue
            parent = tree.parent(node)
            # Its step gives nothing back.
            used = (
                kind == v.OPTIMIZER
                and node.attr == "step"
                and isinstance(parent, ast.Call)
                and not isinstance(tree.parent(parent), ast.Expr)
            )
            if node.attr not in known or used:
                inner = kind
        if not inner or not context.plan.after_prepare(node):
            continue
        edits: list[Edit] = [verbs.replace(node.value, node.value, f".{inner}")]
        yield context.change(
            WRAPPER, node, f"Accelerate's {inner} does not hand `{node.attr}` through", edits
        )


def _reducer(context: Context) -> Iterator[Change]:
    """One word for a script whose steps DistributedDataParallel may refuse, at the first sign of it."""
    script = context.script
    odd = [b.call for b in script.backwards[1:] if any(b.scope is a.scope for a in script.backwards[:1])]
    odd += script.calls_to(["torch.autograd.grad"])
    odd += [
        b.call
        for b in script.backwards
        for kw in b.call.keywords
        if kw.arg in ("retain_graph", "create_graph") and not is_constant(kw.value, False)
    ]
    if odd and any(t.kind == v.MODEL for t in context.plan.prepared):
        first = context.tree.first(odd)
        yield context.change(
            REDUCER,
            first,
            "several backwards of one step, or gradients of gradients: DistributedDataParallel raises where a "
            "parameter takes no part in a loss, or a buffer changes between two forwards",
        )


def _gathers(context: Context) -> Iterator[Change]:
    for evaluation in context.plan.evaluations:
        if evaluation.problem is not None or not evaluation.loaders & context.plan.prepared:
            continue
        sites = [t.site for t in evaluation.loaders if isinstance(t.site, ast.Call)]
        if any(call_keyword(site, "collate_fn") is not None for site in sites):
            message = "batches of a collate_fn can have other shapes on other processes, and Accelerate then gathers "
            yield context.change(SHAPES, evaluation.loop.iter, f"{message}garbage or hangs")


def _autocasts(context: Context) -> Iterator[Change]:
    if not context.script.understands_precision:
        return
    for call in context.script.calls_to(k.AUTOCAST_CLASSES):
        if isinstance(context.tree.parent(call), ast.withitem):
            message = "inside of it too a prepared model's output is float32 under Accelerate"
            yield context.change(AUTOCAST, call, message)
