"""Devices that a script gets by name: `args.device`, `config["device"]`, a parameter `device="cuda:0"`."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import NamedTuple

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.devices.device_as_text import is_numbered, names_number, texts_of
from accelify.analysis.devices.names_only_shown import is_shown
from accelify.analysis.devices.option_devices import Way, Ways, handed_to_parameter, self_of
from accelify.analysis.devices.options import holds_options
from accelify.analysis.devices.plain_options import refuses_devices
from accelify.analysis.files.effect_sites import is_stored
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import call_keyword, dotted
from accelify.analysis.values import Entity, Method

# Methods of a string that a device's kind alone would not do for.
_WHOLE_TEXT = frozenset(
    "split rsplit partition rpartition replace strip lower upper removeprefix join".split()
)
_BY_KIND = k.AUTOCAST_CLASSES | k.SCALER_CLASSES
# What writes options as text that has no devices.
_DUMPING = (b"json.dump", b"yaml.dump", b"safe_dump", b"toml.dump", b"pyrallis.dump", b"OmegaConf.save")


class NamedDevice(NamedTuple):
    """A device read from options: its source text, the scope that binds the name it begins with, and that name.

    `option` is the expression, `options` what it is read off; `others` are the names that hold the same, and `copies`
    the values of these that are written as the option.
    """

    text: str
    owner: Scope | None
    name: str
    options: ast.expr | None = None
    others: frozenset[str] = frozenset()
    copies: frozenset[ast.expr] = frozenset()
    option: ast.expr | None = None

    @property
    def wish(self) -> str:
        """What is true where the option asks for the CPU, as source text."""
        return f'str({self.text}) == "cpu"'


def named_devices(script: ScriptModel, chosen: set[str]) -> list[NamedDevice]:
    """The options that something is moved to, those in `chosen` (assigned by the script itself) left out."""
    found: dict[tuple[str, Scope | None], NamedDevice] = {}
    ways = Ways(script, lambda node: _is_option(script, node))
    for node in [n for call in script.calls() for n in device_arguments(call)]:
        text = _text(script, node)
        if not text or text in chosen:
            continue
        stated = [Way(node, frozenset(), ())] if _is_option(script, node) else list(ways.to(node))
        for way in stated:
            named = _named(script, way)
            if chosen & {named.text, *way.names}:
                continue
            known = found.get((named.text, named.owner), named)
            found[named.text, named.owner] = known._replace(
                others=known.others | named.others, copies=known.copies | named.copies
            )
    return list(found.values())


def _text(script: ScriptModel, node: ast.expr) -> str:
    return dotted(node) or (script.tree.segment(node) if isinstance(node, ast.Subscript) else "")


def _named(script: ScriptModel, way: Way) -> NamedDevice:
    node = way.option
    text, root = _text(script, node), node
    while isinstance(root, (ast.Attribute, ast.Subscript)):
        root = root.value
    assert isinstance(root, ast.Name)
    scope = script.scope_of(node)
    name = root.id
    if root.id == self_of(scope) and text.count(".") + text.count("[") > 1:
        name = ".".join(text.partition("[")[0].split(".")[:2])
    options = node.value if isinstance(node, (ast.Attribute, ast.Subscript)) else None
    return NamedDevice(text, scope.resolve(root.id), name, options, way.names, frozenset(way.copies), node)


def seen_from(script: ScriptModel, stated: NamedDevice, scope: Scope) -> NamedDevice:
    """The same device by the name that its options have in another scope: `conf.device`, of `config.device` here.

    Where that scope has no name for them, the device as it is.
    """
    if stated.owner is scope or stated.owner is None or stated.owner.kind != "function":
        return stated
    if stated.owner.owner_class is not None and stated.owner.owner_class is scope.owner_class:
        return stated
    name = other_name(script, stated.options, stated.owner, stated.name, scope)
    if name is None:
        return stated
    return stated._replace(text=name + stated.text.removeprefix(stated.name), owner=scope, name=name)


def other_name(
    script: ScriptModel, node: ast.expr | None, owner: Scope, name: str, scope: Scope
) -> str | None:
    """The name in another scope of what a name holds, or an attribute of `self`; None where it has none."""
    text = Ways(script, lambda _: False).seen_from(node, scope) if node is not None else None
    if text is not None and "." not in text:
        return text
    variables = script.interpreter.variables
    contained = variables.get((owner, name)) or (script.values(node) if node is not None else set())
    return next(
        (n for (other, n), values in variables.items() if other is scope and contained & values), None
    )


def device_arguments(call: ast.Call) -> list[ast.expr]:
    """The arguments of a call that say where to place its result."""
    found = []
    if isinstance(call.func, ast.Attribute) and call.func.attr == "to" and call.args:
        found.append(call.args[0])
    for value in (call_keyword(call, "device"), call_keyword(call, "map_location")):
        if value is not None:
            found.append(value)
    return found


def device_for(
    script: ScriptModel,
    text: str,
    accelerator: str,
    others: frozenset[str] = frozenset(),
    original: ast.expr | None = None,
) -> str:
    """What to assign to a device's name: the Accelerator's device, as text where the script reads the name as text.

    Args:
        script: its model.
        text: the source text of the name: `device`, `args.device`.
        accelerator: the expression of the Accelerator.
        others: further names that get what is assigned.
        original: the device in whose place it comes: for a text comes a text, which torch takes for this process's.
    """
    tree, texts = script.tree, {text, *others}

    def means(node: ast.AST) -> bool:
        if isinstance(node, ast.Subscript):
            return tree.segment(node) in texts
        return isinstance(node, (ast.Name, ast.Attribute)) and dotted(node) in texts

    device = as_numbered(script, texts, accelerator, original)
    for node in tree.nodes(ast.Attribute, ast.Subscript, ast.BinOp):
        if isinstance(node, ast.Attribute):
            whole = node.attr in _WHOLE_TEXT and means(node.value) and _is_called(script, node)
        elif isinstance(node, ast.Subscript):
            whole = means(node.value) and not isinstance(node.ctx, ast.Store)
        else:
            whole = isinstance(node.op, ast.Add) and (means(node.left) or means(node.right))
        if whole:
            return f"str({device})"
    parts_of = {node.attr for node in tree.nodes(ast.Attribute) if means(node.value)}
    if not parts_of & {"type", "index"}:
        if original is not None and (written := texts_of(script, original)):
            return f"str({device})" if is_numbered(written) else f"{device}.type"
        if _is_written_out(script, text):
            return f"str({device})"
    for compare in tree.nodes(ast.Compare):
        parts = [compare.left, *compare.comparators]
        if any(means(p) for p in parts) and any(_is_text(p) for p in parts):
            return f"{device}.type"
    for attribute in tree.nodes(ast.Attribute):
        if attribute.attr in ("startswith", "endswith") and means(attribute.value):
            return f"{device}.type"
    for call in script.calls():
        of_kind = call_keyword(call, "device_type")
        first = call.args[0] if call.args and script.qualname(call.func) in _BY_KIND else None
        if any(node is not None and means(node) for node in (of_kind, first)):
            return f"{device}.type"
    entry = isinstance(original, (ast.Attribute, ast.Subscript)) and ("." in text or "[" in text)
    if original is not None and entry and refuses_devices(script, original):
        return f"str({device})"
    return device


def as_numbered(script: ScriptModel, texts: set[str], accelerator: str, original: ast.expr | None) -> str:
    """The Accelerator's device, as a tensor says it where the number is asked for: one process has none of its own.

    Args:
        script: its model.
        texts: the source texts of the names that get it.
        accelerator: the expression of the Accelerator.
        original: the device in whose place it comes, where that is known.
    """
    device = f"{accelerator}.device"
    if original is not None and _needs_number(script, texts, original):
        return f"torch.empty(0, device={device}).device"
    return device


def _needs_number(script: ScriptModel, texts: set[str], original: ast.expr) -> bool:
    """Whether a device that names a GPU by its number is shown, or asked for that number."""
    if not names_number(script, original):
        return False
    if not all("torch" in module.scopes.module.locals for module in script.modules):
        return False
    tree = script.tree
    for node in tree.nodes(ast.Name, ast.Attribute):
        holder = isinstance(node, ast.Name) and any(text.startswith(f"{node.id}.") for text in texts)
        if not (holder or dotted(node) in texts) or not isinstance(node.ctx, ast.Load):
            continue
        parent = tree.parent(node)
        if is_shown(tree, node) and not (holder and isinstance(parent, ast.Attribute)):
            return True
        if isinstance(parent, ast.Attribute) and not holder and parent.attr in {"index", *_WHOLE_TEXT}:
            return True
        if isinstance(parent, ast.Compare) and is_numbered([parent.left, *parent.comparators]):
            return True
    return False


def _is_written_out(script: ScriptModel, text: str) -> bool:
    """Whether a module may write the options that hold a name as JSON or YAML, which know no devices."""
    holder = text.partition("[")[0] if "[" in text else text.rpartition(".")[0]
    named = [f"{word}({holder}".encode() for word in ("dump", "dumps", "save")]
    words = (b"vars(", b"__dict__", b"asdict(", *named)
    return bool(holder) and any(
        any(module.tree.mentions(word) for word in _DUMPING)
        and any(module.tree.mentions(word) for word in words)
        for module in script.program.modules.values()
    )


def _is_called(script: ScriptModel, node: ast.Attribute) -> bool:
    parent = script.tree.parent(node)
    return isinstance(parent, ast.Call) and parent.func is node


def _is_text(node: ast.expr) -> bool:
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        return any(_is_text(part) for part in node.elts)
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_option(script: ScriptModel, node: ast.expr) -> bool:
    """Whether an expression is an entry of the script's options (and not the device of a tensor or a model)."""
    if isinstance(node, ast.Name):
        # What callers pass by a name is set by a caller further out.
        return (_is_defaulted(script, node) or _is_of_unknown_caller(script, node)) and not any(
            isinstance(given, (ast.Name, ast.Attribute, ast.Subscript))
            for given in handed_to_parameter(script, node, node.id)
        )
    if not isinstance(node, (ast.Attribute, ast.Subscript)):
        return False
    base = node.value
    if isinstance(node, ast.Subscript):
        name = node.slice.value if isinstance(node.slice, ast.Constant) else None
        while isinstance(base, ast.Subscript) and isinstance(base.slice, ast.Constant):
            base = base.value
    else:
        name = node.attr
    by_self = isinstance(base, ast.Name) and base.id == script.scope_of(node).self_name()
    has_name = isinstance(base, (ast.Name, ast.Attribute)) and not by_self
    if not has_name or not isinstance(name, str):
        return False
    return bool(k.DEVICE_NAME.search(name) or _is_moved_to(script, node)) and holds_options(script, base)


