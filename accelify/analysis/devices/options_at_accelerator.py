"""Options as they are written where the Accelerator is made: `args.device` there is `self.args.device` in a trainer."""

from __future__ import annotations

import ast
import re

from accelify.analysis.devices.named_devices import NamedDevice, other_name
from accelify.analysis.devices.options import parses
from accelify.analysis.devices.read_only_options import is_read_only
from accelify.analysis.planning.anchors import Anchor
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.statements.option_defaults import option_name
from accelify.analysis.syntax import dotted

# What gives options an entry without writing its name at the options.
_SETTING = (b"set_defaults", b"setattr", b"__dict__[", b"__dict__.update", b").update(", b"Namespace(")


def place_of(script: ScriptModel, anchor: Anchor) -> Scope:
    """The scope in which the Accelerator is made."""
    return anchor.root if anchor.root.kind != "class" else script.scope_of(anchor.before or anchor.block[0])


def wish_seen_from(
    script: ScriptModel, text: str, names: frozenset[str], scope: Scope
) -> tuple[str, frozenset[str]]:
    """A setting and the names that it reads, its attributes of another class's `self` by the names that a scope has.

    A value without a name in a scope has the name that it had.
    """
    for name in sorted(one for one in names if "." in one):
        reads = [node for node in script.tree.nodes(ast.Attribute) if dotted(node) == name]
        if any(_is_own(script, node, scope) for node in reads):
            continue
        others = {other_name(script, node, script.scope_of(node), name, scope) for node in reads} - {None}
        if len(others) == 1:
            other = others.pop() or name
            text = re.sub(rf"(?<![\w.]){re.escape(name)}\b", other, text)
            names = names - {name, name.partition(".")[0]} | {other}
    return text, names


def is_of_another(script: ScriptModel, name: str, scope: Scope) -> bool:
    """Whether `self.name` is read in methods of other classes only than the one that a scope belongs to."""
    reads = [node for node in script.tree.nodes(ast.Attribute) if dotted(node) == name]
    return bool(reads) and not any(_is_own(script, node, scope) for node in reads)


def _is_own(script: ScriptModel, node: ast.expr, scope: Scope) -> bool:
    return scope.owner_class is not None and script.scope_of(node).owner_class is scope.owner_class


def bound_before(script: ScriptModel, anchor: Anchor, devices: list[NamedDevice]) -> list[NamedDevice]:
    """The options naming a device that can be assigned where the Accelerator is made, each once."""
    scope = place_of(script, anchor)
    found: dict[str, NamedDevice] = {}
    for stated in devices:
        own = stated.owner is not None and stated.owner.owner_class is scope.owner_class is not None
        here = stated.owner is scope or (stated.owner is not None and stated.owner.kind == "module")
        stores = [
            n
            for n in script.tree.nodes(ast.Name)
            if n.id == stated.name and isinstance(n.ctx, ast.Store) and script.scope_of(n) is scope
        ]
        late = bool(stores) and min(script.tree.start(n) for n in stores) >= anchor.offset
        if is_read_only(script, stated.option) or is_set_later(script, anchor, stated):
            continue
        if "." in stated.name:
            here, late = own, not _is_set(script, stated.name, scope, anchor)
        if here and not late and scope.resolve(stated.name.split(".")[0]) is not None:
            found.setdefault(stated.text, stated)
    return list(found.values())


def _is_set(script: ScriptModel, name: str, scope: Scope, anchor: Anchor) -> bool:
    """Whether an attribute of `self` is set where the Accelerator is made: in a constructor, further up."""
    if scope.name.rpartition(".")[2] != "__init__":
        return True
    return any(
        script.scope_of(stmt) is scope and script.tree.start(stmt) < anchor.offset
        for stmt in script.tree.assigns(name)
    )


def is_set_later(script: ScriptModel, anchor: Anchor, stated: NamedDevice) -> bool:
    """Whether a parser has no such option, and the script adds the attribute only after the Accelerator is made.

    What shows or stores the options before that has no such entry, and there the Accelerator's device comes in anyway.
    """
    holder, _, name = stated.text.rpartition(".")
    scope = place_of(script, anchor)
    parsed = [s for s in scope.of_type(ast.Assign) if any(dotted(target) == holder for target in s.targets)]
    if not parsed or not all(isinstance(s.value, ast.Call) and parses(s.value) for s in parsed):
        return False
    stores: list[tuple[ast.Attribute, Scope]] = []
    for module in script.program.modules.values():
        tree = module.tree
        if any(tree.mentions(word) for word in _SETTING):
            return False
        if any(option_name(call) in (name, None) for call in tree.nodes(ast.Call) if _adds(call)):
            return False
        if any(dotted(field.target) == name for field in tree.nodes(ast.AnnAssign)):
            return False
        for node in tree.nodes(ast.Attribute) if tree.mentions(name.encode()) else ():
            if node.attr == name and isinstance(node.ctx, ast.Store):
                joint = module in script.modules
                stores.append((node, script.scope_of(node) if joint else module.scopes.of(node)))
    stores = [(node, where) for node, where in stores if dotted(node.value) != where.self_name()]
    return bool(stores) and all(
        dotted(node) == stated.text and where is scope and script.tree.start(node) >= anchor.offset
        for node, where in stores
    )


def _adds(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument"
