"""GradScaler and autocast, replaced by the Accelerator's.

with autocast():          ->  with accelerator.autocast():
scaler.step(optimizer)    ->  optimizer.step()
scaler.update()           ->  (gone)
scaler.unscale_(optimizer)  ->  accelerator.unscale_gradients(optimizer)    (before clipping, which does it: gone)

The Accelerator casts every forward of a prepared model, and scales the loss in fp16. A script that casts only some of
its forwards (an evaluation outside of `autocast`, say) or parts of one (in its model, also that of another module),
that trains in fp16 without a GradScaler, or whose scaler and casts are those of another module, keeps its casts and
scaler, and with them its figures.

After a step that is left out because gradients overflow in fp16, a prepared scheduler does not advance, as with
Accelerate. A script that called `scheduler.step()` all the same has its learning rate that many steps later.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.schedules.casts import is_scaled
from accelify.analysis.schedules.regions import stored_region
from accelify.analysis.syntax import calls_in
from accelify.findings import Severity
from accelify.transforms.base import Change, Context, Rule
from accelify.writer import edits as verbs
from accelify.writer.edits import Delete, Edit

SCALER = Rule(
    "ACC110",
    "The script scales its loss by itself, past the Accelerator.",
    Severity.ERROR,
    effort=5,
    done="replaced GradScaler by the Accelerator's mixed precision",
)
AUTOCAST = Rule(
    "ACC111",
    "The script casts by itself, past the Accelerator's mixed precision.",
    Severity.ERROR,
    done="replaced autocast by the Accelerator's mixed precision",
)


def transform(context: Context) -> Iterator[Change]:
    """Yield the changes to autocast and GradScaler."""
    if not context.script.understands_precision:
        yield from _stored(context)
        return
    for call in context.script.calls_to(k.AUTOCAST_CLASSES):
        retained = stored_region(context.script, call)
        if retained:
            yield from _opened(context, call, *retained)
        elif isinstance(context.tree.parent(call), ast.withitem):
            accelerator = context.accelerator(call)
            if accelerator is not None:
                edit = verbs.replace(call, f"{accelerator}.autocast()")
                yield context.change(AUTOCAST, call, "mixed precision is set by hand", [edit], core=True)
    yield from _scalers(context)


def _opened(
    context: Context, call: ast.Call, statement: ast.Assign, uses: list[ast.expr]
) -> Iterator[Change]:
    """`context = autocast(...)`, then `with context:`."""
    accelerators = [context.accelerator(use) for use in uses]
    edits: list[Edit] = [Delete(statement)]
    edits += [
        verbs.replace(use, f"{accelerator}.autocast()")
        for use, accelerator in zip(uses, accelerators, strict=True)
    ]
    context.claim(statement)
    change = context.change(AUTOCAST, call, "mixed precision is set by hand", edits, core=True)
    problem = "" if all(accelerators) else "the Accelerator cannot be had where mixed precision is used"
    yield Change(change.finding, change.edits, True, problem)


def _stored(context: Context) -> Iterator[Change]:
    """Casts and scalers that stay in the script work as before, if the Accelerator does not add its own."""
    script, why = context.script, context.script.precision_stays
    made = list(script.calls_to(k.SCALER_CLASSES))
    for call in made or [b.call for b in script.backwards if is_scaled(script, b.loss)]:
        message = (
            f"the script keeps its own mixed precision, as {why}: leave `mixed_precision` of the Accelerator, and of "
            "the launch, at `no`"
        )
        yield context.change(SCALER, call, message, severity=Severity.INFO)


def _scalers(context: Context) -> Iterator[Change]:
    tree, script = context.tree, context.script
    scaled = {b.call for b in script.backwards if b.scaler is not None}
    retained = stepped = False
    for call in script.calls():
        func = call.func
        if not isinstance(func, ast.Attribute) or not script.is_a(func.value, v.SCALER):
            continue
        stmt = tree.parent(call)
        edits: list[Edit] = []
        if func.attr == "step" and call.args:
            stepped = True
            rest = [piece for argument in call.args[1:] for piece in (", ", argument)][1:]
            edits = [verbs.replace(call, call.args[0], ".step(", *rest, ")")]
        elif func.attr == "unscale_" and call.args and _read_unscaled(context, stmt):
            accelerator = context.accelerator(call)
            if accelerator is not None:
                edits = [verbs.replace(call, f"{accelerator}.unscale_gradients(", call.args[0], ")")]
        elif func.attr in ("update", "unscale_") and isinstance(stmt, ast.Expr):
            edits = [Delete(stmt)]
        elif func.attr == "scale":
            if any(n in scaled for n in tree.ancestors(call)):
                continue
            change = context.change(SCALER, call, "the scaled loss is used for something else than backward")
            yield Change(
                change.finding,
                (),
                True,
                f"the scaled loss of line {tree.line_of(call)} is used for more than backward",
            )
            continue
        else:
            retained = True
            continue
        context.claim(call)
        yield context.change(SCALER, call, f"`{func.attr}` scales gradients by hand", edits, core=True)
    if stepped and "fp16" in context.plan.arguments.get("mixed_precision", "fp16"):
        yield from _schedules_that_wait(context)
    for call in script.calls_to(k.SCALER_CLASSES):
        stmt = tree.statement(call)
        accelerator = context.accelerator(call)
        if not isinstance(stmt, ast.Assign) or accelerator is None:
            continue
        if retained or _read_elsewhere(context, stmt):
            own = f"{accelerator}.scaler"
            if context.for_accelerate:
                # It is None in full precision, where the script's methods still have to work.
                own += f" or {tree.segment(call.func)}(enabled=False)"
            edit: Edit = verbs.replace(stmt.value, own)
        else:
            edit = Delete(stmt)
        context.claim(stmt)
        yield context.change(SCALER, call, "a GradScaler scales the loss by hand", [edit], core=True)


def _schedules_that_wait(context: Context) -> Iterator[Change]:
    """A prepared scheduler does not advance for a skipped optimizer step; the script's may have advanced."""
    tree, script = context.tree, context.script
    asking: list[ast.AST] = [*tree.named("get_scale")]
    for node in list(asking):
        statement = tree.statement(node)
        if isinstance(statement, ast.Assign):
            asking += [n for t in statement.targets if isinstance(t, ast.Name) for n in tree.named(t.id)]
    for call in script.calls():
        func = call.func
        if not (isinstance(func, ast.Attribute) and func.attr == "step"):
            continue
        if script.entities(func.value, v.SCHEDULER) & context.plan.prepared:
            tests = [a.test for a in tree.ancestors(call) if isinstance(a, ast.If)]
            if not any(tree.is_within(node, tests) for node in asking):
                message = (
                    "a step that overflows in fp16 is left out, and this schedule waits for the next one then"
                )
                yield context.change(SCALER, call, message, severity=Severity.INFO)
                return


