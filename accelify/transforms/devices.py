"""Device choices: the Accelerator's device, and not the same one on every process.

device = torch.device("cuda" if use_cuda else "cpu")    ->  device = accelerator.device
noise = torch.randn(8, 4, device="cuda")                ->  noise = torch.randn(8, 4, device=accelerator.device)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify import edits as verbs
from accelify.analysis import knowledge as k
from accelify.analysis.syntax import dotted, is_constant
from accelify.edits import DeleteStatement, Edit, InsertBefore
from accelify.findings import Safety, Severity
from accelify.transforms.base import Change, Context, Rule, short

CHOICE = Rule(
    "ACC103",
    "device-choice",
    "A device chosen by the script is the same one on every process.",
    Severity.ERROR,
)
SELECT = Rule(
    "ACC113", "device-selection", "Every process would select the same GPU.", Severity.ERROR, Safety.REVIEW
)


def transform(context: Context) -> Iterator[Change]:
    """Yield the changes to the places where a device is chosen."""
    tree = context.tree
    done: set[ast.AST] = set()
    for one, other, branch in _in_both_branches(context):
        accelerator = context.accelerator(one)
        if accelerator is not None and tree.own_line(branch) and not tree.is_elif(branch):
            done.update((one, other))
            context.claim(one, other)
            target = one.targets[0]
            device = f"{accelerator}.device" + (".type" if _used_as_text(context, one, target) else "")
            line = f"{tree.segment(target)} = {device}"
            edits: list[Edit] = [InsertBefore(branch, (line,)), DeleteStatement(one), DeleteStatement(other)]
            message = f"every process would use `{short(tree.segment(one.value))}`"
            yield context.change(CHOICE, one, message, edits, core=True)
    for assignment in context.plan.devices.assignments:
        node: ast.stmt = assignment.whole or assignment.statement
        if node in done:
            continue
        done.add(node)
        accelerator = context.accelerator(assignment.statement)
        if accelerator is None and node is _anchored(context):
            accelerator = context.accelerator(assignment.statement) or "accelerator"
        if accelerator is None or assignment.statement.value is None:
            continue
        statement = assignment.statement
        context.claim(assignment.whole or assignment.statement.value)
        target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
        device = f"{accelerator}.device" + (".type" if _used_as_text(context, statement, target) else "")
        if assignment.whole is not None:
            edit: Edit = verbs.replace(tree, node, f"{tree.segment(target)} = {device}")
        else:
            edit = verbs.replace(tree, statement.value, device)
        evidence = (f"`{tree.segment(target)}` is assigned a device",)
        yield context.change(
            CHOICE,
            node,
            f"every process would use `{short(tree.segment(statement.value))}`",
            [edit],
            core=True,
            evidence=evidence,
        )


def _in_both_branches(context: Context) -> Iterator[tuple[ast.Assign, ast.Assign, ast.If]]:
    """Choices that stand first in both branches of an `if` that does other things too."""
    whole = {a.statement for a in context.plan.devices.assignments if a.whole is not None}
    known = {a.statement for a in context.plan.devices.assignments} - whole
    for branch in context.tree.nodes(ast.If):
        one = [s for s in branch.body if s in known and isinstance(s, ast.Assign)]
        other = [s for s in branch.orelse if s in known and isinstance(s, ast.Assign)]
        if len(one) == len(other) == 1 and len(one[0].targets) == len(other[0].targets) == 1:
            if ast.unparse(one[0].targets[0]) == ast.unparse(other[0].targets[0]):
                yield one[0], other[0], branch


def _used_as_text(context: Context, statement: ast.stmt, target: ast.expr) -> bool:
    """Whether a device kept as a string is compared with strings: a torch.device never equals one."""
    value = getattr(statement, "value", None)
    values = [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]
    if not all(isinstance(one, ast.Constant) for one in values):
        return False
    text = dotted(target)
    for node in context.tree.nodes(ast.Compare):
        if dotted(node.left) == text and any(isinstance(c, ast.Constant) for c in node.comparators):
            return True
    return any(
        dotted(call.args[0]) == text
        for call in context.script.calls()
        if call.args and context.script.qualname(call.func) in (k.AUTOCAST_CLASSES | k.SCALER_CLASSES)
    )


def _anchored(context: Context) -> ast.stmt | None:
    return context.plan.anchor.before if context.plan.anchor is not None else None


def written_out(context: Context) -> Iterator[Change]:
    """Yield the changes to devices that are named where they are used. Asked when the moves are known."""
    yield from _constants(context)
    yield from _selections(context)


def _constants(context: Context) -> Iterator[Change]:
    """`device="cuda"` and `torch.device("cuda")` written where a device is used."""
    tree, script = context.tree, context.script
    for call in script.calls():
        if context.is_claimed(call) or tree.in_fstring(call):
            continue
        values = [kw.value for kw in call.keywords if kw.arg == "device"]
        if isinstance(call.func, ast.Attribute) and call.func.attr == "to" and call.args:
            values.append(call.args[0])
        for value in values:
            text = value.value if isinstance(value, ast.Constant) else None
            if isinstance(value, ast.Call) and script.qualname(value.func) == "torch.device":
                first = value.args[0] if value.args else None
                text = (
                    first.value
                    if isinstance(first, ast.Constant)
                    else "cuda"
                    if isinstance(first, ast.IfExp)
                    else None
                )
            elif isinstance(value, ast.IfExp) and context.plan.devices.is_device_expression(value):
                text = "cuda"
            if not isinstance(text, str) or not text.startswith("cuda"):
                continue
            accelerator = context.accelerator(call)
            if accelerator is None or context.is_claimed(value):
                continue
            context.claim(value)
            edit = verbs.replace(tree, value, f"{accelerator}.device")
            yield context.change(
                CHOICE, value, f"every process would use `{short(tree.segment(value))}`", [edit], core=True
            )


def _selections(context: Context) -> Iterator[Change]:
    tree, script = context.tree, context.script
    for call in script.calls():
        stmt = tree.parent(call)
        if script.qualname(call.func) == "torch.cuda.set_device" and isinstance(stmt, ast.Expr):
            yield context.change(
                SELECT,
                call,
                "the Accelerator selects the GPU of each process",
                [DeleteStatement(stmt)],
                core=True,
            )
    for stmt in tree.nodes(ast.Assign):
        for target in stmt.targets:
            if isinstance(target, ast.Subscript) and is_constant(target.slice, "CUDA_VISIBLE_DEVICES"):
                yield context.todo(
                    SELECT,
                    stmt,
                    "CUDA_VISIBLE_DEVICES is set in the script, so that all processes see only those GPUs",
                    "all processes share the GPUs named here; choose them when launching",
                )
