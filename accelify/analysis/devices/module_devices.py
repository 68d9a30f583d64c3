"""Devices that a module of the project chooses for all others: `device = torch.device("cuda:0")` in `conf.py`."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from typing import TypeVar

from accelify.analysis import values as v
from accelify.analysis.program import Module, Program, absolute_name
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import walk
from accelify.analysis.values import Entity, Imported

_INDEXED = re.compile(r"^(cuda|gpu|xpu):")
_ASKS_MACHINE = ("is_available", "device_count", "current_accelerator")


@dataclass(eq=False)
class DeviceConstant:
    """A name that a module binds to a device when it is imported, and where the script reads it."""

    module: Module
    name: str
    values: list[ast.expr] = field(default_factory=list)
    # The tests of the branches in which it is bound.
    tests: list[ast.expr] = field(default_factory=list)
    reads: list[ast.Name | ast.Attribute] = field(default_factory=list)
    # The other modules that read it.
    readers: list[Module] = field(default_factory=list)

    @property
    def is_cpu(self) -> bool:
        """Whether it can be nothing but the CPU."""
        texts = [t for value in self.values for t in _texts(value)]
        return bool(texts) and all(text == "cpu" for text in texts)

    @property
    def is_indexed(self) -> bool:
        """Whether it names one GPU by its number, which is then the same for every process."""
        return any(_INDEXED.match(text) for value in self.values for text in _texts(value))

    @property
    def asks_user(self) -> bool:
        """Whether it depends on more than what the machine has: a flag, an option, the environment."""
        return any(
            isinstance(part, ast.Name) and part.id not in ("torch", "th", "str")
            for value in [*self.values, *self.tests]
            for part in walk(value)
            if not _is_inside_question(part, value)
        )


def device_constants(script: ScriptModel) -> list[DeviceConstant]:
    """The device constants of all modules but the entry script, each with its reads."""
    program = script.program
    found = {c: c for module in program.modules.values() for c in _of_module(script, module)}
    known = {(c.module, c.name): c for c in found}
    if not known:
        return []
    for node in [*script.tree.nodes(ast.Name), *script.tree.nodes(ast.Attribute)]:
        if isinstance(node.ctx, ast.Load) and script.is_a(node, v.DEVICE):
            constant = constant_of(script, node, known)
            if constant is not None:
                constant.reads.append(node)
    for module in program.modules.values():
        if module not in script.modules:
            for constant in _read_by(program, module, known):
                constant.readers.append(module)
    return list(found)


def _of_module(script: ScriptModel, module: Module) -> list[DeviceConstant]:
    found: dict[str, DeviceConstant] = {}
    if module is script.program.entry:
        return []
    for node in module.scopes.module.nodes:
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
            continue
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if isinstance(target, ast.Name) and any(
                isinstance(w, Entity) and w.kind == v.DEVICE
                for w in script.interpreter.evaluate(module, module.scopes.module, node.value)
            ):
                constant = found.setdefault(target.id, DeviceConstant(module, target.id))
                constant.values.append(node.value)
                constant.tests += [a.test for a in module.tree.ancestors(node) if isinstance(a, ast.If)]
    return list(found.values())


_T = TypeVar("_T")
_Known = dict[tuple[Module, str], _T]


def constant_of(script: ScriptModel, node: ast.Name | ast.Attribute, known: _Known[_T]) -> _T | None:
    """What is known of the global of a module that a node reads, by whatever way it was imported.

    Args:
        script: the script.
        node: the name, or the attribute of a module.
        known: what is known of globals, by the module that binds them and their names there.
    """
    module = script.module_of(node)
    if isinstance(node, ast.Name):
        owner = script.scope_of(node).resolve(node.id)
        own = owner is None or owner is module.scopes.module
        return _origin(script.program, module, node.id, known, set()) if own else None
    for name in sorted(value.name for value in script.values(node.value) if isinstance(value, Imported)):
        target = module.imports.get(name) or script.program.modules.get(name)
        if target is not None:
            return _origin(script.program, target, node.attr, known, set())
    return None


def _origin(
    program: Program, module: Module, name: str, known: _Known[_T], seen: set[tuple[Module, str]]
) -> _T | None:
    """The constant that a module's global name represents, followed through `from other import name` and `*`."""
    if (module, name) in known:
        return known[module, name]
    if (module, name) in seen:
        return None
    seen.add((module, name))
    for node in module.scopes.module.nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id == name:
            return None
    for node in module.scopes.module.nodes:
        if not isinstance(node, ast.ImportFrom):
            continue
        target = module.imports.get(absolute_name(node, module.package) or "")
        for alias in node.names if target is not None else []:
            assert target is not None
            if alias.name == "*" or (alias.asname or alias.name) == name:
                inner = name if alias.name == "*" else alias.name
                found = _origin(program, target, inner, known, seen)
                if found is not None:
                    return found
    return None


def _read_by(program: Program, module: Module, known: _Known[DeviceConstant]) -> list[DeviceConstant]:
    """The constants of other modules that a module reads when it is imported, and all that its functions read."""
    found: dict[DeviceConstant, None] = {}
    for node in module.tree.nodes(ast.Name):
        scope = module.scopes.of(node)
        if not isinstance(node.ctx, ast.Load) or any(_is_main_guard(a) for a in module.tree.ancestors(node)):
            continue
        owner = scope.resolve(node.id)
        if owner is None or owner is module.scopes.module:
            constant = _origin(program, module, node.id, known, set())
            if constant is not None and (scope.kind == "function" or constant.module is not module):
                found[constant] = None
    for node in module.tree.nodes(ast.Attribute):
        guarded = any(_is_main_guard(ancestor) for ancestor in module.tree.ancestors(node))
        if isinstance(node.value, ast.Name) and not guarded:
            target = module.imports.get(node.value.id)
            constant = _origin(program, target, node.attr, known, set()) if target is not None else None
            if constant is not None:
                found[constant] = None
    return list(found)


def _is_main_guard(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "__name__" in {
        n.id for n in walk(node.test) if isinstance(n, ast.Name)
    }


def _texts(node: ast.expr) -> list[str]:
    """The devices that an expression names."""
    found = []
    for part in walk(node):
        if isinstance(part, ast.JoinedStr):
            found.append("".join(str(p.value) if isinstance(p, ast.Constant) else "0" for p in part.values))
        elif isinstance(part, ast.Constant) and isinstance(part.value, str):
            found.append(part.value)
    return found


def _is_inside_question(part: ast.AST, value: ast.expr) -> bool:
    """Whether a node belongs to a question about the machine: `torch.cuda.is_available()`."""
    return any(
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in _ASKS_MACHINE
        and any(part is inner for inner in walk(call))
        for call in walk(value)
    )
