"""What a statement does with an object that is to be prepared: stores it elsewhere, passes it on, changes it."""

from __future__ import annotations

import ast
from functools import cached_property

from accelify.analysis import values as v
from accelify.analysis.data.loaders import is_shardable
from accelify.analysis.interpretation.containers import Containers
from accelify.analysis.interpretation.record_classes import is_record
from accelify.analysis.planning.sites import Item
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.statements.assigned_objects import (
    entities_in,
)
from accelify.analysis.statements.assignments import is_unpacked, stands_in
from accelify.analysis.statements.statement_parts import StatementParts
from accelify.analysis.syntax import calls_in, walk
from accelify.analysis.values import Entity

# Methods that give a module its final shape: prepare has to come after them.
_SHAPING = frozenset(
    "load_state_dict apply requires_grad_ half float double bfloat16 to cuda add_param_group init_weights "
    "initialize reset_parameters weight_init _initialize_weights add_module append extend insert freeze unfreeze "
    "copy_".split()
)
# Functions that read a loader and store nothing of it.
LOOKS = frozenset({"len", "print", "type", "isinstance", "hasattr", "getattr", "repr", "str", "id"})


class ItemStatements:
    """Asks what the statements of a script do with its items.

    Args:
        script: its model.
    """

    def __init__(self, script: ScriptModel) -> None:
        self.script = script
        self.tree = script.tree
        self.containers = Containers(script)
        # Statements that measure or count over a loader as it is without prepare, which so comes after them.
        self.measured: list[ast.stmt] = []
        # Those of them that count over it.
        self.counted: list[ast.stmt] = []
        self._run_within: dict[tuple[str, frozenset[Entity]], bool] = {}
        self._within = StatementParts()

    def _hands_back(self, stmt: ast.stmt, item: Item) -> bool:
        """Whether a statement gets back what it passed in: `model = train(model, ...)`."""
        value = getattr(stmt, "value", None)
        if not isinstance(value, ast.Call):
            return False
        given = [*value.args, *[kw.value for kw in value.keywords]]
        return any(item.entities & self.script.entities(a) for a in given if isinstance(a, ast.expr))

    def _hands_on(self, stmt: ast.stmt, item: Item) -> bool:
        """Whether a statement stores a loader elsewhere: in an iterator, a dictionary, a bar, under another name.

        What is stored is still the loader as it was before prepare. Reading its length or data set stores nothing.
        """
        if stmt in item.creations:
            return False
        if item.kind != v.LOADER:
            if any(stands_in(c, stmt) and self._hands_back(c, item) for c in item.creations):
                return False  # `if both: model = Both(model, rest)`: what took it in has its name now
            return item.container is None and self.containers.keeps(
                stmt, item.entities, self._stored_and_run(item)
            )
        for node in self._within.read(stmt):
            parent = self.tree.parent(node)
            if item.container is not None and item.holder.containers & self.script.values(node):
                taken = self.tree.statement(node)
                if is_unpacked(taken) or self.containers.takes_out(taken):
                    return True
            if isinstance(parent, ast.Attribute) or not item.entities & self.script.entities(node):
                continue
            if self.tree.statement(node) in self.measured or self._gives_loaders_back(node, item):
                continue
            if (
                isinstance(parent, ast.Call)
                and isinstance(parent.func, ast.Name)
                and parent.func.id in LOOKS
                and not self._is_counted_before(stmt, item)
            ):
                continue
            return True
        return False

    def _gives_loaders_back(self, given: ast.expr, item: Item) -> bool:
        """Whether a loader is passed to a function that gives the ones back which its name has from then on.

        They may be made of its data: `train, test = split(train)`.
        """
        stmt = self.tree.statement(given)
        value = getattr(stmt, "value", None)
        if stmt not in item.creations or not isinstance(value, ast.Call):
            return False
        found = entities_in(self.script, value)
        # Around what is no loader of torch's, as a prefetcher, it is prepared before.
        loaders = bool(item.entities & found) and all(map(is_shardable, found))
        return loaders and bool(self.script.callees(value))

    def _is_counted_before(self, stmt: ast.stmt, item: Item) -> bool:
        """Whether a loader is prepared only after a statement that counts over it, and so before its length."""
        return any(
            self.tree.is_after(stmt, c) and self.script.scope_of(c) is item.scope for c in self.counted
        )

    def _stored_and_run(self, item: Item) -> bool:
        """Whether a model or optimizer is used as an element of a list or as a part of a composite module."""
        key = item.holder.name, frozenset(item.entities)
        if key not in self._run_within:
            self._run_within[key] = self.containers.called_within(item.entities, item.holder)
        return self._run_within[key]

    def _evaluates(self, stmt: ast.stmt) -> bool:
        """Whether a statement runs a loop over a loader in a function, whose batches prepare places."""
        scopes = self._evaluating_scopes
        return bool(scopes) and any(self.script.callees(call) & scopes for call in calls_in(stmt))

    @cached_property
    def _evaluating_scopes(self) -> set[Scope]:
        """Functions with a loop over a loader in which a model of an outer scope, or a parameter, is called."""
        found = {
            self.script.scope_of(loop)
            for loop, _ in self.script.loader_loops
            if any(isinstance(c, ast.Call) and self.script.models_run(c) for c in walk(loop))
        }
        return {scope for scope in found if scope.kind == "function" and not scope.is_method}

    def _hands_over(self, stmt: ast.stmt, item: Item) -> bool:
        """Whether a statement passes the item to a class of the program that stores it and trains with it."""
        for node in calls_in(stmt):
            given = [*node.args, *[kw.value for kw in node.keywords]]
            if any(
                t.site is node and is_record(t) for t in self.script.entities(node, v.UNKNOWN, v.INSTANCE)
            ):
                if any(item.entities & entities_in(self.script, a) for a in given):
                    return True
            for callee in self.script.callees(node):
                cls = callee.owner_class
                if cls is None or callee.name.rsplit(".", 1)[-1] != "__init__":
                    continue
                if self.script.is_a(
                    node, v.MODEL, v.OPTIMIZER, v.SCHEDULER, v.CRITERION, v.LOADER, v.DATASET
                ):
                    continue
                if any(item.entities & entities_in(self.script, a) for a in given):
                    return True
        return False

    def _shapes(self, stmt: ast.stmt, item: Item) -> bool:
        """Whether a statement still changes what an item is: weights loaded, layers replaced, parameters frozen."""
        if isinstance(stmt, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            return False
        for node in self._within.shaping(stmt):
            if isinstance(node, ast.Call):
                if isinstance(node.func, ast.Attribute) and node.func.attr in _SHAPING:
                    if item.entities & self._roots(node.func.value):
                        return True
                if any(s in self._loading_scopes for s in self.script.callees(node)):
                    if any(item.entities & self.script.entities(a) for a in node.args):
                        return True
                if _assigned_to_requires_grad(node):
                    return True
            elif isinstance(node, (ast.Assign, ast.AugAssign)):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in targets:
                    if isinstance(target, ast.Attribute) and item.kind == v.MODEL:
                        if target.attr == "requires_grad" and self._from_model(stmt, item):
                            return True
                        if item.entities & self._roots(target.value):
                            return True
        return False

    def _from_model(self, stmt: ast.stmt, item: Item) -> bool:
        return any(
            isinstance(n, ast.Call)
            and isinstance(n.func, ast.Attribute)
            and n.func.attr in ("parameters", "named_parameters")
            and item.entities & self._roots(n.func.value)
            for n in walk(stmt)
        )

    def _roots(self, node: ast.expr) -> set[Entity]:
        """The `Entity` objects at the root of an attribute chain: the model of `model.fc.weight`."""
        while True:
            found = self.script.entities(node, v.MODEL, v.OPTIMIZER, v.LOADER, v.SCHEDULER)
            if found:
                return found
            if isinstance(node, (ast.Attribute, ast.Subscript)):
                node = node.value
            else:
                return set()

    @cached_property
    def _loading_scopes(self) -> set[Scope]:
        found: set[Scope] = set()
        for module in self.script.program.modules.values():
            for scope in module.scopes.functions():
                for node in scope.calls:
                    if isinstance(node.func, ast.Attribute):
                        if node.func.attr in ("load_state_dict", "requires_grad_"):
                            found.add(scope)
        return found - self.script.training_scopes


def _assigned_to_requires_grad(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Name) and node.func.id in (
        "set_parameter_requires_grad",
        "freeze_layers",
    )
