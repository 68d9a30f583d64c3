"""Models that a library spreads over all GPUs of the machine: each process has one of them.

model = AutoModel.from_pretrained(name, device_map="auto")
    ->  model = AutoModel.from_pretrained(name, device_map=accelerator.device)

A module that is not converted, and loads one so, is named by ACC714.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis.devices.device_names import names_cpu
from accelify.analysis.syntax import call_keyword, is_constant
from accelify.findings import Severity
from accelify.transforms.base import Change, Context, Rule, short
from accelify.writer import edits as verbs
from accelify.writer.edits import Edit

SPREAD = Rule(
    "ACC126",
    "Every process would spread the model over all GPUs of the machine, or put it on the same one.",
    Severity.ERROR,
    effort=5,
    done="loaded the model to the process's device",
)


def transform(context: Context) -> Iterator[Change]:
    """Yield the device of each process in the place of a map of devices."""
    script, tree = context.script, context.tree
    if not any(module.tree.mentions(b"device_map") for module in script.modules):
        return
    for call in script.calls():
        called = getattr(call.func, "attr", getattr(call.func, "id", ""))
        value = call_keyword(call, "device_map")
        if value is not None and called == "from_pretrained" and not context.is_claimed(value):
            if not _spreads(value):
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


def _spreads(value: ast.expr) -> bool:
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
