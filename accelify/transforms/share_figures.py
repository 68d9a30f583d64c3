"""Figures of one process's share of the data that are not reduced: reported where they decide or are shown.

hits += count(output, target)    (a finding: each of several processes counts what it has seen itself)
...
print(hits)

if hits > best:                  (a finding: each process would choose another one)
    torch.save(model.state_dict(), "best.pt")
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from operator import itemgetter

from accelify.analysis import values as v
from accelify.analysis.metrics.figure_objects import returns_stored
from accelify.analysis.metrics.figures import place_of
from accelify.analysis.metrics.process_share import OwnShare
from accelify.analysis.metrics.recorded_sums import RecordedSums
from accelify.analysis.statements.slots import TOTAL, SlotValue
from accelify.analysis.syntax import walk
from accelify.transforms.base import Change, Context, Rule, short

FIGURE = Rule(
    "ACC306", "own-figure", "A figure that is shown covers one process's share of the data only.", effort=10
)
DECISION = Rule(
    "ACC414", "own-decision", "A figure of one process's share of the data decides what is saved.", effort=10
)
_SAVING = re.compile(r"^save|_save$|save_|checkpoint", re.I)
# Names of objects that receive figures (loggers, writers) and are no figures, unless their calls return one.
_WRITER = re.compile(r"(writer|logger|board|visdom|viz|vis)$", re.I)


def transform(context: Context) -> Iterator[Change]:
    """Yield a finding for each such figure and each such decision that no other transform has taken up."""
    if context.plan.known.reduces:
        return
    followed = context.followed
    if followed is not None:
        yield from _decisions(context, followed, "one process's share of the data")
        yield from _figures(context, followed)
    if context.reordered is not None:
        yield from _decisions(context, context.reordered, "data that each process shuffles for itself")


# -- decisions


def _decisions(context: Context, followed: OwnShare, seen: str) -> Iterator[Change]:
    """What is saved by such a figure; where one decides how far or how the script trains, the engine names it."""
    for stmt, contained in followed.decisions.items():
        if context.is_reported(stmt.test) or isinstance(stmt, ast.While) or _is_named(context, contained):
            continue
        nodes = [n for s in [*stmt.body, *stmt.orelse] for n in walk(s)]
        saving = any(isinstance(n, ast.Call) and _saves(context, n) for n in nodes)
        if saving and not _goes_on_otherwise(context, nodes):
            text = short(context.tree.segment(stmt.test))
            message = f"`{text}` chooses what is saved by a figure of {seen}"
            yield context.change(DECISION, stmt.test, message)


def _goes_on_otherwise(context: Context, nodes: list[ast.AST]) -> bool:
    """Whether a test also decides how far the loop goes, or trains."""
    calls = (n for n in nodes if isinstance(n, ast.Call))
    return any(isinstance(n, ast.Break | ast.Continue | ast.Return) for n in nodes) or any(
        context.script.trains(call) for call in calls
    )


def _saves(context: Context, call: ast.Call) -> bool:
    func = call.func
    last = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
    receiver = func.value if isinstance(func, ast.Attribute) else func
    if last == "deepcopy":
        return any(context.plan.is_prepared(a, v.MODEL) for a in call.args)
    if last == "state_dict" and context.plan.is_prepared(receiver, v.MODEL):
        return True
    saving = _SAVING.search(last) and "load" not in last
    return context.script.qualname(func) == "torch.save" or bool(saving)


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
