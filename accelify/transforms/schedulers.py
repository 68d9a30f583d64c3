"""Learning rate schedules: the original's, for any number of processes.

scheduler.step(loss)    ->  scheduler.step(accelerator.reduce(loss, reduction="mean"))

Schedulers that step once a batch are prepared, and then advance by as many batches as all processes took together.
Those that step once an epoch are left as they are: an epoch is an epoch on any number of processes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.losses.step_coefficients import model_coefficients, step_coefficients
from accelify.analysis.metrics.counts import made_once
from accelify.analysis.models.forward_counts import forward_counts
from accelify.analysis.schedules.scheduler_counts import begun_at_steps, scheduler_counts
from accelify.analysis.schedules.step_rates import StepRate, step_rates
from accelify.analysis.schedules.steps import ends_by_steps
from accelify.analysis.syntax import names_in
from accelify.analysis.values import Class
from accelify.findings import Safety, Severity
from accelify.transforms.base import Change, Context, Rule, short

PLATEAU = Rule(
    "ACC403",
    "plateau-on-local-metric",
    "A metric of one process's own steers the learning rate.",
    Severity.WARNING,
    effort=5,
)


CUSTOM = Rule(
    "ACC407",
    "custom-scheduler",
    "A learning rate that prepare cannot take care of, or a part of the loss, follows a count of steps.",
    effort=5,
)


_HOW = "count the batches of every process here (accelerator.num_processes for each step)"


def transform(context: Context) -> Iterator[Change]:
    """Yield a warning for each scheduler steered by a number that differs between processes."""
    script = context.script
    if not context.plan.shares_training_data:
        return
    own: set[ast.Call] = set()
    for call in script.calls():
        func = call.func
        if not (isinstance(func, ast.Attribute) and func.attr == "step"):
            continue
        if (
            _is_custom(context, func.value)
            and context.plan.batch_size != "total"
            and context.plan.steps_per_batch(call)
            and not ends_by_steps(script, call)
            and not context.plan.of_fixed_steps.intersection(script.enclosing_loops(call))
            and not _gets_the_epoch(context, call)
        ):
            own.add(call)
            if _counts_local_steps(context, func.value):
                continue
            yield context.todo(
                CUSTOM,
                call,
                f"`{context.tree.segment(func.value)}` is no scheduler of torch: N processes advance it N times slower",
                "step it once for each batch of every process (accelerator.num_processes times)",
            )
        if not call.args:
            continue
        plateau = [
            t
            for t in script.entities(func.value, v.SCHEDULER)
            if (t.qualname or "").endswith("ReduceLROnPlateau")
        ]
        if plateau and not script.is_uniform(call.args[0]) and not _is_alike(context, call.args[0]):
            text = context.tree.segment(call.args[0])
            message = f"`{text}` can differ between processes, and so their learning rates"
            context.reported.add(call)
            edits = context.agreed(call.args[0])
            if edits:
                yield context.change(PLATEAU, call, message, edits, safety=Safety.REVIEW)
                continue
            yield context.todo(
                PLATEAU,
                call,
                message,
                'give every process the same number: accelerator.reduce(value, reduction="mean")'
                + (" of a tensor" if context.for_accelerate else ""),
            )
    yield from _own_rates(context, own)


def _gets_the_epoch(context: Context, call: ast.Call) -> bool:
    """Whether a step gets nothing but the number of a loop around that over the batches: `step(epoch - 1)`."""
    around = [loop for loop in context.script.enclosing_loops(call)[1:] if isinstance(loop, ast.For)]
    numbers = {loop.target.id for loop in around if isinstance(loop.target, ast.Name)}
    names = {name for argument in call.args for name in names_in(argument)}
    return bool(names & numbers) and names <= numbers | {"max", "min", "int"}


def _counts_local_steps(context: Context, scheduler: ast.expr) -> bool:
    """Whether what steps is made from the length of a loader that is one process's by then, as its steps are."""
    made = context.script.entities(scheduler, v.INSTANCE)
    return bool(made) and all(any(context.plan.own_lengths(one)) for one in made)


def _is_alike(context: Context, value: ast.expr) -> bool:
    """Whether a number is the same on every process: it was reduced, or the script's functions compute it from the
    results of an evaluation that every process makes of all the data."""
    if context.gathered(value):
        return True
    script, followed = context.script, context.followed
    if followed is None or followed.share_in(value) is not None:
        return False
    if all(evaluation.problem is None for evaluation in context.plan.evaluations):
        return False
    made = made_once(script, value) if isinstance(value, ast.Name) else value
    if not isinstance(made, ast.Call):
        return False
    callees = script.callees(made)
    return bool(callees) and all(script.interpreter.module_of(c) in script.modules for c in callees)


def _derives(cls: Class) -> bool:
    return any(".lr_scheduler." in base for base in cls.external_bases())


