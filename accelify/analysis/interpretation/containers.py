"""Lists, tuples and dictionaries of models, optimizers and schedulers."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property

from accelify.analysis import values as v
from accelify.analysis.scopes import Scope, handed_to
from accelify.analysis.script import Holder, ScriptModel, is_in_model
from accelify.analysis.syntax import assigned_pairs, dotted, target_names, walk
from accelify.analysis.values import Entity, Mapping, Sequence, Value

LIST, TUPLE, DICT = "list", "tuple", "dict"
# `*args` of a function are a tuple.
_FORMS: dict[type[ast.AST], str] = {
    **dict.fromkeys((ast.List, ast.ListComp, ast.BinOp), LIST),
    **dict.fromkeys((ast.Tuple, ast.FunctionDef, ast.AsyncFunctionDef), TUPLE),
    **dict.fromkeys((ast.Dict, ast.DictComp), DICT),
}
_DISPLAYS = (ast.List, ast.Tuple, ast.Dict, ast.Set, ast.keyword)
_PREPARED = (v.MODEL, v.OPTIMIZER, v.LOADER, v.SCHEDULER)
_FILLING = frozenset({"append", "extend", "insert", "add", "update", "setdefault"})
# How many calls are between a container and who runs what was taken out of it.
_FARTHEST = 3


def _makes_dictionary(node: ast.AST) -> bool:
    """`dict(model=net, optimizer=opt)`."""
    return isinstance(node, ast.Call) and dotted(node.func) == "dict" and bool(node.keywords)


class Containers:
    """Which names refer to containers of `Entity` objects, what kind of container each is, and where it is filled."""

    def __init__(self, script: ScriptModel) -> None:
        self.script = script
        self.tree = script.tree
        self._stored: dict[ast.stmt, list[tuple[ast.expr, bool]]] = {}

    def holders_of(self, entity: Entity) -> list[Holder]:
        """The names of containers that have an `Entity` as an element."""
        return [h for h in self.script.holders if any(entity in within(c) for c in h.containers)]

    def is_only_element(self, holder: Holder, entity: Entity) -> bool:
        """Whether all elements of a name's containers come from one making, as those of a comprehension do."""
        return all(within(container) == {entity} for container in holder.containers)

    def form(self, holder: Holder, kind: str) -> str | None:
        """How the container of a name is written; None where it is no plain one with elements of one kind only."""
        forms = {self._form_of(stmt, c) for stmt, _ in holder.assignments for c in holder.containers}
        mixed = any(
            not isinstance(w, Entity) or w.kind not in (kind, v.UNKNOWN)
            for container in holder.containers
            for w in within(container)
        )
        mixed = mixed or self._holds_plain(holder)
        only = next(iter(forms)) if len(forms) == 1 else None
        return None if mixed or holder.entities else only

    def _holds_plain(self, holder: Holder) -> bool:
        """Whether there are numbers or texts among the elements: `{"model": net, "epoch": 0}`, `conf["rate"] = 0.1`."""
        written: list[ast.expr | None] = []
        for container in holder.containers:
            node = self._origins.get(container)
            if isinstance(node, (ast.List, ast.Tuple)):
                written += node.elts
            elif isinstance(node, ast.Dict):
                written += node.values
            elif isinstance(node, ast.Call):
                written += [kw.value for kw in node.keywords]
        written += [stmt.value for stmt in self._fillings(holder) if isinstance(stmt, ast.Assign)]
        return any(isinstance(node, ast.Constant) and node.value is not None for node in written)

    def _form_of(self, stmt: ast.stmt, container: Value) -> str | None:
        value = getattr(stmt, "value", None)
        if isinstance(value, ast.Call) and dotted(value.func) in (LIST, TUPLE):
            return dotted(value.func)
        node = self._origins.get(container)
        if isinstance(node, ast.Call):
            return DICT if dotted(node.func) == DICT else None
        return _FORMS.get(type(node)) if node is not None else None

    @cached_property
    def _origins(self) -> dict[Value, ast.AST]:
        """The expression that each container is made by, or what it is a copy of."""
        containers = {
            key: value
            for key, value in self.script.interpreter.entities.items()
            if isinstance(value, (Sequence, Mapping))
        }
        found: dict[Value, ast.AST] = {
            value: key[0]
            for key, value in containers.items()
            if key[1] in ("sequence", "mapping", "rest") and isinstance(key[0], ast.AST)
        }
        for (made, how), value in containers.items():
            original = found.get(made[1]) if how == "copy" and isinstance(made, tuple) else None
            if original is not None:
                found[value] = original
        return found

    def is_shared(self, holder: Holder) -> bool:
        """Whether another name represents the same container, or leads to it: `conf["train"]`."""
        others = [c for h in self.script.holders if h is not holder for c in h.containers]
        return any(c in holder.containers or within(c) & holder.containers for c in others)

    def makings(self, holder: Holder) -> dict[Scope, list[ast.stmt]]:
        """The statements that make a container and add elements to it, by scope; one that makes it empty is listed
        where it is filled."""
        found: dict[Scope, list[ast.stmt]] = {}
        filled: set[Scope] = set()
        for stmt, scope in holder.assignments:
            found.setdefault(scope, []).append(stmt)
            value = getattr(stmt, "value", None)
            if value is not None and not _is_empty(value):
                filled.add(scope)
        for stmt in self._fillings(holder):
            scope = self.script.scope_of(stmt)
            found.setdefault(scope, []).append(stmt)
            filled.add(scope)
        return {scope: self.tree.in_order(stmts) for scope, stmts in found.items() if scope in filled}

    def _fillings(self, holder: Holder) -> list[ast.stmt]:
        found: list[ast.stmt] = []
        for call in self.script.calls():
            func = call.func
            stmt = self.tree.parent(call)
            if isinstance(func, ast.Attribute) and func.attr in _FILLING and isinstance(stmt, ast.Expr):
                if self.script.values(func.value) & holder.containers:
                    found.append(stmt)
        for assign in self.tree.nodes(ast.Assign):
            for target in assign.targets:
                if isinstance(target, ast.Subscript) and self.script.values(target.value) & holder.containers:
                    found.append(assign)
        for grown in self.tree.nodes(ast.AugAssign):
            if isinstance(grown.target, (ast.Name, ast.Attribute)):
                text = dotted(grown.target)
                if text and text.rsplit(".", 1)[-1] == holder.name:
                    if self.script.values(grown.target) & holder.containers:
                        found.append(grown)
        return found

    def takes_out(self, stmt: ast.stmt) -> bool:
        """Whether an assignment only takes one of several elements out of a container: `model = models[0]`.

        Or one out of each of several: `model, optimizer = models[i], optimizers[i]`.
        """
        value = getattr(stmt, "value", None)
        if isinstance(stmt, ast.Assign) and isinstance(value, ast.Tuple):
            pairs = [pair for target in stmt.targets for pair in assigned_pairs(target, value)]
            contained = [one for _, one in pairs if self.script.entities(one, *_PREPARED)]
            return bool(contained) and all(map(self._takes_element, contained))
        if _container(stmt) is None:
            if not isinstance(value, (ast.Name, ast.Attribute)) or not self.script.enclosing_loops(stmt):
                return False
            return any(isinstance(w, (Sequence, Mapping)) for w in self.script.values(value))
        return value is not None and self._takes_element(value)

    def _takes_element(self, value: ast.expr) -> bool:
        """Whether an expression is an element of a container: `models[0]`, `models.get(name)`."""
        around = _element_of(value)
        contained = self.script.values(around) if around is not None else ()
        return any(isinstance(w, (Sequence, Mapping)) for w in contained)

    def only_by_place(self, loader: Entity, stmts: list[ast.stmt]) -> bool:
        """Whether a loader has no names but those of places in a list that options make longer or shorter.

        Which loader is at a place depends on the options, and so does the name that it gets: `loaders[1]`,
        `repeat(loaders[1])`. It is prepared where it is made.

        Args:
            loader: the loader.
            stmts: those that make its names.
        """
        taken = [_container(stmt) for stmt in stmts]
        lists = {w for node in taken if node is not None for w in self.script.values(node)}
        if not taken or None in taken or loader.module not in self.script.modules:
            return False
        return all(
            isinstance(w, Sequence) and w.rest and len({t for t in within(w) if isinstance(t, Entity)}) > 1
            for w in lists
        )

    def only_chosen(self, stmts: list[ast.stmt]) -> bool:
        """Whether containers are there to be chosen from once: nothing else reads those that statements take out of."""
        taken = [_container(stmt) for stmt in stmts]
        chosen = {w for node in taken if node is not None for w in self.script.values(node)}
        containers = {w for w in chosen if isinstance(w, (Sequence, Mapping))}
        if not containers or any(self._runs_often(stmt) for stmt in stmts):
            return False
        names = {dotted(node) for node in taken if node is not None}
        for node in self.tree.nodes(ast.Name, ast.Attribute):
            if not isinstance(node.ctx, ast.Load) or not containers & self.script.values(node):
                continue
            stmt = self.tree.statement(node)
            if dotted(node) not in names or not self.takes_out(stmt) or self.script.enclosing_loops(stmt):
                return False
        return True

    def _runs_often(self, node: ast.AST, far: int = _FARTHEST) -> bool:
        """Whether a statement or call is in a loop, or in a function that is called in one."""
        scope = self.script.scope_of(node)
        if self.script.enclosing_loops(node):
            return True
        return far > 0 and any(self._runs_often(call, far - 1) for call in self.script.callers(scope))

    def keeps(self, stmt: ast.stmt, entities: set[Entity], run: bool) -> bool:
        """Whether a statement puts one of some `Entity` objects into a container, a composite module or the like.

        The element there is still the object as it was before prepare.

        Args:
            stmt: the statement.
            entities: those that may be put there.
            run: whether they are known to be run as elements.
        """
        found = self._stored.get(stmt)
        if found is None:
            found = self._stored[stmt] = list(self._stored_in(stmt))
        return any((hidden or run) and bool(entities & self.script.entities(node)) for node, hidden in found)

    def _stored_in(self, stmt: ast.stmt) -> Iterator[tuple[ast.expr, bool]]:
        """What a statement puts elsewhere, and whether that is a class that cannot be seen."""
        for node in walk(stmt):
            if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
                hidden = self._is_hidden(node)
                if hidden or self._is_stored(node):
                    yield node, hidden

    def _is_hidden(self, node: ast.expr) -> bool:
        """Whether a node is passed to a class that cannot be read and whose object is called: `gan = zoo.GAN(g, d)`."""
        parent = self.tree.parent(node)
        if isinstance(parent, ast.keyword):
            parent = self.tree.parent(parent)
        if not isinstance(parent, ast.Call) or parent.func is node or self.script.callees(parent):
            return False
        if not isinstance(self.tree.parent(parent), ast.Assign):
            return False
        name = (dotted(parent.func) or "").rsplit(".", 1)[-1]
        if not name[:1].isupper() or (self.script.qualname(parent.func) or "").startswith("torch"):
            return False
        return any(
            t.site is parent and t.cls is None and "()" in t.uses
            for t in self.script.entities(parent, v.UNKNOWN, v.MODEL)
        )

    def _is_stored(self, node: ast.expr) -> bool:
        inner: ast.AST = node
        parent = self.tree.parent(node)
        while parent is not None and (isinstance(parent, _DISPLAYS) or _makes_dictionary(parent)):
            inner, parent = parent, self.tree.parent(parent)
        if isinstance(parent, ast.Assign) and parent.value is inner:
            stored = any(isinstance(t, ast.Subscript) for t in parent.targets)
            return stored or (inner is not node and not isinstance(parent.targets[0], (ast.Tuple, ast.List)))
        if not isinstance(parent, ast.Call) or inner is parent.func:
            return False
        if isinstance(parent.func, ast.Attribute) and parent.func.attr in _FILLING:
            return any(isinstance(w, (Sequence, Mapping)) for w in self.script.values(parent.func.value))
        made = self.script.models_of(parent)
        contained = self.script.entities(node, v.MODEL)
        return any(
            entity.site is parent
            and (
                contained & entity.link("parts")
                or (
                    entity.cls is not None
                    and any(contained & values for values in entity.cls.attributes.values())
                )
            )
            for entity in made
        )

    def called_within(self, entities: set[Entity], holder: Holder) -> bool:
        """Whether `Entity` objects are run by another name than a holder's: an element's, or a composite module's."""
        for call in dict.fromkeys(call for entity in entities for call in self._runs.get(entity, ())):
            text = dotted(_run_by(call))
            own = text is not None and text.rsplit(".", 1)[-1] == holder.name
            elsewhere = is_in_model(self.script, self.script.scope_of(call))
            if not own or elsewhere or self._bound_by_loop(call, holder.name):
                return True
            if text == holder.name and self._is_taken_out_elsewhere(call, holder):
                return True
        return False

    def _is_taken_out_elsewhere(self, node: ast.AST, holder: Holder) -> bool:
        """Whether a name belongs to another function, for what it takes out of a container: `net = conf["net"]`."""
        scope = self.script.scope_of(node).resolve(holder.name)
        return scope is not None and scope is not holder.scope and self._is_taken_out(scope, holder.name)

    def _is_taken_out(self, scope: Scope, name: str, far: int = _FARTHEST) -> bool:
        """Whether a variable is bound to an element of a container, or a parameter gets one."""
        if (scope, name) in self._taken_out:
            return True
        if not far or not scope.takes(name):
            return False
        for call in self.script.callers(scope):
            for given, parameter in handed_to(call, scope):
                if parameter == name and isinstance(given, ast.Subscript):
                    return True
                if parameter == name and isinstance(given, ast.Name):
                    owner = self.script.scope_of(given).resolve(given.id)
                    if (
                        owner is not None
                        and owner is not scope
                        and self._is_taken_out(owner, given.id, far - 1)
                    ):
                        return True
        return False

    @cached_property
    def _taken_out(self) -> set[tuple[Scope, str]]:
        """The names that are bound to elements of containers, with their scopes."""
        return {
            (self.script.scope_of(stmt), name)
            for stmt in self.tree.nodes(ast.Assign)
            if isinstance(stmt.value, (ast.Subscript, ast.Tuple))
            for target in stmt.targets
            for part, value in assigned_pairs(target, stmt.value)
            if isinstance(value, ast.Subscript)
            for name in target_names(part)
        }

    @cached_property
    def _runs(self) -> dict[Entity, list[ast.Call]]:
        """The calls that can run each `Entity`."""
        found: dict[Entity, list[ast.Call]] = {}
        for call in self.script.calls():
            for entity in self.script.entities(_run_by(call)):
                found.setdefault(entity, []).append(call)
        return found

    def _bound_by_loop(self, node: ast.AST, name: str) -> bool:
        """Whether a name is an element of what a loop around a node runs over, at that node."""
        return any(
            isinstance(loop, (ast.For, ast.AsyncFor)) and name in target_names(loop.target)
            for loop in self.script.enclosing_loops(node)
        )


