"""Data that functions of modules which are not converted put on one GPU in every process.

model = read(path)      ->  (a finding, where `read` loads a checkpoint without a map_location)
                        ->  model = read(path, map_location=accelerator.device)    (where it takes one, by default None)
data = Waves(folder)    ->  (a finding, where its class uses "cuda:1" by the number, or `device=args.gpu`)

A checkpoint without a map_location goes to the GPU that it was saved from. `"cuda"` without a number is the GPU of each
process, once the Accelerator is made.
"""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Iterator

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.devices.handed_numbers import handed_numbers
from accelify.analysis.devices.numbered import NumberedDevices
from accelify.analysis.files.effect_sites import is_stored
from accelify.analysis.modules.come_to import come_to
from accelify.analysis.program import Module
from accelify.analysis.scopes import Scope, handed_to
from accelify.analysis.statements.none_values import is_ruled_out
from accelify.analysis.syntax import (
    call_argument,
    call_keyword,
    dotted,
    hides_arguments,
    is_constant,
    target_names,
    walk,
)
from accelify.transforms.base import Change, Context
from accelify.transforms.device_constants import CONSTANT
from accelify.transforms.loading import CHECKPOINT, LOAD
from accelify.transforms.unnumbered import unnumbered
from accelify.writer import edits as verbs
from accelify.writer.edits import Edit

_NUMBERED = re.compile(r"^cuda:\d+$")
_PLACING = frozenset({"device", "to"})
_RESUMING = re.compile(r"check_?point|ckpt|resume|restore", re.I)
# Entries of a checkpoint that hold tensors of the device.
_WEIGHTS = re.compile(r"state_?dict|^weights$|^(model|net|network|optimi[sz]er|optim)(_state)?$", re.I)


def transform(context: Context) -> Iterator[Change]:
    """Yield a finding for each such place, at the first call of the script that reaches it."""
    if context.plan.arguments.get("cpu") == "True":
        return
    loads: dict[ast.Call, list[str]] = {}
    devices: dict[ast.Call, list[str]] = {}
    for call, module, scope in come_to(context.script, b"torch.load", b"import load", b"cuda:"):
        if context.plan.on_main_only(call) or context.is_guarded(call):
            continue
        if isinstance(call.func, ast.Attribute) and call.func.attr == "__init__":
            continue  # what a base class chooses is overwritten after it
        file = module.path.name if module.path is not None else "another module"
        returned = {
            n.id for s in scope.of_type(ast.Return) if s.value for n in walk(s.value)
            if isinstance(n, ast.Name)
        }  # fmt: skip
        for node in scope.nodes:
            if isinstance(node, ast.Call) and _loads_anywhere(context, module, scope, node, call):
                stated = _device_parameter(node, scope)
                callers = context.script.callers(scope) if stated else []
                for caller in callers:
                    yield from _stated(context, caller, scope, str(stated), f"{file}, line {node.lineno}")
                if not callers:
                    loads.setdefault(call, []).append(f"{file}, line {node.lineno}")
            elif (
                isinstance(node, ast.Constant)
                and _is_used_device(module, node, returned)
                and not unnumbered(context, module, node, CONSTANT)
            ):
                devices.setdefault(call, []).append(f"{file}, line {node.lineno}")
    for call, place in _by_number(context):
        devices.setdefault(call, []).append(place)
    for call, places in loads.items():
        message = (
            f"this call loads a checkpoint to where it was saved (torch.load in {'; '.join(places)}), from a GPU on "
            'every process to the same one: give it a map_location there, "cpu" or, for what is used as it is, the '
            "device of each process"
        )
        yield context.change(LOAD, call, message)
    for call, places in devices.items():
        message = (
            f"this call reaches a GPU that is used by its number ({'; '.join(places)}), the same one for every "
            'process: without the number, "cuda" is each process\'s own'
        )
        yield context.change(CONSTANT, call, message)


def _by_number(context: Context) -> Iterator[tuple[ast.Call, str]]:
    """Where such functions go by a written number, or by that of an option: `Iterator(data, device=args.gpu)`."""
    numbers = NumberedDevices(context.script)
    apart = {
        module
        for module in context.script.program.modules.values()
        if module not in context.script.modules and numbers.stands_in(module.tree)
    }
    if not apart:
        return
    named = {stated.text.rpartition(".")[2] for stated in context.plan.named_devices}
    reported = {one.place for one in handed_numbers(context.script)}
    for call, module, scope in come_to(context.script, b"device", b".cuda(", b".to("):
        if module not in apart or context.plan.on_main_only(call) or context.is_guarded(call):
            continue
        for node in scope.calls:
            given = numbers.of(node) if node not in reported else None
            if given is None or getattr(given, "attr", "") in named:
                continue
            library = (context.effects.qualname(module, scope, node.func) or "torch").partition(".")[0]
            if library not in k.TORCH_LIBRARIES or context.script.interpreter.calls.get(node):
                continue
            yield (
                call,
                f"{module.path.name if module.path is not None else 'another module'}, line {node.lineno}",
            )


