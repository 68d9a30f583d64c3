"""Numbers of batches that are not `len(loader)`: each of N processes gets 1/N of them.

for i, (x, y) in enumerate(loader):
    print(i, len(data) // batch_size)    ->  print(i, len(data) // batch_size // accelerator.num_processes)
    if epoch % (len(data) // batch_size) == 0:    (as it is: it counts no rounds of this loop)

epochs = STEPS // len(loader)    (a finding: N times the epochs of the original, as `len(loader)` is 1/N)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis import values as v
from accelify.analysis.schedules.step_rounds import step_rounds, stepped_in
from accelify.analysis.scopes import Scope, handed_to
from accelify.analysis.syntax import call_argument, dotted, names_in, target_names, walk
from accelify.analysis.values import Entity
from accelify.findings import Severity
from accelify.transforms.base import Change, Context
from accelify.transforms.lengths import LENGTH, counts_samples, is_batch_size, is_divided
from accelify.writer import edits as verbs
from accelify.writer.edits import Edit

_SHOWING = frozenset("print write info debug set_description set_postfix set_postfix_str format log".split())
# Calls through which a number is followed.
_FARTHEST = 3
_ROUNDING = frozenset("int ceil floor round max".split())


def transform(context: Context) -> Iterator[Change]:
    """Yield the division for numbers that are shown or tested in loops over the batches, and a finding for epochs."""
    if context.plan.batch_size == "total" or context.plan.known.distributed:
        return
    yield from _all_batches(context)
    yield from _rounds_of_steps(context)


def _all_batches(context: Context) -> Iterator[Change]:
    """`len(data) // batch_size` in what a loop over the batches of one process shows, or is led by."""
    tree = context.tree
    for node in tree.nodes(ast.BinOp):
        if not isinstance(node.op, (ast.FloorDiv, ast.Div)) or not counts_samples(context, node.left):
            continue
        if context.is_claimed(node) or _is_scaled(context, node):
            continue
        uses = _uses(context, node)
        counted = [use for use in uses if _is_the_loaders(context, node, _loaders_around(context, use))]
        counted = [
            use
            for use in counted
            if (_is_shown(context, use) or _is_asked(context, use))
            and not _makes_mean(context, use)
            and not _is_for_epochs(context, use)
        ]
        if not counted:
            continue
        text = tree.segment(node)
        message = f"`{text}` counts the batches of all processes, of which each of N takes 1/N"
        accelerator = context.accelerator(node) if context.reaches_cheaply(node) else None
        context.claim(node)
        sign = "//" if isinstance(node.op, ast.FloorDiv) else "/"
        places = [node] if len(counted) == len(uses) else counted
        if accelerator is None or not all(map(context.reaches_cheaply, places)):
            share = "" if places == [node] else ", where it is compared with rounds of one process"
            yield context.change(LENGTH, node, f"{message}: divide it by `accelerator.num_processes`{share}")
            continue
        edits: list[Edit] = []
        for place in places:
            bare = place is node or not isinstance(tree.parent(place), (ast.BinOp, ast.UnaryOp))
            before, after = ("", "") if bare else ("(", ")")
            share = f" {sign} {context.accelerator(place)}.num_processes{after}"
            edits.append(verbs.replace(place, before, place, share))
        yield context.change(LENGTH, node, message, edits)


def _is_scaled(context: Context, number: ast.BinOp) -> bool:
    """Whether the number of processes is in a number already, or what is made of it is divided by that."""
    if any(isinstance(n, ast.Attribute) and n.attr == "num_processes" for n in walk(number)):
        return True
    return is_divided(context, _rounded(context, number)) or is_divided(context, number)


def _uses(context: Context, number: ast.expr) -> list[ast.expr]:
    """Where a number is used: at the node, or where the variable is read that only this number is assigned to."""
    stmt = context.tree.statement(number)
    if not isinstance(stmt, ast.Assign) or len(stmt.targets) != 1 or _is_shown(context, number):
        return [number]
    target = stmt.targets[0]
    owner = context.script.scope_of(stmt).resolve(target.id) if isinstance(target, ast.Name) else None
    if not isinstance(target, ast.Name) or owner is None or len(context.tree.assigns(target.id)) != 1:
        return [number]
    return [used for read in context.script.reads(target.id, owner) for used in _taken(context, read)]


def _taken(context: Context, read: ast.expr, far: int = 0) -> list[ast.expr]:
    """Where the parameter is read that takes a number, in a function that nobody else calls; else the read itself."""
    script, call = context.script, context.tree.parent(read)
    if isinstance(call, ast.keyword):
        call = context.tree.parent(call)
    callees = script.callees(call) if isinstance(call, ast.Call) and far < _FARTHEST else set()
    for callee in callees if len(callees) == 1 else ():
        assert isinstance(call, ast.Call)
        name = next((name for given, name in handed_to(call, callee) if given is read), None)
        own = script.interpreter.module_of(callee) in script.modules and len(script.callers(callee)) == 1
        found = script.reads(name, callee) if name is not None and own and not _is_set(callee, name) else []
        if found and all(script.scope_of(node) is callee for node in found):
            return [used for node in found for used in _taken(context, node, far + 1)]
    return [read]


def _is_set(scope: Scope, name: str) -> bool:
    """Whether a function binds a name again."""
    return any(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store) for n in scope.nodes)


def _loaders_around(context: Context, node: ast.expr) -> set[Entity]:
    """The loaders, sharded by then, over whose batches the loops around a node go, or those around its function."""
    script = context.script
    scope = script.scope_of(node)
    loops = set(script.enclosing_loops(node))
    for call in script.callers(scope) if scope.kind == "function" and not loops else ():
        loops.update(script.enclosing_loops(call))
    return {
        entity
        for loop, loaders in script.loader_loops
        if loop in loops and context.plan.is_sharded(loaders)
        for entity in loaders
    }


def _is_the_loaders(context: Context, number: ast.BinOp, loaders: set[Entity]) -> bool:
    """Whether samples are divided by the batch size of a loader that reads them."""
    script = context.script
    measured = {
        entity
        for inner in walk(number.left)
        if isinstance(inner, (ast.Name, ast.Attribute))
        for entity in script.entities(inner, v.DATASET, v.LOADER)
    }
    for loader in loaders:
        site = loader.site
        if not isinstance(site, ast.Call) or loader.module not in script.modules:
            if is_batch_size(number.right) and loader in measured:
                return True
            continue
        data, size = call_argument(site, 0, "dataset"), call_argument(site, 1, "batch_size")
        contained = script.entities(data, v.DATASET) if data is not None else set()
        same = size is not None and ast.dump(size) == ast.dump(number.right)
        if (same or is_batch_size(number.right)) and ({loader} | contained) & measured:
            return True
    return False


def _is_shown(context: Context, node: ast.expr) -> bool:
    """Whether a number becomes part of a text, or is printed or logged."""
    for ancestor in context.tree.ancestors(node):
        if isinstance(ancestor, ast.stmt):
            return False
        if isinstance(ancestor, (ast.JoinedStr, ast.FormattedValue)):
            return True
        if isinstance(ancestor, ast.BinOp) and isinstance(ancestor.op, ast.Mod):
            if isinstance(ancestor.left, ast.Constant) and isinstance(ancestor.left.value, str):
                return True
        if isinstance(ancestor, ast.Call):
            name = str(dotted(ancestor.func) or getattr(ancestor.func, "attr", ""))
            if name.rsplit(".", 1)[-1] in _SHOWING:
                return True
    return False


def _is_asked(context: Context, node: ast.expr) -> bool:
    """Whether a number decides what the loop does."""
    stmt = context.tree.statement(node)
    return isinstance(stmt, ast.If) and any(inner is node for inner in walk(stmt.test))


def _makes_mean(context: Context, node: ast.expr) -> bool:
    """Whether a figure of the batches is divided by a number; `i / number` is how far the loop has come."""
    outer = _rounded(context, node)
    parent = context.tree.parent(outer)
    if isinstance(parent, ast.AugAssign):
        return isinstance(parent.op, (ast.Div, ast.FloorDiv))
    if not isinstance(parent, ast.BinOp) or parent.right is not outer:
        return False
    return isinstance(parent.op, (ast.Div, ast.FloorDiv)) and not context.script.is_uniform(parent.left)


def _is_for_epochs(context: Context, node: ast.expr) -> bool:
    """Whether a number is compared with the counter of a loop around those over batches: `epoch % number == 0`."""
    outer = context.tree.parent(_rounded(context, node))
    if isinstance(outer, ast.BinOp) and isinstance(outer.op, (ast.Mod, ast.Div, ast.FloorDiv)):
        others = names_in(outer.left)
    elif isinstance(outer, ast.Compare):
        others = names_in(outer) - names_in(node)
    else:
        return False
    over_batches = {loop for loop, _ in context.script.loader_loops}
    counters = {
        name
        for loop in context.script.enclosing_loops(node)
        if isinstance(loop, ast.For) and loop not in over_batches
        for name in target_names(loop.target)
    }
    return bool(others) and others <= counters


def _rounded(context: Context, node: ast.AST) -> ast.AST:
    """`math.ceil(number)`, `int(number)` around a number."""
    while isinstance(parent := context.tree.parent(node), ast.Call) and node in parent.args:
        if (dotted(parent.func) or "").rsplit(".", 1)[-1] not in _ROUNDING:
            break
        node = parent
    return node


def _rounds_of_steps(context: Context) -> Iterator[Change]:
    """`epochs = STEPS // len(loader)`, where the loader has 1/N of its batches by then."""
    script, plan = context.script, context.plan
    done: set[ast.BinOp] = set()
    for rounds in step_rounds(script, plan.prepared, plan.runs_prepared):
        division = rounds.division
        if division in done or _is_scaled(context, division):
            continue
        done.add(division)
        message = (
            f"`{context.tree.segment(division)}` keeps the number of steps of a single process: as the loader has 1/N "
            "of its batches on each of N processes, there are N times the epochs; divide it by "
            "`accelerator.num_processes` where the epochs are to stay as they are"
        )
        if rounds.loop in plan.of_fixed_steps and stepped_in(script, {rounds.loop}):
            message += ", and prepare the scheduler then, which steps as often as on a single process now"
        yield context.change(LENGTH, division, message, severity=Severity.INFO)
