"""Devices that are read off a tensor or a parameter, which is where that is, and no choice: `t.to(table.device)`."""

from __future__ import annotations

import ast

from accelify.analysis import values as v
from accelify.analysis.devices.options import OF_TENSORS, holds_options
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import dotted

_TENSORS = frozenset({v.BATCH, v.OUTPUT, v.TENSOR, v.PARAMETERS})
# What reads options from a file, which is not looked into.
_FILES = (b"yaml", b"json.load", b"toml", b"OmegaConf", b"hydra", b"ConfigParser")
_SETTING = (ast.Attribute, ast.keyword, ast.arg, ast.AnnAssign, ast.Constant)
_PARTS = frozenset({"weight", "bias", "data", "grad"})


def is_read_off(script: ScriptModel, node: ast.Attribute) -> bool:
    """Whether `x.device` is where a tensor, a parameter or what is indexed or called is.

    Args:
        script: its model.
        node: the attribute.
    """
    base = node.value
    if isinstance(base, (ast.Call, ast.Subscript)):
        return True
    if isinstance(base, ast.Attribute) and base.attr in _PARTS:
        return True
    if not isinstance(base, (ast.Name, ast.Attribute)):
        return False
    entities = script.entities(base)
    if entities and all(entity.kind in _TENSORS for entity in entities):
        return True
    if not isinstance(base, ast.Name) or holds_options(script, base):
        return False
    scope = script.scope_of(base)
    own = scope.kind == "function" and scope.resolve(base.id) is scope and base.id != scope.self_name()
    open_kind = all(entity.kind in _TENSORS | {v.UNKNOWN} for entity in entities)
    return own and open_kind and _is_used_as_tensor(script, scope, base.id)


def _is_used_as_tensor(script: ScriptModel, scope: Scope, name: str) -> bool:
    """Whether a function uses the value of a name as only a tensor can be used, or passes it to torch."""
    for node in scope.nodes:
        if isinstance(node, ast.Attribute) and node.attr in OF_TENSORS and dotted(node.value) == name:
            return True
        if isinstance(node, ast.Call) and name in map(dotted, node.args):
            if (script.qualname(node.func) or "").startswith("torch."):
                return True
    return False


def is_set_nowhere(script: ScriptModel, options: ast.expr | None, name: str) -> bool:
    """Whether options that are read from a parameter get no such entry anywhere in the program.

    Args:
        script: its model.
        options: what the entry is read off: `module.config`.
        name: the entry.
    """
    root = options
    while isinstance(root, (ast.Attribute, ast.Subscript)):
        root = root.value
    if not isinstance(root, ast.Name) or root is options:
        return False
    scope = script.scope_of(root)
    if root.id == scope.self_name() or root.id not in {a.arg for a in scope.parameters()}:
        return False
    trees = {id(module.tree): module.tree for module in script.program.modules.values()}
    if any(tree.mentions(word) for tree in trees.values() for word in _FILES):
        return False
    return not any(_sets(node, name) for tree in trees.values() for node in tree.nodes(*_SETTING))


def _sets(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr == name and not isinstance(node.ctx, ast.Load)
    if isinstance(node, (ast.keyword, ast.arg)):
        return node.arg == name
    if isinstance(node, ast.AnnAssign):
        return isinstance(node.target, ast.Name) and node.target.id == name
    return isinstance(node, ast.Constant) and node.value in (name, f"--{name}")
