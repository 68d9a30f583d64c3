"""Figures of one process's share of the data that are not reduced: reported where they decide or are shown.

hits += count(output, target)    (a finding: each of several processes counts what it has seen itself)
...
print(hits)

model.weight.data[least] = 0     (a finding: each process cuts something else out of the model)

if hits > best:                  (a finding: the test can differ between processes)
    break
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from operator import itemgetter

from accelify.analysis import values as v
from accelify.analysis.losses.carried import weights
from accelify.analysis.metrics.figure_objects import returns_stored
from accelify.analysis.metrics.figures import place_of
from accelify.analysis.metrics.process_share import OwnShare
from accelify.analysis.metrics.recorded_sums import RecordedSums
from accelify.analysis.models.weight_writes import model_changes
from accelify.analysis.statements.slots import TOTAL, SlotValue
from accelify.analysis.syntax import dotted, is_constant, walk
from accelify.transforms.base import Change, Context, Rule, short

FIGURE = Rule(
    "ACC306", "own-figure", "A figure that is shown covers one process's share of the data only.", effort=10
)
DECISION = Rule(
    "ACC414", "own-decision", "A figure of one process's share of the data decides what happens.", effort=10
)
_SAVING = re.compile(r"^save|_save$|save_|checkpoint", re.I)
_RATE = re.compile(r"(^|_)lr($|_)|learning_?rate", re.I)
# Names of objects that receive figures (loggers, writers) and are no figures, unless their calls return one.
_WRITER = re.compile(r"(writer|logger|board|visdom|viz|vis)$", re.I)
_STEERING = re.compile(
    r"adjust_?l|adjust_?opt|(set|update|decay|decrease|lower|reduce|change)_?(lr|learn)", re.I
)


def transform(context: Context) -> Iterator[Change]:
    """Yield a finding for each such figure and each such decision that no other transform has taken up."""
    if context.plan.known.reduces:
        return
    followed = context.followed
    if followed is not None:
        yield from _decisions(context, followed, "one process's share of the data")
        yield from _changes(context, followed)
        yield from _figures(context, followed)
    if context.reordered is not None:
        yield from _decisions(context, context.reordered, "data that each process shuffles for itself")


# -- decisions


def _decisions(context: Context, followed: OwnShare, seen: str) -> Iterator[Change]:
    for stmt, contained in followed.decisions.items():
        if context.is_reported(stmt.test):
            continue
        text = short(context.tree.segment(stmt.test))
        kind = _what_it_decides(context, stmt)
        if kind == "saves" and not _is_named(context, contained):
            message = f"`{text}` chooses what is saved by a figure of {seen}"
            yield context.change(DECISION, stmt.test, message)
        elif kind == "leaves":
            message = f"`{text}` can be true on one process only; the others then wait for ever"
            mark = "let all processes agree: accelerator.reduce(value) before the test"
            yield context.todo(DECISION, stmt, message, mark)
        elif kind == "trains":
            message = f"`{text}` can be true on one process only, which then trains otherwise than the others"
            mark = "let all processes agree: accelerator.reduce(value) before the test"
            yield context.todo(DECISION, stmt, message, mark)
    for call in followed.schedules:
        if context.is_reported(call) or not any(
            (t.qualname or "").endswith("ReduceLROnPlateau")
            for t in context.script.entities(call.func.value, v.SCHEDULER)  # type: ignore[attr-defined]
        ):
            continue
        message = "what steers this schedule can differ between processes, and so their learning rates"
        mark = 'give every process the same number: accelerator.reduce(value, reduction="mean")'
        yield context.todo(DECISION, call, message, mark)


def _changes(context: Context, followed: OwnShare) -> Iterator[Change]:
    """What is cut out of a model, or written in it, by such a figure: in a loop over batches the engine does."""
    for changed, deciding in model_changes(context.script) if followed.leaving else ():
        around = set(context.tree.ancestors(changed))
        for part in deciding:
            contained = followed.share_in(part)
            if contained is None or contained.level < TOTAL or context.is_reported(part):
                continue
            if any(
                a in around
                for o in contained.origins
                for a in context.tree.ancestors(o)
                if a in followed.loops
            ):
                continue
            message = (
                f"`{short(context.tree.segment(part))}` is made of one process's share of the data, and "
                f"`{short(context.tree.segment(changed))}` changes the model by it, so that the models part"
            )
            mark = "accelerator.reduce the figures that decide this, before anything is chosen by them"
            yield context.todo(DECISION, context.tree.statement(changed), message, mark)
            break


def _what_it_decides(context: Context, stmt: ast.If | ast.While) -> str:
    """What a test decides: whether a loop is left, what is trained, what is saved; "" for nothing of these."""
    script, found = context.script, set()
    weighing: set[str] | None = None
    if isinstance(stmt, ast.While):
        return "leaves" if any(script.trains(s) for s in stmt.body) else ""
    for node in (n for s in [*stmt.body, *stmt.orelse] for n in walk(s)):
        if isinstance(node, (ast.Break, ast.Continue)):
            loop = script.enclosing_loops(node)[:1]
            if loop and any(a is loop[0] for a in context.tree.ancestors(stmt)) and script.trains(loop[0]):
                if isinstance(node, ast.Break) or _trains_after(context, stmt, loop[0]):
                    found.add("leaves")
        elif isinstance(node, ast.Return):
            if script.trains_around(stmt) or _trains_after(context, stmt, script.scope_of(stmt).node):
                found.add("leaves")
        elif isinstance(node, ast.Call):
            found.add(_what_a_call_decides(context, node))
        elif isinstance(node, (ast.Subscript, ast.Attribute)) and isinstance(node.ctx, ast.Store):
            rate = isinstance(node, ast.Attribute) and _RATE.search(node.attr)
            entry = isinstance(node, ast.Subscript) and is_constant(node.slice, "lr")
            groups = any(isinstance(n, ast.Attribute) and n.attr == "param_groups" for n in walk(node))
            if rate or entry or groups:
                found.add("trains")
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and _RATE.search(node.id):
            found.add("trains")
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
            if weighing is None:
                weighing = _weighing(context, stmt)
            if dotted(node) in weighing:
                found.add("trains")
    return next((kind for kind in ("leaves", "trains", "saves") if kind in found), "")


def _weighing(context: Context, stmt: ast.stmt) -> set[str]:
    """What weighs the losses of the training loops around a test, from one round to the next."""
    return {
        place.text
        for loop in context.shared_loops()
        if any(ancestor is loop for ancestor in context.tree.ancestors(stmt))
        for place in weights(context.script, loop)
    }


def _trains_after(context: Context, stmt: ast.stmt, around: ast.AST) -> bool:
    return any(
        isinstance(call, ast.Call) and context.script.trains(call) and context.tree.is_after(call, stmt)
        for s in getattr(around, "body", ())
        for call in walk(s)
    )


def _what_a_call_decides(context: Context, call: ast.Call) -> str:
    script, func = context.script, call.func
    last = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
    receiver = func.value if isinstance(func, ast.Attribute) else func
    if script.trains(call) or last == "load_state_dict" or _STEERING.search(last):
        return "trains"
    if last == "step" and script.is_a(receiver, v.SCHEDULER, v.OPTIMIZER):
        return "trains"
    if last == "deepcopy" and any(context.plan.is_prepared(a, v.MODEL) for a in call.args):
        return "saves"
    if last == "state_dict" and context.plan.is_prepared(receiver, v.MODEL):
        return "saves"
    if script.qualname(func) == "torch.save" or (_SAVING.search(last) and "load" not in last):
        return "saves"
    return ""


# -- figures


def _figures(context: Context, followed: OwnShare) -> Iterator[Change]:
    shown: dict[ast.stmt, ast.Call] = {}
    for call, contained in followed.outputs.items():
        if contained.level < TOTAL or context.plan.on_main_only(call):
            continue
        around = set(context.tree.ancestors(call))
        for origin in contained.origins:
            loops = [a for a in context.tree.ancestors(origin) if a in followed.loops]
            if any(loop in around for loop in loops) or context.is_named(origin):
                continue
            if (
                not loops
                and origin not in followed.at_once
                and context.script.scope_of(call) is context.script.scope_of(origin)
            ):
                continue  # a helper that runs for every batch shows what it has so far
            if not loops and any(followed.is_run_by(a, context.script.scope_of(origin)) for a in around):
                continue  # so does the loop that calls it
            known = shown.get(origin)
            if known is None or context.tree.is_before(call, known):
                shown[origin] = call
    stated: set[tuple[object, str]] = set()
    for origin, call in context.tree.in_order(shown.items(), itemgetter(0)):
        name = followed.names[origin]
        figure = _home(context, origin, name), name
        if figure in stated or (_WRITER.search(name) and not returns_stored(context.script, origin, call)):
            continue
        stated.add(figure)
        if origin in followed.at_once:
            name = context.tree.segment(origin.targets[0]) if isinstance(origin, ast.Assign) else name
        message = f"`{name}` covers one process's share of the data only, and is shown"
        if context.script.scope_of(call) is context.script.scope_of(origin):
            message += f" in line {context.tree.line_of(call)}"
        message += _too_small(context, followed, origin)
        yield context.change(FIGURE, origin, message)


def _home(context: Context, origin: ast.stmt, name: str) -> object:
    """What a figure belongs to: the function that keeps it, or the class of the object whose attribute it is."""
    scope = context.script.scope_of(origin)
    root = name.partition(".")[0].partition("[")[0]
    return scope.owner_class or scope if root == scope.self_name() else scope.resolve(root)


def _too_small(context: Context, followed: OwnShare, origin: ast.stmt) -> str:
    """The message for lists in a dictionary, `found[name].append(...)`, that are divided by all batches."""
    call = origin.value if isinstance(origin, ast.Expr) else None
    if (
        not isinstance(call, ast.Call)
        or not isinstance(call.func, ast.Attribute)
        or call.func.attr != "append"
    ):
        return ""
    place = place_of(context.script, call.func.value)
    loop = next((a for a in context.tree.ancestors(origin) if a in followed.loops), None)
    if place is None or not isinstance(loop, (ast.For, ast.AsyncFor, ast.While)):
        return ""
    if context.plan.batch_size == "total" or context.plan.hand_cut is not None:
        return ""
    sums = RecordedSums(context.script, loop).of(place).by_all
    if not sums:
        return ""
    return (
        f"; `{short(context.tree.segment(sums[0]))}` is divided by what counts the data of all processes: "
        "sum it over them first"
    )


def _is_named(context: Context, contained: SlotValue) -> bool:
    return bool(contained.origins) and all(context.is_named(origin) for origin in contained.origins)