def _is_moved_to(script: ScriptModel, node: ast.expr) -> bool:
    """Whether a model or a batch is moved to it, and nothing is known of it: of options that can only be a device.

    It may have another name where they are moved, and a name like that of a switch where it is for moves alone.
    """
    tree, text = script.tree, _text(script, node)
    above = tree.parent(node)
    moves: Sequence[ast.expr] = [node]
    if isinstance(above, ast.Assign) and len(above.targets) == 1 and isinstance(above.targets[0], ast.Name):
        owner = script.scope_of(above).resolve(above.targets[0].id)
        moves = script.reads(above.targets[0].id, owner) if owner is not None else []
    if not any(_moves_to(script, one) for one in moves):
        return False
    texts = {text, *(_text(script, one) for one in moves)}
    if any(_text(script, kw.value) in texts for kw in tree.nodes(ast.keyword) if kw.arg == "dtype"):
        return False
    known = [one for one in script.values(node) if not isinstance(one, Method)]
    if any(not isinstance(one, Entity) or one.qualname is not None for one in known):
        return False
    if all(isinstance(one, Entity) and one.kind == v.UNKNOWN for one in known):
        return True
    named = [one for one in tree.nodes(type(node)) if _text(script, one) == text]
    return all(isinstance(one, Entity) and one.kind in (v.UNKNOWN, v.FLAG) for one in known) and all(
        _moves_to(script, one) for one in named
    )


