"""Attributes that the Accelerator's arguments read: whether they are set where it is made."""

from __future__ import annotations

import ast
import re

from accelify.analysis.planning.anchors import Anchor
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import dotted, walk
from accelify.analysis.values import Class, Entity


def text_here(script: ScriptModel, text: str, anchor: Anchor) -> str | None:
    """An argument's text as it can be written at the Accelerator's place.

    `self.args.cpu` is `args.cpu` in a constructor that has not set `self.args` yet but has it as a parameter. None
    where an attribute is read that nothing has set by then.
    """
    root = anchor.root if anchor.root.kind != "class" else script.scope_of(anchor.before or anchor.block[0])
    own = root.self_name() if root.is_method else None
    late: set[str] = set()
    for node in walk(ast.parse(text, mode="eval")):
        if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
            continue
        if node.value.id == own:
            if root.name.rsplit(".", 1)[-1] == "__init__" and not _is_set(script, root, node, anchor.offset):
                late.add(node.attr)
        elif not _has(script, root, node):
            return None
    if late - {a.arg for a in root.parameters()}:
        return None
    for name in late:
        text = re.sub(rf"\b{own}\.{name}\b", name, text)
    return text


def _is_set(script: ScriptModel, scope: Scope, read: ast.Attribute, offset: int) -> bool:
    """Whether a constructor, or what it calls of its base classes, has set an attribute of the object by an offset."""
    for node in scope.nodes:
        if not isinstance(node, (ast.Attribute, ast.Call)) or script.tree.start(node) >= offset:
            continue
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and dotted(node) == dotted(read)
        ):
            return True
        if isinstance(node, ast.Call) and any(s.is_method for s in script.callees(node)):
            return True
    return False


def _has(script: ScriptModel, scope: Scope, read: ast.Attribute) -> bool:
    """Whether an object of a class of the program has an attribute from its beginning; other objects may have any."""
    assert isinstance(read.value, ast.Name)
    owner = scope.resolve(read.value.id)
    contained = (
        script.interpreter.variables.get((owner, read.value.id), set()) if owner is not None else set()
    )
    classes = [one.cls for one in contained if isinstance(one, Entity) and one.cls is not None]
    return not classes or any(_makes(cls, read.attr) for cls in classes)


def _makes(cls: Class, attribute: str) -> bool:
    if cls.external_bases() - {"builtins.object"}:
        return True
    for one in cls.ancestry():
        if attribute in one.scope.locals or any(name.startswith("__get") for name in one.scope.locals):
            return True
        for method in one.scope.children.values():
            if not method.name.endswith("__init__"):
                continue
            for node in method.nodes:
                if (
                    isinstance(node, ast.Attribute)
                    and isinstance(node.ctx, ast.Store)
                    and node.attr == attribute
                ):
                    return True
                if isinstance(node, ast.Call) and dotted(node.func) in ("setattr", "self.__dict__.update"):
                    return True
    return False
