"""Options that take no other value once they are made: fields of frozen classes, named tuples, computed attributes."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis import values as v
from accelify.analysis.devices.device_names import option_name
from accelify.analysis.devices.named_devices import NamedDevice, device_arguments
from accelify.analysis.interpretation.record_classes import NAMED
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import call_argument, call_keyword, dotted, is_constant, walk
from accelify.analysis.values import Class, Entity, Imported

# What is made by these takes no other value; of the last a value that is set, only by `update`.
_UNCHANGING = frozenset(
    {NAMED, "types.MappingProxyType", "frozendict.frozendict", "immutabledict.immutabledict", "wandb.config"}
)
_FROZEN_MARKS = frozenset({"attr.frozen", "attrs.frozen", "frozen"})


def uses_of(script: ScriptModel, stated: NamedDevice) -> Iterator[ast.expr]:
    """Where something is placed on a device of options that cannot be set."""
    if not is_read_only(script, stated.option):
        return
    for call in script.calls():
        for node in device_arguments(call):
            written = dotted(node) or (script.tree.segment(node) if isinstance(node, ast.Subscript) else "")
            if written == stated.text and script.scope_of(node).resolve(stated.name) is stated.owner:
                yield node


def is_read_only(script: ScriptModel, option: ast.expr | None) -> bool:
    """Whether an option cannot be set: `config.device` of a frozen data class, of a property without setter."""
    if not isinstance(option, (ast.Attribute, ast.Subscript)):
        return False
    base, name = option.value, option_name(option) or ""
    for value in script.values(base):
        if isinstance(value, (Entity, Imported)):
            made_of = value.name if isinstance(value, Imported) else value.qualname
            if made_of in _UNCHANGING:
                return True
        if isinstance(value, Entity) and value.kind == v.INSTANCE:
            if any(_takes_none(cls, name) for cls in [value.cls, *value.others] if cls is not None):
                return True
    return any(_is_same(script, base, frozen) for frozen in _closed(script))


def _takes_none(cls: Class, name: str) -> bool:
    """Whether the objects of a class refuse a value for an attribute."""
    if "typing.NamedTuple" in cls.external_bases():
        return True
    for one in cls.ancestry():
        node = one.scope.node
        assert isinstance(node, ast.ClassDef)
        if any(map(_is_frozen, node.decorator_list)) or _forbids(node):
            return True
        computed = [s for s in node.body if isinstance(s, ast.FunctionDef) and s.name == name]
        if computed:
            marks = {dotted(m) or "" for stmt in computed for m in stmt.decorator_list}
            return "property" in marks and f"{name}.setter" not in marks
    return False


def _is_frozen(mark: ast.expr) -> bool:
    """`@dataclass(frozen=True)`, `@attr.s(frozen=True)`, `@frozen`."""
    if isinstance(mark, ast.Call):
        return is_constant(call_keyword(mark, "frozen"), True) or dotted(mark.func) in _FROZEN_MARKS
    return dotted(mark) in _FROZEN_MARKS


def _forbids(node: ast.ClassDef) -> bool:
    """`class Options(BaseModel, frozen=True)`, and a configuration of pydantic's that says so in the class."""
    if any(keyword.arg == "frozen" and is_constant(keyword.value, True) for keyword in node.keywords):
        return True
    for stmt in node.body:
        if isinstance(stmt, ast.Assign) and [dotted(t) for t in stmt.targets] == ["model_config"]:
            if any(
                (isinstance(part, ast.keyword) and part.arg == "frozen" and is_constant(part.value, True))
                or (isinstance(part, ast.Dict) and _says_frozen(part))
                for part in walk(stmt)
            ):
                return True
        if isinstance(stmt, ast.ClassDef) and stmt.name == "Config":
            for inner in stmt.body:
                said = [dotted(t) for t in inner.targets] if isinstance(inner, ast.Assign) else []
                if isinstance(inner, ast.Assign) and (
                    (said == ["frozen"] and is_constant(inner.value, True))
                    or (said == ["allow_mutation"] and is_constant(inner.value, False))
                ):
                    return True
    return False


def _says_frozen(node: ast.Dict) -> bool:
    return any(
        isinstance(key, ast.Constant) and key.value == "frozen" and is_constant(value, True)
        for key, value in zip(node.keys, node.values, strict=True)
    )


def _closed(script: ScriptModel) -> Iterator[ast.expr]:
    """Options that a call closes: `config.freeze()` of yacs, `OmegaConf.set_readonly(config, True)`."""
    for call in script.calls():
        if not isinstance(call.func, ast.Attribute):
            continue
        if call.func.attr == "freeze" and not call.args and not call.keywords:
            yield call.func.value
        elif call.func.attr == "set_readonly" and call.args:
            if is_constant(call_argument(call, 1, "value"), True):
                yield call.args[0]


def _is_same(script: ScriptModel, base: ast.expr, other: ast.expr) -> bool:
    """Whether two expressions, of which the second may be a part's whole, can be the same options."""
    root = base
    while isinstance(root, (ast.Attribute, ast.Subscript)):
        if script.values(root) & script.values(other):
            return True
        root = root.value
    if script.values(root) & script.values(other):
        return True
    if not (isinstance(root, ast.Name) and isinstance(other, ast.Name) and root.id == other.id):
        return False
    return script.scope_of(root).resolve(root.id) is script.scope_of(other).resolve(other.id)