def _run_by(call: ast.Call) -> ast.expr:
    """What a call runs: itself, or what it is a method of."""
    func = call.func
    if isinstance(func, ast.Attribute) and func.attr in ("forward", "step", "zero_grad"):
        return func.value
    return func


def _container(stmt: ast.stmt) -> ast.expr | None:
    """What an assignment takes one element of: the list of `model = models[0]`."""
    return _element_of(getattr(stmt, "value", None))


def _element_of(value: ast.expr | None) -> ast.expr | None:
    """What an expression is an element of: the list of `models[0]`."""
    if isinstance(value, ast.Subscript):
        return value.value
    func = value.func if isinstance(value, ast.Call) else None
    return func.value if isinstance(func, ast.Attribute) and func.attr in ("get", "pop") else None


def within(container: Value) -> set[Value]:
    """What a container can hold."""
    if isinstance(container, Mapping):
        return container.get(object())
    return container.any() if isinstance(container, Sequence) else set()


def _is_empty(value: ast.expr) -> bool:
    if isinstance(value, (ast.List, ast.Tuple)):
        return all(_is_empty(e) for e in value.elts)
    if isinstance(value, ast.Dict):
        return not value.values
    if isinstance(value, ast.BinOp):
        # `[None] * 3`
        return isinstance(value.left, ast.List) and all(isinstance(e, ast.Constant) for e in value.left.elts)
    return isinstance(value, ast.Call) and not value.args and dotted(value.func) in (LIST, DICT)
