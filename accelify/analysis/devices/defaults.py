"""Parameters that name a GPU by default, and the calls that leave them out: `def sample(n, device="cuda")`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis import knowledge as k
from accelify.analysis.devices.composed_device_texts import is_numbered_gpu
from accelify.analysis.devices.named_devices import NamedDevice, device_arguments
from accelify.analysis.scopes import Scope, handed_to, in_order
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import call_argument, dotted, hides_arguments


def calls_without(script: ScriptModel) -> Iterator[tuple[ast.Call, Scope, str, str]]:
    """The calls that leave a device to its default, each with the function, the parameter and the default's text."""
    known: dict[Scope, list[tuple[str, str]]] = {}
    for call in script.calls():
        callees = in_order(script.callees(call))
        for callee in callees:
            if callee not in known:
                known[callee] = list(_defaults(script, callee))
        if not callees or not known[callees[0]] or any(known[c] != known[callees[0]] for c in callees):
            continue
        if hides_arguments(call):
            continue
        given = {name for callee in callees for _, name in handed_to(call, callee)}
        yield from ((call, callees[0], name, text) for name, text in known[callees[0]] if name not in given)


def is_left_to_default(script: ScriptModel, stated: NamedDevice) -> bool:
    """Whether a named device is a parameter that every call of its function leaves to its default."""
    owner = stated.owner
    if owner is None or owner.kind != "function" or stated.text not in dict(_defaults(script, owner)):
        return False
    left = {
        call for call, callee, name, _ in calls_without(script) if callee is owner and name == stated.text
    }
    return bool(left) and left >= {call for _, call in script.interpreter.callers.get(owner, [])}


def _defaults(script: ScriptModel, callee: Scope) -> Iterator[tuple[str, str]]:
    """The parameters of a function that name a GPU by default, with its text."""
    for argument, default in callee.defaults():
        if argument in callee.node.args.posonlyargs:  # type: ignore[union-attr]
            continue
        text = _text_of(default)
        if text is None or not text.startswith("cuda") or not k.DEVICE_TEXT.match(text):
            continue
        used = (
            dotted(node) == argument.arg
            for call in callee.of_type(ast.Call)
            for node in device_arguments(call)
        )
        if k.DEVICE_NAME.search(argument.arg) or any(used):
            yield argument.arg, text


def _text_of(default: ast.expr | None) -> str | None:
    """`"cuda:0"` and `torch.device("cuda:0")`."""
    if isinstance(default, ast.Call) and (dotted(default.func) or "").endswith("torch.device"):
        default = call_argument(default, 0, "type")
    if is_numbered_gpu(default):
        return "cuda:0"
    return default.value if isinstance(default, ast.Constant) and isinstance(default.value, str) else None
