"""Which values the names of a program can hold: a small abstract interpreter.

It runs every statement of every function over and over, without regard to order or branches, until nothing new is
learnt. Calls carry arguments into parameters and returns back, so that a model made in `main` is known as the same
model in `train(model, ...)`.
"""

from __future__ import annotations

import ast
from collections.abc import Collection
from functools import cached_property

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.interpretation.calls import CallEvaluator
from accelify.analysis.interpretation.evaluated_around import is_evaluated_around
from accelify.analysis.interpretation.imported_names import ImportedNames
from accelify.analysis.interpretation.kinds_by_use import KindsByUse
from accelify.analysis.interpretation.reads import NoReads, Reads, ReadsOfNodes
from accelify.analysis.interpretation.run_nodes import DEFINITIONS, INTERESTING, given_results
from accelify.analysis.interpretation.strays import drop_strays
from accelify.analysis.modules.main_blocks import own_main
from accelify.analysis.modules.registries import registering
from accelify.analysis.modules.valid_definitions import own_definitions
from accelify.analysis.program import Module, Program
from accelify.analysis.scopes import Scope
from accelify.analysis.statements.comprehensions import own_names
from accelify.analysis.syntax import FunctionNode, walk_scope
from accelify.analysis.values import (
    Class,
    Entity,
    Function,
    Imported,
    Mapping,
    Method,
    Sequence,
    Value,
    Values,
    order_of,
)

# Roles flow through a handful of calls at most; more rounds than this means that something swings.
_MOST_ROUNDS = 12
# A set of values beyond this size is no information any more.
_MOST_VALUES = 24
# From here on not all may fit: in a fixed order, as the order of a set differs from run to run.
_CROWDED = 8
_DEEPEST_PART = 5


