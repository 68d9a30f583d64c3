"""Models that a library spreads over all GPUs of the machine: each process has one of them.

model = AutoModel.from_pretrained(name, device_map="auto")
    ->  model = AutoModel.from_pretrained(name, device_map=accelerator.device)

A function of a module that is not converted, which loads one so, is reported where the script calls it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis.devices.device_names import names_cpu
from accelify.analysis.devices.selected import ReachedElsewhere
from accelify.analysis.program import Module
from accelify.analysis.scopes import Scope
from accelify.analysis.syntax import call_keyword, is_constant
from accelify.findings import Severity
from accelify.transforms.base import Change, Context, Rule, short
from accelify.writer import edits as verbs
from accelify.writer.edits import Edit

SPREAD = Rule(
    "ACC126",
    "device-map",
    "Every process would spread the model over all GPUs of the machine, or put it on the same one.",
    Severity.ERROR,
    effort=5,
)


def transform(context: Context) -> Iterator[Change]:
    """Yield the device of each process in the place of a map of devices."""
    script, tree = context.script, context.tree
    yield from _elsewhere(context)
    if not any(module.tree.mentions(b"device_map") for module in script.modules):
        return
    for call in script.calls():
        called = getattr(call.func, "attr", getattr(call.func, "id", ""))
        value = call_keyword(call, "device_map")
        if value is not None and called == "from_pretrained" and not context.is_claimed(value):
            if not _spreads(context, value):
                continue
            accelerator = context.accelerator(call)
            message = (
                f"`device_map={short(tree.segment(value))}` is for one process with all GPUs of the machine"
            )
            edits: list[Edit] = []
            if accelerator is not None:
                context.claim(value)
                edits = [verbs.replace(value, f"{accelerator}.device")]
            else:
                message += ": give it the device of the process, accelerator.device"
            yield context.change(SPREAD, value, message, edits)


def _elsewhere(context: Context) -> Iterator[Change]:
    """Report the calls of functions of modules that are not converted, and that spread a model."""
    spread = ReachedElsewhere(context.script, b"device_map", _is_spread_there)
    for call in context.script.calls() if spread.any else ():
        found = spread.by(call)
        if found is None or context.is_claimed(call) or context.is_guarded(call):
            continue
        callee, (path, line) = found
        file = path.replace("\\", "/").rsplit("/", 1)[-1]
        name = callee.owner_class.name if callee.owner_class is not None else callee.name
        message = (
            f"`{name}` loads a model with a device_map ({file}, line {line}) that is for one process with all GPUs of "
            "the machine: give it the device of the process there"
        )
        yield context.todo(
            SPREAD, call, message, "this spreads a model over all GPUs; leave device_map out there"
        )


def _is_spread_there(module: Module, scope: Scope, call: ast.Call) -> bool:
    """Whether a call gives a model a map that is written out, of more or other devices than the process's."""
    value = call_keyword(call, "device_map")
    if getattr(call.func, "attr", "") != "from_pretrained" or value is None:
        return False
    if isinstance(value, ast.Dict):
        return not all(is_constant(one, "cpu") or _is_of_process(one) for one in value.values)
    return isinstance(value, ast.Constant) and not is_constant(value, None, "cpu")


def _spreads(context: Context, value: ast.expr) -> bool:
    """Whether a map may name more, or another one, than the device of the process."""
    if is_constant(value, None) or names_cpu(value):
        return False
    if isinstance(value, ast.Attribute) and value.attr == "device":
        return False  # that of the Accelerator, or of another model
    if isinstance(value, ast.Dict):
        return not all(is_constant(one, "cpu") or _is_of_process(one) for one in value.values)
    return True


def _is_of_process(value: ast.expr) -> bool:
    return isinstance(value, ast.Attribute) and value.attr in (
        "device",
        "process_index",
        "local_process_index",
    )


__all__ = ["SPREAD", "transform"]