def _read_unscaled(context: Context, statement: ast.AST | None) -> bool:
    """Whether something else than clipping, which unscales by itself, comes between `unscale_` and the step."""
    if not isinstance(statement, ast.Expr):
        return False
    _, _, block = context.tree.block_of(statement)
    for later in block[block.index(statement) + 1 :]:
        calls = calls_in(later)
        scaled = [
            call.func.attr
            for call in calls
            if isinstance(call.func, ast.Attribute) and context.script.is_a(call.func.value, v.SCALER)
        ]
        if "unscale_" not in scaled:
            clips = any(context.script.qualname(call.func) in k.CLIPPING for call in calls)
            return not clips and "step" not in scaled
    return False


def _read_elsewhere(context: Context, stmt: ast.Assign) -> bool:
    """Whether the scaler is passed on or stored, so that its name has to stay."""
    for target in stmt.targets:
        if isinstance(target, ast.Attribute):
            reads = [
                n for n in context.tree.nodes(ast.Attribute) if n.attr == target.attr and n is not target
            ]
            if all(_only_scales(context, n) for n in reads):
                continue
        if not isinstance(target, ast.Name):
            return True
        scope = context.script.scope_of(stmt).resolve(target.id)
        if scope is None:
            continue
        for name in context.script.reads(target.id, scope):
            if not _only_scales(context, name):
                return True
    return False


def _only_scales(context: Context, scaler: ast.expr) -> bool:
    parent = context.tree.parent(scaler)
    return isinstance(parent, ast.Attribute) and parent.attr in ("scale", "step", "update", "unscale_")
