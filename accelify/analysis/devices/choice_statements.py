"""Statements that choose a device, among those before which the Accelerator can be made."""

from __future__ import annotations

import ast

from accelify.analysis import values as v
from accelify.analysis.devices.composed_device_texts import is_numbered_gpu
from accelify.analysis.devices.device_names import names_cpu
from accelify.analysis.devices.visible_devices import hides_devices
from accelify.analysis.script import ScriptModel
from accelify.analysis.statements.always_bound import always_binds
from accelify.analysis.syntax import dotted, walk


def chooses_device(script: ScriptModel, stmt: ast.Assign) -> bool:
    """Whether an assignment is the choice of a device by a call."""
    return script.is_a(stmt.value, v.DEVICE) and any(isinstance(n, ast.Call) for n in walk(stmt.value))


def binds_device(script: ScriptModel, stmt: ast.stmt) -> bool:
    """Whether a statement, or a branch of it, binds a name to a device."""
    nodes = walk(stmt) if isinstance(stmt, ast.If) else [stmt]
    values = [n.value for n in nodes if isinstance(n, ast.Assign)]
    return any(script.is_a(value, v.DEVICE) and not script.is_a(value, v.MODEL) for value in values)


def settles_device(script: ScriptModel, block: list[ast.stmt], index: int, needed: frozenset[str]) -> bool:
    """Whether the device is chosen at a place of a block by options that are all known there.

    What is assigned to the options further down does not change it any more.

    Args:
        script: its model.
        block: the statements among which the Accelerator is made.
        index: the place.
        needed: the names that the Accelerator's arguments read.
    """
    stmt = block[index]
    nodes = [n for n in (walk(stmt) if isinstance(stmt, ast.If) else [stmt]) if isinstance(n, ast.Assign)]
    if not any(_is_choice(script, n.value) for n in nodes):
        return False
    ahead = [s for s in block[index:] if not isinstance(s, (ast.FunctionDef, ast.ClassDef))]
    stored = {dotted(n) for s in ahead for n in walk(s) if isinstance(getattr(n, "ctx", None), ast.Store)}
    if not all(any(_binds(s, name) for s in block[:index]) for name in needed & stored):
        return False
    return not any(hides_devices(script, s) for s in ahead)


def _is_choice(script: ScriptModel, value: ast.expr) -> bool:
    written = isinstance(value, (ast.Call, ast.Constant, ast.IfExp)) or is_numbered_gpu(value)
    return (
        written and script.is_a(value, v.DEVICE) and not script.is_a(value, v.MODEL) and not names_cpu(value)
    )


def _binds(stmt: ast.stmt, name: str) -> bool:
    if "." not in name:
        return always_binds(stmt, name)
    return isinstance(stmt, ast.Assign) and any(dotted(target) == name for target in stmt.targets)
