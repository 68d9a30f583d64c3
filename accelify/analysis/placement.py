"""Where `prepare(...)` stands: in which block, after which statement, with which names."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.containers import Containers, within
from accelify.analysis.scopes import Scope
from accelify.analysis.script import Holder, ScriptModel
from accelify.analysis.syntax import dotted, walk, walk_scope
from accelify.analysis.values import Class, Thing

_ORDER = {v.MODEL: 0, v.OPTIMIZER: 1, v.LOADER: 2, v.SCHEDULER: 3}
# Methods that give a module its final shape: prepare has to come after them.
_SHAPING = frozenset(
    "load_state_dict apply requires_grad_ half float double bfloat16 to cuda add_param_group init_weights "
    "initialize reset_parameters weight_init _initialize_weights add_module append extend insert freeze unfreeze "
    "copy_".split()
)


# Functions that look at a loader and keep nothing of it.
_LOOKS = frozenset({"len", "print", "type", "isinstance", "hasattr", "getattr", "repr", "str", "id"})


@dataclass(eq=False)
class Item:
    """One name handed to prepare."""

    holder: Holder
    kind: str
    scope: Scope
    creations: list[ast.stmt]
    things: set[Thing]
    # The container whose elements are prepared one by one: a list, a tuple or a dict. Else the name itself is.
    container: str | None = None


@dataclass(eq=False)
class PrepareSite:
    """One `a, b = accelerator.prepare(a, b)`, after a statement of a block."""

    scope: Scope
    after: ast.stmt
    items: list[Item] = field(default_factory=list)

    def names(self) -> list[str]:
        """What is prepared, in the usual order: models, optimizers, loaders, schedulers."""
        return list(dict.fromkeys(i.holder.text(self.scope) for i in self._ordered() if i.container is None))

    def containers(self) -> list[Item]:
        """The lists, tuples and dictionaries whose elements are prepared, models first."""
        found: dict[str, Item] = {}
        for item in self._ordered():
            if item.container is not None:
                found.setdefault(item.holder.text(self.scope), item)
        return list(found.values())

    def _ordered(self) -> list[Item]:
        return sorted(
            self.items, key=lambda i: (_ORDER[i.kind], i.creations[0].lineno, i.creations[0].col_offset)
        )


class Placement:
    """Finds home and place of everything that is to be prepared."""

    def __init__(self, script: ScriptModel, wrapped: frozenset[str] = frozenset()) -> None:
        self.script = script
        # Names under which a model was wrapped by hand: of several names of one model, those that train.
        self.wrapped = wrapped
        self.tree = script.tree
        self.held = Containers(script)
        self._run_within: dict[tuple[str, frozenset[Thing]], bool] = {}

    def home(self, thing: Thing, kind: str) -> Item | None:
        """The name under which a thing is prepared: the one nearest to the module's own code."""
        best: tuple[int, int, int, Item] | None = None
        given = kind == v.LOADER or any(
            self._gives(s, thing) and not _is_alias(s)
            for holder in self.script.holders_of(thing)
            for s, _ in holder.assignments
        )
        for holder in self.script.holders_of(thing):
            if holder.cls is not None and _is_exception(holder.cls):
                continue  # it keeps what it tells of, and trains nothing
            # The attributes of a module are its parts, but an optimizer it keeps is not a part.
            if kind in (v.MODEL, v.LOADER):
                if holder.scope is not None and _is_module_class(self.script, holder.scope):
                    continue
                if holder.cls is not None and self.script.interpreter.kind_of_class(holder.cls) == v.MODEL:
                    continue
            scopes = {scope for _, scope in holder.assignments}
            for scope in scopes:
                depth = self.script.depth(scope)
                every = [s for s, where in holder.assignments if where is scope and not _is_none(s)]
                if not every or (given and not any(self._gives(s, thing) for s in every)):
                    continue
                # `model = model.train()` makes nothing new.
                creations = [s for s in every if not _gives_back(s, holder.name)] or every
                if kind != v.LOADER and all(self.held.takes_out(s) for s in creations):
                    continue  # one of several: they are prepared where they are kept
                item = Item(holder, kind, scope, creations, {thing})
                used = self._used(holder, scope) + (holder.name in self.wrapped)
                rank = (depth, -used, creations[0].lineno)
                if best is None or rank < best[:3]:
                    best = (*rank, item)
        return best[3] if best else None

    def homes(self, thing: Thing, kind: str) -> list[Item]:
        """All names under which things of one making are prepared: a factory called three times makes three."""
        best = self.home(thing, kind)
        if best is None:
            return []
        found = [best]
        if all(_is_alias(c) for c in best.creations):
            return found
        for holder in self.script.holders_of(thing):
            if (holder.cls is None) != (best.holder.cls is None):
                continue
            for scope in dict.fromkeys(where for _, where in holder.assignments):
                if holder is best.holder and scope is best.scope:
                    continue
                creations = [s for s, where in holder.assignments if where is scope and not _is_alias(s)]
                creations = [s for s in creations if not _gives_back(s, holder.name) and not _is_none(s)]
                creations = [s for s in creations if kind != v.LOADER or self._gives(s, thing)]
                if scope is not best.scope:
                    # Another function or class that calls the same factory.
                    creations = [s for s in creations if self._makers(s) & self._makers(best.creations[0])]
                if creations:
                    found.append(Item(holder, kind, scope, creations, {thing}))
        return found

    def _makers(self, stmt: ast.stmt) -> set[Scope]:
        """The functions of the program that an assignment calls for what it assigns."""
        value = getattr(stmt, "value", None)
        return self.script.callees(value) if isinstance(value, ast.Call) else set()

    def container_home(self, thing: Thing, kind: str) -> Item | None:
        """The list, tuple or dictionary in which a thing without a name of its own is prepared."""
        best: tuple[int, int, Item] | None = None
        for holder in self.held.holders_of(thing):
            form = self.held.form(holder, kind)
            if form is None or (
                holder.cls is not None and self.script.interpreter.kind_of_class(holder.cls) == v.MODEL
            ):
                continue
            makings = self.held.makings(holder)
            if len(makings) != 1:
                continue
            scope, creations = next(iter(makings.items()))
            rank = (self.script.depth(scope), creations[0].lineno)
            if best is None or rank < best[:2]:
                best = (*rank, Item(holder, kind, scope, creations, {thing}, form))
        return best[2] if best else None

    def _gives(self, stmt: ast.stmt, thing: Thing) -> bool:
        """Whether an assignment gives a name the thing itself: no other one of that name, no bar around a loader."""
        value = getattr(stmt, "value", None)
        if thing.kind == v.LOADER and isinstance(value, ast.Call):
            if k.is_progress(self.script.qualname(value.func) or ""):
                return False
        targets = stmt.targets if isinstance(stmt, ast.Assign) else []
        if not isinstance(value, ast.expr) or any(isinstance(t, (ast.Tuple, ast.List)) for t in targets):
            return True
        return thing in self.script.things(value)

    def _used(self, holder: Holder, scope: Scope) -> int:
        """Whether training uses a name itself, where a thing has several (`net = ssd_net`)."""
        if (
            holder.scope is None
            or len({id(h) for t in holder.things for h in self.script.holders_of(t)}) == 1
        ):
            return 1
        for read in self.script.reads(holder.name, holder.scope):
            parent = self.tree.parent(read)
            if not isinstance(parent, ast.Call) or self.script.is_without_gradients(parent):
                continue
            if self.script.trains_around(read) or self.script.trains(parent):
                return 1
        return 0

    def sites(self, items: list[Item]) -> list[PrepareSite]:
        """The prepare statements for some items, each in the innermost block that sees the last creation."""
        groups: dict[tuple[int, int, int], list[tuple[Item, list[ast.stmt], ast.stmt | None]]] = {}
        for item in items:
            for part, block, use in self._parts(item):
                groups.setdefault((id(item.scope), id(block), id(use)), []).append((part, block, use))
        found: list[PrepareSite] = []
        # Sites of one block in the order in which their names are first needed: the earliest takes along what is
        # made by then.
        limits: list[tuple[PrepareSite, list[Any], int]] = []
        for members in groups.values():
            block = members[0][1]
            uses = [block.index(use) for _, _, use in members if use is not None]
            limit = min(uses) if uses else len(block)
            last = -1
            for index, stmt in enumerate(block[:limit]):
                if any(_inside(c, stmt) for item, _, _ in members for c in item.creations) or any(
                    self._shapes(stmt, item) for item, _, _ in members
                ):
                    last = index
            if last < 0:
                # Everything is made in the very statement that trains; prepare in its block after the last creation.
                creations = [c for item, _, _ in members for c in item.creations]
                after = max(creations, key=lambda s: self.tree.start(s))
            else:
                after = block[last]
            site = PrepareSite(members[0][0].scope, after)
            site.items = [item for item, _, _ in members]
            if last < 0:
                found.append(site)
            else:
                limits.append((site, block, limit))
        for site, block, _ in sorted(limits, key=lambda entry: entry[2]):
            for other, known, needed in limits:
                if other in found and known is block and other.scope is site.scope:
                    if block.index(site.after) < needed:
                        other.items += site.items
                        other.after = max(other.after, site.after, key=block.index)
                        break
            else:
                found.append(site)
        return sorted(found, key=lambda s: self.tree.start(s.after))

    def _parts(self, item: Item) -> list[tuple[Item, list[Any], ast.stmt | None]]:
        """The blocks in which an item is prepared, each with the first statement of it that trains with the item.

        One, unless it is made anew inside the loop (an optimizer that is switched), or on some paths only.
        """
        body = item.scope.node.body
        block, use = self._descend(body, item)
        found: list[tuple[Item, list[Any], ast.stmt | None]] = []
        again = [
            c
            for c in item.creations
            if use is not None and self.tree.start(c) > self.tree.end(use) and not self._hands_back(c, item)
        ]
        late = [
            c for c in item.creations if use is not None and _inside(c, use) and not self._hands_back(c, item)
        ]
        early = [c for c in item.creations if c not in late and c not in again]
        if again and (early or late):
            # Made anew behind the training, for a second one.
            found += self._parts(self._part(item, again))
            item = self._part(item, [c for c in item.creations if c not in again])
        if late and early:
            found += [(self._part(item, [c]), self.tree.block_of(c)[2], None) for c in late]
            item = self._part(item, early)
        if self._definite(block, item, use) or self._read_anyway(block, item):
            return [(item, block, use), *found]
        # Only made on some paths: prepare right there.
        return [(self._part(item, [c]), self.tree.block_of(c)[2], None) for c in item.creations] + found

    def _hands_back(self, stmt: ast.stmt, item: Item) -> bool:
        """Whether a statement gets back what it handed in: `model = train(model, ...)`."""
        value = getattr(stmt, "value", None)
        if not isinstance(value, ast.Call):
            return False
        given = [*value.args, *[kw.value for kw in value.keywords]]
        return any(item.things & self.script.things(a) for a in given if isinstance(a, ast.expr))

    def _part(self, item: Item, creations: list[ast.stmt]) -> Item:
        return Item(item.holder, item.kind, item.scope, creations, item.things, item.container)

    def _read_anyway(self, block: list[Any], item: Item) -> bool:
        """Whether a name is read on every path: then it is made on every path that goes on."""
        name, owner = item.holder.name, item.holder.scope
        if owner is None:
            return True
        first = self.tree.start(item.creations[0])
        for read in self.script.reads(name, owner):
            if self.script.scope_of(read) is item.scope and self.tree.start(read) < first:
                continue
            conditional = False
            for ancestor in self.tree.ancestors(read):
                if isinstance(ancestor, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    break
                if isinstance(ancestor, (ast.If, ast.IfExp)) and ancestor is not self.script.main_guard:
                    conditional = True
            if not conditional:
                return True
        return False

    def _descend(self, block: list[Any], item: Item) -> tuple[list[Any], ast.stmt | None]:
        for stmt in block:
            if isinstance(stmt, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                continue
            needed = self.script.trains(stmt) or self._hands_over(stmt, item) or self._evaluates(stmt, item)
            if not needed and not self._hands_on(stmt, item):
                continue
            inside = [c for c in item.creations if _inside(c, stmt)]
            earlier = block[: block.index(stmt)]
            before = [c for c in item.creations if any(_inside(c, s) for s in earlier)]
            if before:
                return block, stmt
            if not inside:
                if any(self.tree.start(c) < self.tree.start(stmt) for c in item.creations):
                    return block, stmt
                continue
            if stmt in item.creations:
                continue
            for child in _blocks(stmt):
                if any(_inside(c, s) for c in inside for s in child):
                    found, use = self._descend(child, item)
                    if use is not None:
                        return found, use
            return block, None
        # No training below this block: after the creation, where it stands.
        owner_block: list[Any] = self.tree.block_of(item.creations[-1])[2]
        if all(any(c is s for s in owner_block) for c in item.creations):
            return owner_block, None
        return block, None

    def _hands_on(self, stmt: ast.stmt, item: Item) -> bool:
        """Whether a statement keeps a loader elsewhere: in an iterator, a dictionary, a bar, under another name.

        What is kept goes on being the loader as it was before prepare. Asking for its length or data set keeps nothing.
        """
        if stmt in item.creations:
            return False
        if item.kind != v.LOADER:
            return item.container is None and self.held.keeps(stmt, item.things, self._kept_and_run(item))
        for node in walk(stmt):
            if not isinstance(node, (ast.Name, ast.Attribute)) or not isinstance(node.ctx, ast.Load):
                continue
            parent = self.tree.parent(node)
            if isinstance(parent, ast.Attribute) or not item.things & self.script.things(node):
                continue
            if (
                isinstance(parent, ast.Call)
                and isinstance(parent.func, ast.Name)
                and parent.func.id in _LOOKS
            ):
                continue
            return True
        return False

    def filled_behind(self, site: PrepareSite, item: Item) -> ast.Call | None:
        """Where a ModuleList or the like gets another part after it was prepared, None where it does not."""
        for call in self.script.calls() if item.kind == v.MODEL and item.container is None else ():
            func = call.func
            if not isinstance(func, ast.Attribute) or func.attr not in (
                "append",
                "extend",
                "insert",
                "add_module",
            ):
                continue
            if self.script.scope_of(call) is site.scope and self.tree.start(call) > self.tree.end(site.after):
                if item.things & self.script.models_of(func.value):
                    return call
        return None

    def _kept_and_run(self, item: Item) -> bool:
        """Whether a model or optimizer is used as an element of a list or as a part of a composite module."""
        key = item.holder.name, frozenset(item.things)
        if key not in self._run_within:
            self._run_within[key] = self.held.called_within(item.things, item.holder)
        return self._run_within[key]

    def _evaluates(self, stmt: ast.stmt, item: Item) -> bool:
        """Whether a statement runs a loop over a loader in a function, whose batches prepare places."""
        return any(
            isinstance(node, ast.Call) and bool(self.script.callees(node) & self._evaluating_scopes)
            for node in walk(stmt)
        )

    @cached_property
    def _evaluating_scopes(self) -> set[Scope]:
        """Functions with a loop over a loader in which a model of an outer scope, or a parameter, is called."""
        found = {
            self.script.scope_of(loop)
            for loop, _ in self.script.loader_loops
            if any(isinstance(c, ast.Call) and self.script.models_of(c.func) for c in walk(loop))
        }
        return {scope for scope in found if scope.kind == "function" and not scope.is_method}

    def _hands_over(self, stmt: ast.stmt, item: Item) -> bool:
        """Whether a statement gives the item to a class of the program that keeps it and trains with it."""
        for node in walk(stmt):
            if not isinstance(node, ast.Call):
                continue
            for callee in self.script.callees(node):
                cls = callee.owner_class
                if cls is None or callee.name.rsplit(".", 1)[-1] != "__init__":
                    continue
                if self.script.is_a(
                    node, v.MODEL, v.OPTIMIZER, v.SCHEDULER, v.CRITERION, v.LOADER, v.DATASET
                ):
                    continue
                values = [*node.args, *[kw.value for kw in node.keywords]]
                if any(item.things & self._given(a) for a in values):
                    return True
        return False

    def _given(self, argument: ast.expr) -> set[Thing]:
        """The things that an argument is, or that a container it is holds."""
        found = self.script.things(argument)
        for container in self.script.values(argument):
            found |= {w for w in within(container) if isinstance(w, Thing)}
        return found

    def _definite(self, block: list[Any], item: Item, use: ast.stmt | None) -> bool:
        limit = block.index(use) if use is not None else len(block)
        every = [s for s, where in item.holder.assignments if where is item.scope]
        return any(_assigns_always(stmt, every) for stmt in block[:limit]) or any(
            self.tree.start(s) < self.tree.start(block[0]) for s in every
        )

    def _shapes(self, stmt: ast.stmt, item: Item) -> bool:
        """Whether a statement still changes what an item is: weights loaded, layers replaced, parameters frozen."""
        if isinstance(stmt, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            return False
        for node in walk(stmt):
            if isinstance(node, ast.Call):
                if isinstance(node.func, ast.Attribute) and node.func.attr in _SHAPING:
                    if item.things & self._roots(node.func.value):
                        return True
                if any(s in self._loading_scopes for s in self.script.callees(node)):
                    if any(item.things & self.script.things(a) for a in node.args):
                        return True
                if _assigned_to_requires_grad(node):
                    return True
            elif isinstance(node, (ast.Assign, ast.AugAssign)):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in targets:
                    if isinstance(target, ast.Attribute) and item.kind == v.MODEL:
                        if target.attr == "requires_grad" and self._from_model(stmt, item):
                            return True
                        if item.things & self._roots(target.value):
                            return True
        return False

    def _from_model(self, stmt: ast.stmt, item: Item) -> bool:
        return any(
            isinstance(n, ast.Call)
            and isinstance(n.func, ast.Attribute)
            and n.func.attr in ("parameters", "named_parameters")
            and item.things & self._roots(n.func.value)
            for n in walk(stmt)
        )

    def _roots(self, node: ast.expr) -> set[Thing]:
        """The things at the root of an attribute chain: the model of `model.fc.weight`."""
        while True:
            found = self.script.things(node, v.MODEL, v.OPTIMIZER, v.LOADER, v.SCHEDULER)
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
                for node in walk_scope(scope.node.body):
                    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                        if node.func.attr in ("load_state_dict", "requires_grad_"):
                            found.add(scope)
        return found - self.script.training_scopes


def _is_exception(cls: Class) -> bool:
    return any(
        (dotted(base) or "").endswith(("Error", "Exception"))
        for one in cls.ancestry()
        if isinstance(one.scope.node, ast.ClassDef)
        for base in one.scope.node.bases
    )


def _assigned_to_requires_grad(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Name) and node.func.id in (
        "set_parameter_requires_grad",
        "freeze_layers",
    )


def _blocks(stmt: ast.stmt) -> list[list[Any]]:
    found = [getattr(stmt, name) for name in ("body", "orelse", "finalbody") if getattr(stmt, name, None)]
    for handler in getattr(stmt, "handlers", []):
        found.append(handler.body)
    return found


def _is_none(stmt: ast.stmt) -> bool:
    value = getattr(stmt, "value", None)
    return isinstance(value, ast.Constant) and value.value is None


def _is_alias(stmt: ast.stmt) -> bool:
    """Whether an assignment only gives a thing a second name: `net = model`, `net = DataParallel(model)`."""
    value = getattr(stmt, "value", None)
    if isinstance(value, ast.Call) and value.args and (dotted(value.func) or "").endswith("DataParallel"):
        value = value.args[0]
    if isinstance(value, ast.IfExp):
        return isinstance(value.body, (ast.Name, ast.Attribute)) and isinstance(
            value.orelse, (ast.Name, ast.Attribute)
        )
    return isinstance(value, (ast.Name, ast.Attribute)) or (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr in k.SELF_RETURNING
        and isinstance(value.func.value, (ast.Name, ast.Attribute))
    )


def _gives_back(stmt: ast.stmt, name: str) -> bool:
    """Whether an assignment only hands a thing back to its own name: `net = net.to(device)`."""
    value = getattr(stmt, "value", None)
    while isinstance(value, ast.Call):
        if isinstance(value.func, ast.Attribute) and value.func.attr in k.SELF_RETURNING:
            value = value.func.value
        elif value.args and (dotted(value.func) or "").endswith(("DataParallel", "compile")):
            value = value.args[0]
        else:
            return False
    return (dotted(value) or "").rsplit(".", 1)[-1] == name


def _inside(node: ast.stmt, outer: ast.AST) -> bool:
    return node is outer or any(node is n for n in walk(outer))


def _assigns_always(stmt: ast.stmt, assignments: list[ast.stmt]) -> bool:
    if any(stmt is a for a in assignments):
        return True
    if isinstance(stmt, ast.If):
        return bool(stmt.orelse) and all(
            any(_assigns_always(s, assignments) or _leaves(s) for s in branch)
            for branch in (stmt.body, stmt.orelse)
        )
    if isinstance(stmt, (ast.With, ast.AsyncWith)):
        return any(_assigns_always(s, assignments) for s in stmt.body)
    if isinstance(stmt, ast.Try):
        return any(_assigns_always(s, assignments) for s in [*stmt.body, *stmt.orelse, *stmt.finalbody])
    return False


def _leaves(stmt: ast.stmt) -> bool:
    if isinstance(stmt, (ast.Raise, ast.Return, ast.Continue, ast.Break)):
        return True
    if isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Call):
        text = ast.unparse(stmt.value.func)
        return text in ("sys.exit", "exit", "quit", "os._exit") or text.endswith(".error")
    return isinstance(stmt, ast.Assert) and isinstance(stmt.test, ast.Constant) and not stmt.test.value


def _is_module_class(script: ScriptModel, scope: Scope) -> bool:
    """Whether a scope is a method of an nn.Module, whose attributes are its own parts."""
    owner = scope.owner_class
    if owner is None:
        return False
    cls = script.interpreter.things.get((owner, "class"))
    from accelify.analysis.values import Class

    return isinstance(cls, Class) and script.interpreter.kind_of_class(cls) == v.MODEL
