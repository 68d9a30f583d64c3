"""Selections of a GPU, which are removed: the Accelerator selects that of each process.

torch.cuda.set_device(args.gpu)     ->  (nothing)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.devices.named_devices import device_arguments
from accelify.analysis.devices.options import holds_options
from accelify.analysis.devices.options_at_accelerator import place_of
from accelify.analysis.devices.visible_devices import hidden_on_import, hides_all, hiding
from accelify.analysis.schedules.steps import sources
from accelify.analysis.syntax import dotted, is_constant
from accelify.findings import Safety, Severity
from accelify.transforms.base import Change, Context, Rule
from accelify.writer import edits as verbs
from accelify.writer.edits import Delete

SELECT = Rule(
    "ACC113",
    "Every process would select the same GPU.",
    Severity.ERROR,
    Safety.REVIEW,
    done="removed the choice of one GPU",
)


def selections(context: Context) -> Iterator[Change]:
    """Yield the changes to them."""
    tree, script = context.tree, context.script
    for call in script.calls_to(["torch.cuda.set_device", "torch.cuda.device"]):
        stmt, selects = tree.parent(call), script.qualname(call.func) == "torch.cuda.set_device"
        if selects and isinstance(stmt, ast.Expr):
            yield context.change(
                SELECT,
                call,
                "the GPU is selected by hand",
                [Delete(stmt)],
                core=True,
            )
        contained = isinstance(stmt, ast.withitem) and not selects
        if (
            contained
            and len(call.args) == 1
            and _is_stated(context, call.args[0])
            and not context.is_claimed(call)
        ):
            message = "every process would work on the same GPU in here; the Accelerator has selected its own"
            edit = verbs.replace(call.args[0], "-1")
            yield context.change(SELECT, call, message, [edit], core=True)
    yield from _hidden_by_functions(context)
    for stmt, file in hidden_on_import(context.script):
        message = f"{file} sets CUDA_VISIBLE_DEVICES when it is imported"
        mark = "all processes share the GPUs chosen in here; choose them when launching"
        yield context.todo(SELECT, stmt, message, mark)
    for loop in tree.nodes(ast.For):
        if isinstance(loop.iter, (ast.List, ast.Tuple)) and _tries_out(context, loop, loop.iter):
            yield context.todo(
                SELECT,
                loop,
                "the loop tries out devices by name, the same ones in every process",
                "let the launch choose, as every process tries these devices",
            )
    for stmt in tree.nodes(ast.Assign):
        for target in stmt.targets if not hides_all(stmt) else ():
            if isinstance(target, ast.Subscript) and is_constant(target.slice, "CUDA_VISIBLE_DEVICES"):
                message = "CUDA_VISIBLE_DEVICES is set in the script"
                mark = "all processes share the GPUs named here; choose them when launching"
                if _is_after_accelerator(context, stmt):
                    message = (
                        "CUDA_VISIBLE_DEVICES is set after the Accelerator, where it has no effect any more"
                    )
                    mark = "this has no effect after the Accelerator; choose the GPUs when launching"
                yield context.todo(SELECT, stmt, message, mark)


def _is_after_accelerator(context: Context, stmt: ast.stmt) -> bool:
    """Whether a statement runs only when the Accelerator is made."""
    script, anchor, reach = context.script, context.plan.anchor, context.plan.reach
    if anchor is None or reach is None:
        return False
    scope = script.scope_of(stmt)
    if scope is place_of(script, anchor):
        return not anchor.is_after(context.tree, stmt)
    if script.module_of(stmt).scopes.module is anchor.root:
        return bool(script.callers(scope)) and reach.runs_after_anchor(stmt)
    # A function that every caller can pass the Accelerator to runs when it is made.
    return scope.kind == "function" and context.accelerator(stmt) is not None


def _hidden_by_functions(context: Context) -> Iterator[Change]:
    """Report the calls of functions of modules that are not converted, and that choose the visible GPUs."""
    script = context.script
    for call in script.calls():
        callee = hiding(script, call)
        module = script.interpreter.module_of(callee) if callee is not None else None
        if callee is None or module is None or module in script.modules:
            continue
        file = module.path.name if module.path is not None else "another module"
        yield context.todo(
            SELECT,
            call,
            f"`{callee.name}` sets CUDA_VISIBLE_DEVICES in {file}",
            "all processes share the GPUs chosen here; choose them when launching",
        )


def _is_stated(context: Context, device: ast.expr, far: int = 3) -> bool:
    """Whether a GPU is one that the script names, or that its options do: none that a tensor is on."""
    if isinstance(device, ast.Constant):
        return isinstance(device.value, (int, str))
    if isinstance(device, ast.Attribute) and isinstance(device.value, (ast.Name, ast.Attribute)):
        if holds_options(context.script, device.value):
            return not context.script.is_a(device, v.DEVICE)
    if isinstance(device, ast.Subscript) and isinstance(device.slice, ast.Constant):
        listed = (dotted(device.value) or "").rsplit(".", 1)[-1]
        stated = isinstance(device.slice.value, int) and k.GPU_LIST_NAME.search(listed)
        return bool(stated) and not context.script.is_a(device, v.DEVICE)
    if far == 0 or not isinstance(device, (ast.Name, ast.Attribute)):
        return False
    given = list(sources(context.script, device))
    return bool(given) and all(_is_stated(context, one, far - 1) for one in given)


def _tries_out(context: Context, loop: ast.For, devices: ast.List | ast.Tuple) -> bool:
    """Whether a loop iterates over devices and moves a model or a batch to each."""
    if not devices.elts or not all(
        isinstance(one, ast.Constant) and k.DEVICE_TEXT.match(str(one.value)) for one in devices.elts
    ):
        return False
    return any(
        dotted(target) == dotted(loop.target)
        for call in context.script.calls()
        if any(ancestor is loop for ancestor in context.tree.ancestors(call))
        for target in device_arguments(call)
    )
