"""Whether a device is a text where a script chooses it or gets it from options: `"cuda"`, not `torch.device("cuda")`.

A text is compared, written out and looked up as one, wherever it goes: what comes in its place has to be one, too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from accelify.analysis import values as v
from accelify.analysis.devices.choices_by_options import arms_of
from accelify.analysis.devices.device_names import option_name
from accelify.analysis.devices.texts import is_numbered_gpu
from accelify.analysis.program import Module
from accelify.analysis.script import ScriptModel
from accelify.analysis.statements import option_defaults
from accelify.analysis.syntax import call_keyword, is_constant


def texts_of(script: ScriptModel, node: ast.expr) -> list[ast.expr]:
    """The texts that an expression can be, whatever way they come there; none where it can be anything else too.

    Args:
        script: its model.
        node: a device: written out, a choice, a call of a helper, a name, an entry of the options.
    """
    if isinstance(node, (ast.IfExp, ast.BoolOp)):
        parts = [texts_of(script, arm) for arm, _ in arms_of(node)]
        return [text for part in parts for text in part] if all(parts) else []
    entities = script.entities(node, v.DEVICE)
    sites = [entity.site for entity in entities]
    found = [site for site in sites if isinstance(site, ast.expr) and _is_text(site)]
    if len(found) == len(sites) and found:
        return found
    name = None if isinstance(node, ast.Name) else option_name(node)
    return _text_options(script.modules).get(name, []) if name else []


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


__all__ = ["is_numbered", "names_number", "texts_of"]
