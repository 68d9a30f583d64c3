"""Whether a device is a text where a script chooses it or gets it from options: `"cuda"`, not `torch.device("cuda")`.

A text is compared, written out and looked up as one, wherever it goes: what comes in its place has to be one, too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

from accelify.analysis import values as v
from accelify.analysis.devices.choices_by_options import arms_of
from accelify.analysis.devices.composed_device_texts import is_numbered_gpu
from accelify.analysis.devices.device_names import option_name
from accelify.analysis.program import Module
from accelify.analysis.scopes import Scope, handed_to
from accelify.analysis.script import ScriptModel
from accelify.analysis.statements import option_defaults
from accelify.analysis.statements.assignments import assigned_once
from accelify.analysis.syntax import call_keyword, dotted, is_constant

# How many calls and names one text is followed through.
_DEPTH = 4


def texts_of(script: ScriptModel, node: ast.expr) -> list[ast.expr]:
    """The texts that an expression can be, whatever way they come there; none where it can be anything else too.

    Args:
        script: its model.
        node: a device: written out, a choice, a call of a helper, a name, an entry of the options.
    """
    return _texts(script, node, {}, _DEPTH)


def in_place_of(script: ScriptModel, devices: Sequence[ast.expr], accelerator: str) -> str:
    """The Accelerator's device for what was one of some devices: as a text where each of them is one."""
    written, device = _all(texts_of(script, one) for one in devices), f"{accelerator}.device"
    if not devices or not written:
        return device
    return f"str({device})" if is_numbered(written) else f"{device}.type"


def _texts(
    script: ScriptModel, node: ast.expr, given: dict[str, list[ast.expr]], depth: int
) -> list[ast.expr]:
    """The same, with the texts that the parameters of the function around have, and how far to follow calls."""
    if isinstance(node, (ast.IfExp, ast.BoolOp)):
        return _all(_texts(script, arm, given, depth) for arm, _ in arms_of(node))
    if isinstance(node, ast.Call) and script.qualname(node.func) == "builtins.str" and len(node.args) == 1:
        number = names_number(script, node.args[0]) if depth else False
        return [ast.Constant("cuda:0" if number else "cuda")]
    sites = [entity.site for entity in script.entities(node, v.DEVICE)]
    found = [site for site in sites if isinstance(site, ast.expr) and _is_text(site)]
    if len(found) == len(sites) and found:
        return found
    if any(site is not None and site not in found for site in sites) or not depth:
        return []
    if isinstance(node, ast.Name):
        made = given.get(node.id, [])
        value = None if made else assigned_once(script.scope_of(node), node)
        return made if value is None else _texts(script, value, given, depth - 1)
    if isinstance(node, ast.Call) and (callees := script.callees(node)):
        return _all(_given_back(script, node, callee, given, depth - 1) for callee in callees)
    name = option_name(node)
    return _text_options(script.modules).get(name, []) if name else []


def _given_back(
    script: ScriptModel, call: ast.Call, callee: Scope, given: dict[str, list[ast.expr]], depth: int
) -> list[ast.expr]:
    """The texts that a function gives back to a call."""
    defaults = {argument.arg: default for argument, default in callee.defaults()}
    taken = defaults | {name: value for value, name in handed_to(call, callee)}
    values = {name: _texts(script, value, given, depth) for name, value in taken.items()}
    returned = [stmt.value for stmt in callee.of_type(ast.Return)]
    texts = _all(_texts(script, value, values, depth) if value is not None else [] for value in returned)
    if not texts and dotted(getattr(callee.node, "returns", None)) == "str":
        return [call]
    return texts


def _all(parts: Iterable[list[ast.expr]]) -> list[ast.expr]:
    """The texts of all ways; none where one of them has none."""
    ways = list(parts)
    return [text for way in ways for text in way] if all(ways) else []


def is_numbered(texts: Iterable[ast.expr]) -> bool:
    """Whether one of some texts names a GPU by its number."""
    return any(is_numbered_gpu(one) or ":" in str(getattr(one, "value", "")) for one in texts)


def names_number(script: ScriptModel, node: ast.expr) -> bool:
    """Whether a device that a script chooses is a GPU by its number, as a text or as a torch.device."""
    sites = [entity.site for entity in script.entities(node, v.DEVICE)]
    if any(isinstance(site, ast.Call) and len(site.args) > 1 for site in sites):
        return True
    inner = [arg for site in sites if isinstance(site, ast.Call) for arg in site.args[:1]]
    return is_numbered([*texts_of(script, node), *[arm for arg in inner for arm, _ in arms_of(arg)]])


def _is_text(node: ast.expr) -> bool:
    return (isinstance(node, ast.Constant) and isinstance(node.value, str)) or is_numbered_gpu(node)


def _text_options(modules: Iterable[Module]) -> dict[str, list[ast.expr]]:
    """The options that a parser leaves as the texts which they are, with their defaults or the option as written."""
    found: dict[str, list[ast.expr]] = {}
    others: set[str] = set()
    for module in modules:
        for call in module.tree.nodes(ast.Call) if module.tree.mentions(b"add_argument") else ():
            is_option = getattr(call.func, "attr", "") == "add_argument"
            name = option_defaults.option_name(call) if is_option else None
            if name is None:
                continue
            kind, default = call_keyword(call, "type"), call_keyword(call, "default")
            plain = kind is None or (isinstance(kind, ast.Name) and kind.id == "str")
            listed = call_keyword(call, "action") is not None or call_keyword(call, "nargs") is not None
            chosen = [arm for arm, _ in arms_of(default)] if default is not None else []
            written = [arm for arm in chosen if not is_constant(arm, None)] or [call.args[0]]
            if plain and not listed and all(map(_is_text, written)):
                found.setdefault(name, []).extend(written)
            else:
                others.add(name)
    return {name: texts for name, texts in found.items() if name not in others}
