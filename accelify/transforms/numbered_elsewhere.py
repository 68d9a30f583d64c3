"""GPUs that functions of modules which are not converted use by the number of an option.

data = Waves(args)      ->  (a finding, where its class makes tensors with `device=args.gpu`)

A number that is written out there is named by ACC714, as is a checkpoint without a map_location. `"cuda"` without a
number is the GPU of each process, once the Accelerator is made.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis import knowledge as k
from accelify.analysis.devices.numbered import NumberedDevices
from accelify.analysis.modules.come_to import come_to
from accelify.transforms.base import Change, Context
from accelify.transforms.device_constants import CONSTANT


def transform(context: Context) -> Iterator[Change]:
    """Yield a finding for each such place, at the first call of the script that reaches it."""
    script, numbers = context.script, NumberedDevices(context.script)
    others = {one for one in script.program.modules.values() if one not in script.modules}
    apart = {one for one in others if numbers.stands_in(one.tree)}
    if context.plan.arguments.get("cpu") == "True" or not apart:
        return
    named = {stated.text.rpartition(".")[2] for stated in context.plan.named_devices}
    found: dict[ast.Call, list[str]] = {}
    for call, module, scope in come_to(script, b"device", b".cuda(", b".to("):
        if module not in apart or context.plan.on_main_only(call) or context.is_guarded(call):
            continue
        for node in scope.calls:
            given = numbers.of(node)
            if given is None or isinstance(given, ast.Constant) or getattr(given, "attr", "") in named:
                continue
            library = (context.effects.qualname(module, scope, node.func) or "torch").partition(".")[0]
            if library in k.TORCH_LIBRARIES and not script.interpreter.calls.get(node):
                file = module.path.name if module.path is not None else "another module"
                found.setdefault(call, []).append(f"{file}, line {node.lineno}")
    for call, places in found.items():
        message = (
            f"this call reaches a GPU that is used by its number ({'; '.join(places)}), the same one for every "
            'process: without the number, "cuda" is each process\'s own'
        )
        yield context.change(CONSTANT, call, message)