class Interpreter(CallEvaluator, ImportedNames, KindsByUse):
    """Runs a program abstractly. Afterwards `values_of(expr)` returns what an expression can evaluate to."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.variables: dict[tuple[Scope, str], Values] = {}
        self.returns: dict[Scope, Values] = {}
        self.calls: dict[ast.Call, set[Scope]] = {}
        self.callers: dict[Scope, list[tuple[Module, ast.Call]]] = {}
        self.entities: dict[tuple[object, object], Value] = {}
        self.changed = False
        self._settled: list[bool] = []
        self._set_outside: list[bool] = []
        self._postponed = False
        self._resolving: set[str] = set()
        self._of_libraries: dict[tuple[Module, str], Values] = {}
        self._depths: dict[Entity, int] = {}
        self._unknown: list[Entity] = []
        self._of_entities: list[tuple[Entity, object, Entity]] = []
        self._shows_none: dict[Entity, tuple[int, int]] = {}
        self._turned: set[Entity] = set()
        self._hands_back: dict[Scope, str | None] = {}
        self._by_name: dict[Scope, ast.Call | None] = {}
        self._memo: dict[ast.Call, tuple[Values, Reads]] = {}
        self.reads: ReadsOfNodes = ReadsOfNodes()
        self.retained: dict[ast.AST | None, Values] | None = None
        self._classes: list[Class] = []
        self._star_imports: dict[Module, list[Module]] = {}
        self._own_names: dict[ast.Name, str] = {}
        self._star_libraries: dict[Module, list[str]] = {}
        self._work: list[tuple[Module, Scope, list[ast.AST]]] = []
        modules = list(dict.fromkeys(program.modules.values()))
        self._module_of = {scope: module for module in modules for scope in module.scopes.all()}
        for module in modules:
            self._prepare(module)
        # Imports and classes first: a class whose bases are not known yet would leave stray values.
        kinds = (ast.Import, ast.ImportFrom, ast.ClassDef)
        definitions: list[tuple[Module, Scope, ast.AST]] = [
            (module, scope, node)
            for module, scope, nodes in reversed(self._work)
            for node in nodes
            if isinstance(node, kinds)
        ]
        for _ in range(3):
            for module, scope, node in definitions:
                self._run_anew(module, scope, node)
        # Nothing counts as unknown before everything known has been propagated: a result or parameter that is unknown
        # only because its function had not been looked at yet would stay unknown.
        # Last comes what an object is only read for: an unknown result may be what another class sets there.
        for reached in (None, self._settled, self._set_outside):
            if reached is not None:
                reached.append(True)
            if reached is self._set_outside and not self._postponed:
                break
            for _ in range(_MOST_ROUNDS):
                self.changed = False
                self._memo.clear()
                for module, scope, nodes in self._work:
                    for node in nodes:
                        self._run_anew(module, scope, node)
                self.upgrade()
                if not self.changed:
                    break
        drop_strays(self)
        self.reads = NoReads()
        self.retained = {}

    # -- setting up

    def settled(self) -> bool:
        """Whether all that is known has found its way; what asks for it is run again when it has."""
        self.reads.note(self._settled)
        return bool(self._settled)

    def _is_set_outside(self, name: str) -> bool:
        """Whether what objects hold under a name is by now taken for something that nothing of the program sets."""
        if not self.settled() or name not in self._given_results:
            return self.settled()
        self.reads.note(self._set_outside)
        self._postponed |= not self._set_outside
        return bool(self._set_outside)

    @cached_property
    def _given_results(self) -> set[str]:
        """The attributes that are assigned the result of a call."""
        return given_results(self._work)

    def _prepare(self, module: Module) -> None:
        redefined, meant = own_definitions(module.tree, module.scopes.module)
        self._own_names.update(meant)
        for scope in module.used_scopes():
            if isinstance(scope.node, ast.ClassDef):
                cls = Class(scope, module)
                self._classes.append(cls)
                self.entities[(scope.node, "class")] = cls
                assert scope.parent is not None
                self.bind(scope.parent, scope.node.name, {cls})
            elif not isinstance(scope.node, ast.Module):
                assert scope.parent is not None
                self.bind(scope.parent, scope.node.name, {self.function(scope)})
            if (own := redefined.get(scope.node)) is not None:
                kind = "class" if isinstance(scope.node, ast.ClassDef) else "function"
                self.bind(module.scopes.module, own, {self.entities[scope.node, kind]})
        self._own_names.update(own_names(module.tree))
        main = None if module.entry else own_main(module.tree)
        for scope in module.used_scopes():
            runs = scope.nodes if main is None else walk_scope([s for s in scope.node.body if s is not main])
            nodes: list[ast.AST] = [
                n
                for n in runs
                if (node_type := type(n)) in INTERESTING
                and (node_type not in DEFINITIONS or module.is_used(n))
                and (node_type is not ast.Call or not is_evaluated_around(module.tree, n))
            ]
            self._work.append((module, scope, nodes))

    def function(self, scope: Scope) -> Function:
        """The one value that represents a function."""
        key = (scope.node, "function")
        found = self.entities.get(key)
        if not isinstance(found, Function):
            found = Function(scope, self._module_of[scope])
            self.entities[key] = found
        return found

    def module_of(self, scope: Scope) -> Module:
        """The module that contains a scope."""
        return self._module_of[scope]

    def classes(self) -> list[Class]:
        """Every class that the program defines."""
        return self._classes

    def entity(self, site: object, tag: object, kind: str, module: Module | None, **more: object) -> Entity:
        """The one `Entity` made at a site."""
        key = (site, tag)
        found = self.entities.get(key)
        if isinstance(found, Entity):
            if found.kind == v.UNKNOWN:
                self.reads.note(found.earlier_kinds)
            return found
        found = Entity(kind, site if isinstance(site, ast.AST) else None, module)
        for name, value in more.items():
            setattr(found, name, value)
        self.entities[key] = found
        self.changed = True
        if kind == v.UNKNOWN:
            self._unknown.append(found)
            self.reads.note(found.earlier_kinds)
        if isinstance(site, Entity):
            self._of_entities.append((site, tag, found))
        return found

    def part(self, base: Entity, tag: object, module: Module | None) -> Entity:
        """A part of something unknown. `x = x[0]`, run over and over, would take parts of parts for ever."""
        known = self.entities.get((base, tag))
        if type(known) is Entity:
            self.reads.note(known.earlier_kinds)
            return known
        depth = self._depths.get(base, 0)
        if depth >= _DEEPEST_PART:
            return base
        found = self.entity(base, tag, v.UNKNOWN, module)
        self._depths[found] = depth + 1
        if found is not base:
            self.link(found, "whole", {base})
        return found

    # -- bindings

    def bind(self, scope: Scope, name: str, values: Collection[Value]) -> None:
        """Add to what a name can hold."""
        contained = self._contained(scope, name)
        if contained.issuperset(values):  # as from the second round on
            return
        self.add(contained, values)
        for value in values:
            if isinstance(value, Entity):
                value.names.add(name)

    def _contained(self, scope: Scope, name: str) -> Values:
        contained = self.variables.get((scope, name))
        if contained is None:
            contained = self.variables[scope, name] = set()
            self.reads.made((scope, name))
        return contained

    def add(self, contained: Values, values: Collection[Value]) -> None:
        """Add to a set of values, noting whether that changed anything."""
        if contained.issuperset(values):
            return
        if len(contained) > _CROWDED or len(values) > _CROWDED:
            values = sorted(values, key=order_of)
        for value in values:
            if value not in contained and len(contained) < _MOST_VALUES:
                contained.add(value)
                self.changed = True

    def link(self, entity: Entity, relation: str, values: Collection[Value]) -> None:
        """Add to a relation of an `Entity`."""
        self.add(entity.links.setdefault(relation, set()), values)

    def lookup(self, module: Module, scope: Scope, name: str) -> Values:
        """What a name holds as seen from a scope."""
        owner = scope.resolve(name)
        if owner is None:
            contained = self._from_stars(module, name, {module}) or self._from_libraries(module, name)
            if not contained and name == "input":
                # The builtin to which scripts for Python 2 and 3 give another name: `raw_input = input`.
                return {self.entities.setdefault(("import", name), Imported("builtins.input"))}
            return contained
        contained = self.variable(owner, name)
        if contained:
            return contained
        if owner is module.scopes.module and module in self._star_imports:
            contained = self._from_stars(module, name, {module})
            if contained:
                return contained
        if owner.kind == "function" and owner.takes(name) and self.settled():
            return {self._parameter(module, owner, name)}
        return set()

    def variable(self, owner: Scope, name: str) -> Values:
        """What a name of a scope holds."""
        contained = self.variables.get((owner, name))
        if contained is None:
            self.reads.missing((owner, name))
            return set()
        self.reads.note(contained)
        return contained

    def _parameter(self, module: Module, scope: Scope, name: str) -> Entity:
        kind = v.UNKNOWN
        if k.DEVICE_NAME.search(name):
            kind = v.DEVICE
        elif k.FLAG_NAME.search(name):
            kind = v.FLAG
        entity = self.entity(scope.node, ("parameter", name), kind, module)
        entity.names.add(name)
        return entity

    def attribute(self, base: Value, name: str, module: Module) -> Values:
        """What an attribute of a value holds."""
        if isinstance(base, Imported):
            return self._imported(module, f"{base.name}.{name}")
        if isinstance(base, Class):
            return self._class_attribute(base, name, None, unbound=True)
        if not isinstance(base, Entity):
            return set()
        if base.cls is not None:
            found = self._class_attribute(base.cls, name, base)
            if not found and base is base.cls.instance:
                # `self` in a base class: what its subclasses set.
                for cls in self.classes():
                    if cls is not base.cls and base.cls in cls.ancestry() and cls.instance is not None:
                        found = found | self._class_attribute(cls, name, cls.instance)
            if found:
                return found
        self.reads.note(base.attributes)
        if name in base.attributes:
            self.reads.note(base.attributes[name])
            return base.attributes[name]
        if base.kind == v.INSTANCE and base.cls is not None and not self._is_set_outside(name):
            return set()
        if base.kind in (v.UNKNOWN, v.INSTANCE):
            base.uses.add(name)
            named = k.option_named(name)
            if named == k.FLAG:
                return {self.entity(base, ("attribute", name), v.FLAG, module), self._method(base, name)}
            if named == k.DEVICE:
                return {self.entity(base, ("attribute", name), v.DEVICE, module)}
            child = self.part(base, ("attribute", name), module)
            if child is base:
                return {self._method(base, name), base}
            child.names.add(name)
            return {self._method(base, name), child}
        return {self._method(base, name)}

    def _method(self, receiver: Entity, name: str) -> Value:
        """The one value that represents a method of an `Entity`: new ones each time would never reach a fixed point."""
        key = (receiver, ("method", name))
        found = self.entities.get(key)
        if found is None:
            found = self.entities[key] = Method(receiver, name)
        return found

    def _class_attribute(
        self, cls: Class, name: str, receiver: Entity | None, unbound: bool = False
    ) -> Values:
        found: Values = set()
        for ancestor in cls.ancestry():
            self.reads.note(ancestor.attributes)
            contained = ancestor.attributes.get(name)
            if contained is not None:
                self.reads.note(contained)
                found |= contained
        if found:
            return found
        method = cls.method(name)
        if method is not None:
            _, scope = method
            bound_to: Value | None = cls if scope.is_class_method else receiver
            if unbound and bound_to is not cls:
                return {self.function(scope)}  # `Base.method(self, ...)`
            key = (scope.node, ("bound", bound_to))
            bound = self.entities.get(key)
            if bound is None:
                bound = Function(scope, self._module_of[scope], bound_to or cls.instance)
                self.entities[key] = bound
            return {bound}
        for ancestor in cls.ancestry():
            found |= self.variable(ancestor.scope, name)
        return found

    def store_attribute(self, base: Value, name: str, values: Values) -> None:
        """Note what is assigned to an attribute."""
        if isinstance(base, Entity):
            contained = base.attributes if base.cls is None else base.cls.attributes
            self.add(contained.setdefault(name, set()), values)
            for value in values:
                if isinstance(value, Entity):
                    value.names.add(name)

    # -- statements

    def _run_anew(self, module: Module, scope: Scope, node: ast.AST) -> None:
        """Run a node, where something that it reads has changed since it was run."""
        if not self.reads.holds(node):
            self.reads.begin()
            self._run(module, scope, node)
            self.reads.end(node)

    def _run(self, module: Module, scope: Scope, node: ast.AST) -> None:
        # What there is most of comes first.
        if isinstance(node, ast.Call):
            # Assignments evaluate their calls; this reaches the ones in bare expressions and conditions.
            self.evaluate(module, scope, node)
        elif isinstance(node, ast.Assign):
            values = self.evaluate(module, scope, node.value)
            for target in node.targets:
                self.assign(module, scope, target, values)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            self._run_function(module, scope, node)
        elif isinstance(node, ast.Import):
            self._run_import(module, scope, node)
        elif isinstance(node, ast.ImportFrom):
            self._run_import_from(module, scope, node)
        elif isinstance(node, ast.AnnAssign):
            if node.value is not None:
                self.assign(module, scope, node.target, self.evaluate(module, scope, node.value))
        elif isinstance(node, ast.AugAssign):
            if grown := self.grown(module, scope, node):
                self.assign(module, scope, node.target, grown)
        elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
            self.assign(module, scope, node.target, self.elements(module, scope, node.iter))
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                values = self.evaluate(module, scope, item.context_expr)
                if item.optional_vars is not None:
                    self.assign(module, scope, item.optional_vars, values)
        elif isinstance(node, ast.Return):
            if node.value is not None:
                self.add(self.returns.setdefault(scope, set()), self.evaluate(module, scope, node.value))
        elif isinstance(node, (ast.Yield, ast.YieldFrom)):
            if node.value is not None:
                values = self.evaluate(module, scope, node.value)
                generated = self.entities.get((scope.node, "generated"))
                if not isinstance(generated, Sequence):
                    generated = Sequence()
                    self.entities[(scope.node, "generated")] = generated
                if isinstance(node, ast.YieldFrom):
                    values = {w for value in values for w in self.element_values(module, node, value)}
                self.add(generated.rest, values)
                self.add(self.returns.setdefault(scope, set()), {generated})
        elif isinstance(node, ast.NamedExpr):
            self.assign(module, scope, node.target, self.evaluate(module, scope, node.value))
        elif isinstance(node, ast.ClassDef):
            self._run_class(module, scope, node)

    def _run_class(self, module: Module, scope: Scope, node: ast.ClassDef) -> None:
        cls = self.entities[(node, "class")]
        assert isinstance(cls, Class)
        for base in node.bases:
            for value in sorted(self.evaluate(module, scope, base), key=order_of):
                if isinstance(value, (Class, Imported)) and value not in cls.bases and value is not cls:
                    cls.bases.append(value)
                    self.changed = True
                    self.reads.nothing_holds()
        if node.decorator_list:
            self._register(module, scope, node, cls)
        if cls.instance is None:
            cls.instance = self.entity(node, "instance", v.INSTANCE, module, cls=cls)
        kind = self.kind_of_class(cls)
        if cls.instance.kind != kind:
            cls.instance.kind = kind
            self.reads.nothing_holds()
        for child_scope in cls.scope.children.values():
            name = child_scope.self_name()
            if name is not None:
                self.bind(child_scope, name, {cls.instance})

    def _register(self, module: Module, scope: Scope, node: ast.ClassDef | FunctionNode, made: Value) -> None:
        """Pass a definition to the functions that its decorators are: it is then in what they put it into."""
        for decorator in registering(node):
            for value in sorted(self.evaluate(module, scope, decorator), key=order_of):
                if isinstance(value, Function):
                    for name in value.scope.positional()[value.scope.self_name() is not None :][:1]:
                        self.bind(value.scope, name, {made})

    def _run_function(self, module: Module, scope: Scope, node: FunctionNode) -> None:
        own = module.scopes.for_definition(node)
        if node.decorator_list:
            self._register(module, scope, node, self.function(own))
        arguments = node.args
        positional = [*arguments.posonlyargs, *arguments.args]
        for argument, default in zip(
            positional[len(positional) - len(arguments.defaults) :], arguments.defaults, strict=True
        ):
            self.bind(own, argument.arg, self.evaluate(module, scope, default))
        for argument, kw_default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
            if kw_default is not None:
                self.bind(own, argument.arg, self.evaluate(module, scope, kw_default))

    def assign(self, module: Module, scope: Scope, target: ast.expr, values: Values) -> None:
        """Bind a target to values, through tuples, attributes and subscripts."""
        if isinstance(target, ast.Name) and target in self._own_names:
            self.add(self._contained(module.scopes.module, self._own_names[target]), values)
            for value in values:
                if isinstance(value, Entity):
                    value.names.add(target.id)
        elif isinstance(target, ast.Name):
            owner = scope.resolve(target.id) or scope
            self.bind(owner, target.id, values)
        elif isinstance(target, (ast.Tuple, ast.List)):
            for index, element in enumerate(target.elts):
                inner = element.value if isinstance(element, ast.Starred) else element
                self.assign(module, scope, inner, self.item(module, target, values, index))
        elif isinstance(target, ast.Attribute):
            for base in tuple(self.evaluate(module, scope, target.value)):  # may hold what is stored
                self.store_attribute(base, target.attr, values)
        elif isinstance(target, ast.Subscript):
            key = target.slice.value if isinstance(target.slice, ast.Constant) else None
            for base in tuple(self.evaluate(module, scope, target.value)):
                if isinstance(base, Mapping):
                    contained = base.rest if key is None else base.entries.setdefault(key, set())
                    self.add(contained, values)
                elif isinstance(base, Sequence):
                    self.add(base.rest, values)