def _moves_to(script: ScriptModel, node: ast.expr) -> bool:
    call = script.tree.parent(node)
    return (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == "to"
        and call.args == [node]
        and not call.keywords
        and script.is_a(call.func.value, v.MODEL, v.BATCH)
    )


def _is_defaulted(script: ScriptModel, name: ast.Name) -> bool:
    """A parameter whose default is a device's name."""
    owner = script.scope_of(name).resolve(name.id)
    return owner is not None and any(
        argument.arg == name.id
        and isinstance(default, ast.Constant)
        and isinstance(default.value, str)
        and bool(k.DEVICE_TEXT.match(default.value))
        for argument, default in owner.defaults()
    )


def _is_of_unknown_caller(script: ScriptModel, name: ast.Name) -> bool:
    """A parameter without default of a function that trains, and that nobody in these files calls.

    So is one of the constructor of an object that trains: `def __init__(self, args, device)`.
    """
    owner = script.scope_of(name).resolve(name.id)
    if owner is None or owner.kind != "function" or not k.DEVICE_NAME.search(name.id):
        return False
    if owner.is_method and owner.name.rpartition(".")[2] != "__init__":
        return False  # the Accelerator is made where the object is
    defaulted = {argument.arg for argument, _ in owner.defaults()}
    if name.id in defaulted or all(argument.arg != name.id for argument in owner.parameters()):
        return False
    trains = owner in script.training_scopes or (
        owner.owner_class is not None
        and any(scope.owner_class is owner.owner_class for scope in script.training_scopes)
    )
    called = bool(script.callers(owner) or script.called_from_elsewhere(owner))
    return trains and not called and not is_stored(owner, name.id)
