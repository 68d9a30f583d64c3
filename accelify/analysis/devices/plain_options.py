"""Options of OmegaConf, as Hydra gives them, and of configparser: they take texts, and refuse a torch.device."""

from __future__ import annotations

import ast

from accelify.analysis.devices.option_devices import handed_to_parameter
from accelify.analysis.script import ScriptModel
from accelify.analysis.statements.assignments import assigned_once
from accelify.analysis.values import Entity, Imported

_MAKING = ("omegaconf.", "hydra.compose", "configparser.")


def refuses_devices(script: ScriptModel, option: ast.expr, depth: int = 4) -> bool:
    """Whether an entry, or what it is read off, is one of such options.

    Args:
        script: its model.
        option: the entry: `cfg.device`, `cfg.train["device"]`.
        depth: through how many calls its options are followed.
    """
    for value in script.values(option):
        name = value.name if isinstance(value, Imported) else None
        name = value.qualname if isinstance(value, Entity) else name
        if (name or "").startswith(_MAKING):
            return True
    if isinstance(option, (ast.Attribute, ast.Subscript)):
        return refuses_devices(script, option.value, depth)
    if not isinstance(option, ast.Name):
        return False
    made = assigned_once(script.scope_of(option), option) if depth else None  # `section = config["model"]`
    if made is not None and refuses_devices(script, made, depth - 1):
        return True
    return _is_parameter_of_such(script, option, depth)


def _is_parameter_of_such(script: ScriptModel, name: ast.Name, depth: int) -> bool:
    """Whether a parameter is annotated so, is that of Hydra's main function, or gets such options from a call."""
    owner = script.scope_of(name).resolve(name.id)
    found = (
        next((one for one in owner.parameters() if one.arg == name.id), None) if owner is not None else None
    )
    if owner is None or found is None or not isinstance(owner.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return False
    if found.annotation is not None and (script.qualname(found.annotation) or "").startswith(_MAKING):
        return True
    marks = [one.func if isinstance(one, ast.Call) else one for one in owner.node.decorator_list]
    if any(script.qualname(one) == "hydra.main" for one in marks):
        return True
    given = handed_to_parameter(script, name, name.id) if depth else ()
    return any(refuses_devices(script, one, depth - 1) for one in given)