def _loads_anywhere(context: Context, module: Module, scope: Scope, load: ast.Call, call: ast.Call) -> bool:
    """Whether a call loads a checkpoint or a model without a device to load it to."""
    if not (dotted(load.func) or "").endswith("load") or len(load.args) != 1:
        return False
    placing = [kw for kw in load.keywords if kw.arg in ("map_location", None)]
    if placing and _device_parameter(load, scope) is None:
        return False
    if context.effects.qualname(module, scope, load.func) != "torch.load":
        return False
    if is_ruled_out(context.script, load, scope):
        return False  # `if pretrained:`, where every call leaves it at False
    for ancestor in module.tree.ancestors(load):
        if isinstance(ancestor, ast.Call) and isinstance(ancestor.func, ast.Attribute):
            if ancestor.func.attr == "load_state_dict":
                return True
        if isinstance(ancestor, ast.Assign):
            names = {n for t in ancestor.targets for n in target_names(t)}
            return any(map(CHECKPOINT.search, names)) or _resumes(scope) or _has_weights(scope, names)
        if isinstance(ancestor, ast.Return):
            model = context.script.is_a(call, v.MODEL) and scope in context.script.callees(call)
            return model or _resumes(scope)
    return False


def _device_parameter(load: ast.Call, scope: Scope) -> str | None:
    """The parameter that sets a load's device, where it is None unless a call passes it."""
    given = call_keyword(load, "map_location")
    if not isinstance(given, ast.Name) or is_stored(scope, given.id):
        return None
    return next((a.arg for a, d in scope.defaults() if a.arg == given.id and is_constant(d, None)), None)


def _stated(context: Context, call: ast.Call, callee: Scope, parameter: str, place: str) -> Iterator[Change]:
    """The device for a call that does not set where a function loads a checkpoint."""
    starred = hides_arguments(call)
    if starred or context.plan.on_main_only(call) or context.is_guarded(call) or context.is_claimed(call):
        return
    if any(name == parameter for _, name in handed_to(call, callee)):
        return
    message = f"this call loads a checkpoint to where it was saved (torch.load in {place})"
    accelerator = context.accelerator(call)
    edits: list[Edit] = []
    if accelerator is not None:
        with contextlib.suppress(verbs.EditError):
            edits.append(verbs.AddArgument(call, f"{parameter}={accelerator}.device"))
    yield context.change(LOAD, call, message, edits)


def _resumes(scope: Scope) -> bool:
    """Whether a function is named after the checkpoint that it loads."""
    return _RESUMING.search(scope.name.rpartition(".")[2]) is not None


def _has_weights(scope: Scope, names: set[str]) -> bool:
    """Whether weights or an optimizer's state are taken out of the value of a name: `parts["model"]`."""
    return any(
        isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Name)
        and node.value.id in names
        and isinstance(node.slice, ast.Constant)
        and isinstance(node.slice.value, str)
        and _WEIGHTS.search(node.slice.value)
        for node in scope.nodes
    )


def _is_used_device(module: Module, text: ast.Constant, returned: set[str]) -> bool:
    """Whether a constant is a GPU with its number, to which something is moved or on which it is made.

    A device that the function returns is used by its caller: the script's device is then the Accelerator's.
    """
    if not isinstance(text.value, str) or not _NUMBERED.match(text.value):
        return False
    stmt = module.tree.statement(text)
    if isinstance(stmt, ast.Return):
        return False
    if isinstance(stmt, ast.Assign) and any(returned.intersection(target_names(t)) for t in stmt.targets):
        return False
    node: ast.AST = text
    while isinstance(parent := module.tree.parent(node), ast.IfExp) and node is not parent.test:
        node = parent
    if isinstance(parent, ast.keyword):
        return parent.arg == "device"
    if not isinstance(parent, ast.Call) or node is not call_argument(parent, 0, "device"):
        return False
    return (dotted(parent.func) or str(getattr(parent.func, "attr", ""))).rpartition(".")[2] in _PLACING


__all__ = ["transform"]
