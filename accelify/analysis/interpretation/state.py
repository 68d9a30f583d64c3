"""What the parts of the interpreter share: what is known so far, and what each asks of the others."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from accelify.analysis.interpretation.reads import Reads, ReadsOfNodes
from accelify.analysis.program import Module, Program
from accelify.analysis.scopes import Scope
from accelify.analysis.values import Class, Entity, Function, Value, Values

if TYPE_CHECKING:
    from collections.abc import Collection


class State:
    """The basis of every part."""

    program: Program
    variables: dict[tuple[Scope, str], Values]
    returns: dict[Scope, Values]
    calls: dict[ast.Call, set[Scope]]
    callers: dict[Scope, list[tuple[Module, ast.Call]]]
    entities: dict[tuple[object, object], Value]
    changed: bool
    reads: ReadsOfNodes
    retained: dict[ast.AST | None, Values] | None
    # Names that are being looked up, and those found to be a library's.
    _resolving: set[str]
    _of_libraries: dict[tuple[Module, str], Values]
    # What each module imports with a star: modules of the project, and libraries.
    _star_imports: dict[Module, list[Module]]
    _star_libraries: dict[Module, list[str]]
    _memo: dict[ast.Call, tuple[Values, Reads]]
    _own_names: dict[ast.Name, str]
    _hands_back: dict[Scope, str | None]
    _by_name: dict[Scope, ast.Call | None]

    if TYPE_CHECKING:

        def settled(self) -> bool: ...
        def entity(
            self, site: object, tag: object, kind: str, module: Module | None, **more: object
        ) -> Entity: ...
        def part(self, base: Entity, tag: object, module: Module | None) -> Entity: ...
        def link(self, entity: Entity, relation: str, values: Collection[Value]) -> None: ...
        def link_optimizer(self, module: Module, made: Entity, arguments: list[Values]) -> None: ...
        def add(self, contained: Values, values: Collection[Value]) -> None: ...
        def bind(self, scope: Scope, name: str, values: Collection[Value]) -> None: ...
        def variable(self, owner: Scope, name: str) -> Values: ...
        def lookup(self, module: Module, scope: Scope, name: str) -> Values: ...
        def attribute(self, base: Value, name: str, module: Module) -> Values: ...
        def store_attribute(self, base: Value, name: str, values: Values) -> None: ...
        def assign(self, module: Module, scope: Scope, target: ast.expr, values: Values) -> None: ...
        def evaluate(self, module: Module, scope: Scope, node: ast.expr | None) -> Values: ...
        def tensor_from(self, module: Module, node: ast.AST, contained: Values) -> Values: ...
        def element_values(self, module: Module, site: ast.AST, value: Value) -> Values: ...
        def classes(self) -> list[Class]: ...
        def kind_of_class(self, cls: Class) -> str: ...
        def module_of(self, scope: Scope) -> Module: ...
        def _imported(self, module: Module, name: str) -> Values: ...
        def call_function(
            self,
            module: Module,
            scope: Scope,
            node: ast.Call,
            function: Function,
            arguments: list[Values],
            keywords: dict[str | None, Values],
        ) -> Values: ...