def _own_rates(context: Context, named: set[ast.Call]) -> Iterator[Change]:
    """Rates and parts of the loss that depend on a count of steps, without schedulers that are reported already."""
    script, plan = context.script, context.plan
    if plan.batch_size == "total" or plan.known.distributed:
        return  # as many steps as before, or counted by one process's already
    done: set[ast.AST] = set()
    # Those that are left as they are go by the steps of one process already.
    schedulers = {
        t
        for t in plan.prepared
        if t.kind == v.SCHEDULER and not (t.qualname or "").endswith("ReduceLROnPlateau")
    }
    # A scheduler of the script follows its total, which is looked at where it is made.
    of_torch = {t for t in schedulers if t.cls is None or _derives(t.cls)}
    for loop, loaders in script.loader_loops:
        if not plan.is_sharded(loaders) or not any(script.trains(s) for s in loop.body):
            continue
        if loop in plan.of_fixed_steps or ends_by_steps(script, loop.body[0]):
            continue
        for stated in scheduler_counts(script, loop, of_torch):
            if stated.place in done:
                continue
            done.add(stated.place)
            yield context.todo(
                CUSTOM,
                stated.place,
                f"the schedule goes by `{stated.counter}`, which counts this process's own batches: of N processes "
                "each takes 1/N of those of an epoch, and the schedule stays behind",
                "count the batches of all processes; where no run is resumed, the number can be left out instead",
            )
        for made in begun_at_steps(script, loop, schedulers):
            if made.place in done:
                continue
            done.add(made.place)
            yield context.todo(
                CUSTOM,
                made.place,
                f"this schedule begins at `{made.counter}`, which counts this process's own batches, and goes on by "
                "those of all processes: where a run goes on from a checkpoint, N processes throw it back to 1/N of "
                "its place",
                "save and load the scheduler's own state (state_dict), or count the batches of every process",
            )
        for rate in step_rates(script, loop):
            if rate.place in done or named & set(rate.calls):
                continue
            done.add(rate.place)
            if rate.of_batches:
                yield _by_samples(context, rate)
                continue
            how = f"set from `{rate.counter}`, a count of steps" if rate.counter else "changed at every step"
            yield context.todo(
                CUSTOM,
                rate.place,
                f"this learning rate is {how}: of N processes each makes 1/N of the steps of an epoch, and the rate "
                "follows its course N times slower",
                _HOW,
            )
        yield from _of_models(context, done)
        models = {t for t in plan.prepared if t.kind == v.MODEL}
        for part in [*step_coefficients(script, loop), *model_coefficients(script, loop, models)]:
            if part.node in done:
                continue
            done.add(part.node)
            text = short(context.tree.segment(part.node))
            how, what = f"follows `{part.counter}`, a count of steps", "part of the loss"
            if text == part.counter:
                how = "goes on at each step"  # what is added at each is no count
            where = f"in the loss {how}"
            if part.of_model:
                where, what = f"is set in the model and {how}", "course"
            yield context.todo(
                CUSTOM,
                part.node,
                f"`{text}` {where}: of N processes each makes 1/N of the steps of an epoch, and this {what} comes N "
                "times later",
                _HOW,
            )


def _by_samples(context: Context, rate: StepRate) -> Change:
    """A rate that follows a count of samples or tokens, of which each process counts only its share."""
    message = (
        f"this learning rate is set from `{rate.counter}`, a count of one process's own samples: of N processes each "
        "has 1/N of those of an epoch, so that the rate follows its course N times slower, and it parts between "
        "processes where their shares differ"
    )
    mark = 'add up what all processes count: accelerator.reduce(count, reduction="sum")'
    return context.todo(CUSTOM, rate.place, message, mark)


def _of_models(context: Context, done: set[ast.AST]) -> Iterator[Change]:
    """Rates that models compute from the number of their forwards."""
    script = context.script
    for count in forward_counts(script) if any(t.kind == v.MODEL for t in context.plan.prepared) else ():
        if count.place in done:
            continue
        done.add(count.place)
        module = count.cls.module
        own = module in script.modules
        where = (
            f" ({module.path.name}, line {count.place.lineno})" if module.path is not None and not own else ""
        )
        message = (
            f"`{count.cls.name}`{where} goes by `{count.name}`, its own count of forwards: of N processes each makes "
            "1/N of those of an epoch, and what it makes of the count comes N times later"
        )
        yield context.todo(CUSTOM, count.place if own else script.backwards[0].call, message, _HOW)


def _is_custom(context: Context, node: ast.expr) -> bool:
    """Whether a call is named like a scheduler but makes an object that the program defines."""
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return (
        bool(k.SCHEDULER_NAME.search(name))
        and context.script.is_a(node, v.INSTANCE)
        and not context.script.is_a(node, v.SCHEDULER)
    )
