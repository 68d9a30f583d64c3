"""Where the Accelerator is made, and how it reaches every function that needs it."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from functools import cached_property

from accelify.analysis import values as v
from accelify.analysis.devices.choice_statements import binds_device, settles_device
from accelify.analysis.devices.fallbacks import named_before
from accelify.analysis.devices.on_import import needs_it_on_import
from accelify.analysis.devices.visible_devices import hides_devices
from accelify.analysis.modules.reached import is_called_by_nobody
from accelify.analysis.planning.anchor_statements import (
    DEFINITIONS,
    asks_rank,
    defines,
    is_harmless,
    is_header,
    is_moved_by_then,
    leads,
    makes_role,
    may_set_options,
    parses_arguments,
    runs_text,
)
from accelify.analysis.planning.homes import (
    bases_elsewhere,
    caller_of,
    class_value,
    function_of,
    init_of,
    is_plain_class,
    made_instead,
    node_of,
    why_not_stored,
)
from accelify.analysis.planning.lifted import Lifted
from accelify.analysis.program import Module
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.statements.headers import evaluating_scope
from accelify.analysis.syntax import Node, Tree, dotted, names_in
from accelify.analysis.trained import keeps_optimizer
from accelify.analysis.values import Class, Function

NAME = "accelerator"
_HARMLESS_DECORATORS = frozenset(
    {
        "torch.no_grad",
        "torch.inference_mode",
        "torch.enable_grad",
        "builtins.staticmethod",
        "builtins.classmethod",
    }
)


@dataclass(eq=False)
class Anchor:
    """Where `accelerator = Accelerator(...)` goes: `before` a statement, `after` one, or at the end of `block`."""

    root: Scope
    block: list[ast.stmt]
    after: ast.stmt | None = None
    before: ast.stmt | None = None
    offset: int = 0
    attribute: bool = False
    arguments: dict[str, str] = field(default_factory=dict)

    def is_after(self, tree: Tree, node: Node) -> bool:
        """Whether a node begins above the place."""
        return tree.start(node) < self.offset


class Reach:
    """Which functions can get the accelerator, by parameter, by attribute or by the module's global name."""

    # Calls in whose place the Accelerator's device comes: they take no argument any more.
    choices: frozenset[ast.expr] = frozenset()

    def __init__(self, script: ScriptModel, anchor: Anchor, core: set[Scope] | None = None) -> None:
        self.script = script
        self.core = {node_of(script, s) for s in core or ()}
        self.tree = script.tree
        self.anchor = anchor
        self.root = node_of(script, anchor.root)
        self.is_global = anchor.root.kind == "module"
        self.threaded: list[Scope] = []
        # Why a function cannot get the accelerator, in words.
        self.obstacles: dict[Scope, str] = {}
        # The modules that prevent it, because they call the function and are not converted with the script.
        self.elsewhere: dict[Module, None] = {}
        self._refused: set[Scope] = set()
        self._idle: dict[Scope, bool] = {}

    def expression(self, node: Node) -> str | None:
        """How the accelerator is written at a node; None where it cannot be had. Threads parameters as needed."""
        scope = evaluating_scope(self.script, node)
        home = node_of(self.script, scope)
        if home is self.root:
            if self.tree.start(node) < self.anchor.offset:
                # Of a class, methods run when its constructor has made it.
                if (
                    scope is init_of(self.script, home)
                    if home.kind == "class"
                    else not self._runs_later(scope)
                ):
                    return None
            if self.root.kind == "module" and not self._within_guard(node):
                return None
            return self._written(scope, home)
        if home.kind == "module" or not self.script.module_of(home.node).is_used(home.node):
            return None
        if self._sees_global(home) and not self._prefers_parameter():
            return NAME if self._after_anchor(home, set()) else None
        added: list[Scope] = []
        idle = home not in self.threaded and self._is_idle(home)
        if idle or not self._feasible(home, added):
            # A name that only the main guard makes is not there for those who import the module, nor is a function
            # that is in the guard itself.
            if self._sees_global(home) and (
                home in self.core or not self._prefers_parameter() or self._within_guard(home.node)
            ):
                return NAME if self._after_anchor(home, set()) else None
            return None
        for extra in added:
            if extra not in self.threaded:
                self.threaded.append(extra)
        return self._written(scope, home)

    def _runs_later(self, inner: Scope) -> bool:
        """Whether a function inside the one that makes the Accelerator is only named after that place."""
        while inner.parent is not None and inner.parent is not self.root:
            inner = inner.parent
        if inner.parent is None or not isinstance(inner.node, ast.FunctionDef):
            return False
        own = range(self.tree.start(inner.node), self.tree.end(inner.node))
        reads = [self.tree.start(read) for read in self.script.reads(inner.node.name, self.root)]
        return all(read >= self.anchor.offset or read in own for read in reads)

    def _sees_global(self, home: Scope) -> bool:
        """Whether the accelerator is a global of the module that a function is in."""
        return self.is_global and self.script.module_of(home.node).scopes.module is self.anchor.root

    def _prefers_parameter(self) -> bool:
        """In a script whose main guard makes everything, functions take the accelerator as they take the rest."""
        guard = self.script.main_guard
        return guard is not None and any(
            s is self.anchor.after or s is self.anchor.before for s in guard.body
        )

    def runs_after_anchor(self, node: Node) -> bool:
        """Whether a node of the module that makes the Accelerator runs only after it is made."""
        for ancestor in self.tree.ancestors(node):
            if isinstance(ancestor, ast.arguments):  # a default is read where the function is defined
                return self.tree.start(self.tree.parent(ancestor)) > self.anchor.offset
        home = node_of(self.script, self.script.scope_of(node))
        return home.kind == "module" or self._after_anchor(home, set())

    def _within_guard(self, node: Node) -> bool:
        guard = self.script.main_guard
        if guard is None or not self._prefers_parameter():
            return True
        return any(a is guard for a in self.tree.ancestors(node))

    def _written(self, scope: Scope, home: Scope) -> str:
        if home.kind == "class":
            method = scope
            while not method.is_method and method.parent is not None:
                method = method.parent
            return f"{method.self_name() or 'self'}.{NAME}"
        return NAME

    def _after_anchor(self, home: Scope, seen: set[Scope]) -> bool:
        """Whether every call of a function from the module's code comes after the anchor."""
        if home in seen:
            return True
        seen.add(home)
        for call in self._calls_of(home):
            caller = caller_of(self.script, call)
            if caller.kind == "module":
                if self.tree.start(call) < self.anchor.offset or call in self.choices:
                    return False
            elif not self._after_anchor(caller, seen):
                return False
        return True

    def can_be_given_to(self, home: Scope) -> bool:
        """Whether a function, or the objects of a class, can get the accelerator."""
        return self._feasible(home, [])

    def _feasible(self, home: Scope, added: list[Scope]) -> bool:
        """Whether an `accelerator` parameter can be threaded to a function from every place that calls it."""
        if home is self.root or home in self.threaded or home in added:
            return True
        if self._sees_global(home) and not self._prefers_parameter() and home.kind != "module":
            return self._after_anchor(home, set())
        if home in self._refused:
            return False
        obstacle = (
            self._obstacle(home) if home.kind != "module" else "module-level code of another file calls it"
        )
        if obstacle is not None:
            return self._refuse(home, obstacle)
        added.append(home)
        calls = self._calls_of(home)
        # A class that derives from one that is made takes what its base takes, a function what it passes on.
        certain = home.kind == "class" or home in self.core or _is_own(self.script, home)
        unseen = not calls and (certain or home in self.script.dormant)
        if unseen and init_of(self.script, home) not in self.script.dormant and not self._is_idle(home):
            others = made_instead(self.script, home)  # which store it themselves
            if not others or not all(self._feasible(one, added) for one in others):
                return self._refuse(home, f"no call of `{_shown(home)}` is seen")
        for call in calls:
            caller = caller_of(self.script, call)
            called = f"`{_shown(home)}` is called in line {self.tree.place(call)[1]}"
            if caller is not home and not self._feasible(caller, added):
                if self._reads_a_definition(call):
                    return self._refuse(home, f"{called}, when a definition is read and before it is made")
                return self._refuse(home, self.obstacles.get(caller, f"{called}, where it is not known"))
            early = caller is self.root and self.tree.start(call) < self.anchor.offset
            # Of a class, methods run when its constructor has made it.
            if early and (
                caller.kind != "class" or self.script.scope_of(call) is init_of(self.script, caller)
            ):
                return self._refuse(home, f"{called}, before it can be made")
            if caller is self.root and caller.kind == "class" and self._reads_a_definition(call):
                return self._refuse(home, f"{called}, before it can be made")
            if caller is self.root and caller.kind == "module" and not self._within_guard(call):
                return self._refuse(home, f"{called}, outside of the script's own run")
            starred = any(isinstance(a, ast.Starred) for a in call.args[:1])
            if starred or self.tree.in_fstring(call) or call in self.choices:
                return self._refuse(home, f"{called} in a way that takes no argument more")
        return True

    def _is_idle(self, home: Scope) -> bool:
        """Whether nobody calls a function, which then takes no parameter for what it does itself."""
        if home not in self._idle:
            idle = home.kind == "function" and not self._calls_of(home)
            self._idle[home] = idle and is_called_by_nobody(self.script, home)
        return self._idle[home]

    def _reads_a_definition(self, call: ast.Call) -> bool:
        """Whether a call is made by what defines a function or class: in a default, a decorator, a class's lines."""
        return self.script.scope_of(call) is not evaluating_scope(self.script, call)

    def _refuse(self, home: Scope, obstacle: str) -> bool:
        self._refused.add(home)
        self.obstacles.setdefault(home, obstacle)
        return False

    def _obstacle(self, home: Scope) -> str | None:
        """Why a function can take no further parameter, or a class store none; None where it can."""
        function = home if home.kind == "function" else init_of(self.script, home)
        shown = f"`{_shown(home)}`"
        if function is None or isinstance(function.node, (ast.Module, ast.ClassDef)):
            self.elsewhere |= dict.fromkeys(bases_elsewhere(self.script, home))
            return f"{shown} has no `__init__` of its own"
        if home.kind == "class" and not self._takes_attribute(home):
            if self._is_copied(class_value(self.script, home)):
                return f"{shown} is copied or saved whole, and it would go with it"
            return f"{shown} is a class of torch's kind, whose objects do not keep it"
        if home.kind == "class" and (why := why_not_stored(self.script, home)):
            return f"{shown} {why}"
        if function.takes(NAME):
            return f"{shown} has a parameter of that name"
        if elsewhere := self.script.called_from_elsewhere(function):
            self.elsewhere |= dict.fromkeys(elsewhere)
            return f"{shown} is called from another module too"
        for decorator in function.node.decorator_list:
            target = decorator.func if isinstance(decorator, ast.Call) else decorator
            if self.script.qualname(target) not in _HARMLESS_DECORATORS:
                return f"{shown} is called through its decorator `{dotted(target) or 'decorator'}`"
        if home.kind == "function" and self._escapes(home):
            return f"{shown} is handed on as a value"
        return None

    def _takes_attribute(self, home: Scope) -> bool:
        """Whether a class can store the accelerator in an attribute: a plain one, or a module that trains itself, or
        stores the optimizer that it is trained by.

        In the script's file a module sees the global name, which leaves its `__init__` as it is.
        """
        if is_plain_class(self.script, home):
            return True
        cls = class_value(self.script, home)
        methods = [s for c in cls.ancestry() for s in c.scope.children.values()]
        trains = any(s in self.script.training_scopes for s in methods if s.has_object) or keeps_optimizer(
            cls
        )
        return (
            trains
            and self.script.interpreter.kind_of_class(cls) == v.MODEL
            and not (self._sees_global(home) and home in self.core)
            and not self._is_copied(cls)
        )

    def _is_copied(self, cls: Class) -> bool:
        """Whether an object of a class is copied or saved whole: its attributes would go with it."""
        return cls in self._copied

    @cached_property
    def _copied(self) -> set[Class]:
        copying = ("copy.deepcopy", "copy.copy", "torch.save", "pickle.dump")
        return {
            cls
            for call in self.script.calls_to(copying)
            for argument in call.args[:1]
            for entity in self.script.entities(argument, v.MODEL)
            for cls in (entity.cls.ancestry() if entity.cls is not None else ())
        }

    def _escapes(self, scope: Scope) -> bool:
        """Whether a function is used as a value: called by code that the script does not show."""
        assert isinstance(scope.node, (ast.FunctionDef, ast.AsyncFunctionDef))
        for call in self.script.callers(scope):
            # `eval("train_" + kind)(...)`: all that it may call take the Accelerator then.
            picked = isinstance(call.func, (ast.Call, ast.Subscript))
            if picked and not self.script.callees(call) <= self.core | {scope}:
                return True
        for node in self.tree.named(scope.node.name):
            if isinstance(node.ctx, ast.Load):
                parent = self.tree.parent(node)
                if isinstance(parent, ast.Call) and parent.func is node:
                    continue
                if any(isinstance(w, Function) and w.scope is scope for w in self.script.values(node)):
                    return True
        return False

    def _calls_of(self, home: Scope) -> list[ast.Call]:
        function = home if home.kind == "function" else init_of(self.script, home)
        return self.script.callers(function) if function is not None else []


def _shown(home: Scope) -> str:
    return getattr(home.node, "name", home.name)


def find_anchor(script: ScriptModel, core: set[Scope], lifted: Lifted) -> Anchor:
    """The place for the Accelerator, with the scopes that cannot do without it, or why there is none."""
    homes, needed_names = {node_of(script, s) for s in core}, lifted.names
    # A model that trains itself, or a subclass of one of torch's classes, takes no further parameter: only a global
    # name reaches it, in the script's file.
    if any(
        h.kind == "class" and not is_plain_class(script, h) and script.module_of(h.node) is script.module
        for h in homes
    ):
        defined = {
            n for stmt in script.tree.module.body if stmt is not script.main_guard for n in defines(stmt)
        }
        body = script.tree.module.body if needed_names <= defined else _module_block(script)
        return _in_block(script, script.scopes.module, body, lifted)
    early = needs_it_on_import(script, needed_names)
    if early or any(h.kind == "module" for h in homes):
        block = script.tree.module.body if early else _module_block(script)
        return _in_block(script, script.scopes.module, block, lifted)
    started = _where_it_starts(script, homes) if not needed_names else None
    if started is not None:
        return started
    for root in [*_roots(script, homes), *([script.scopes.module] if script.main_guard else [])]:
        anchor = _root_anchor(script, root, lifted)
        if anchor is not None and all(map(Reach(script, anchor).can_be_given_to, homes)):
            return anchor
    # Threading is not possible: the module's global name reaches every function.
    return _in_block(script, script.scopes.module, script.tree.module.body, Lifted())


def _where_it_starts(script: ScriptModel, homes: set[Scope]) -> Anchor | None:
    """The script's place for the Accelerator, where all that needs it is in modules that it can be passed to:
    the script saves and prints too."""
    if any(_is_own(script, home) for home in homes) or not any(_shows(script, c) for c in script.calls()):
        return None
    found = [_root_anchor(script, r, Lifted()) for r in _roots(script, homes) if _is_own(script, r)]
    found.append(_in_block(script, script.scopes.module, _module_block(script), Lifted()))
    for anchor in found:
        if anchor is not None and all(map(Reach(script, anchor).can_be_given_to, homes)):
            return anchor
    return None


def _shows(script: ScriptModel, call: ast.Call) -> bool:
    """Whether the script's code prints or writes a file, which one process does for all."""
    name = script.qualname(call.func) or ""
    written = name in ("torch.save", "builtins.print", "builtins.open") or name.endswith(".savefig")
    return written and script.module_of(call) is script.module


def _is_own(script: ScriptModel, scope: Scope) -> bool:
    return script.module_of(scope.node) is script.module


def _roots(script: ScriptModel, homes: set[Scope]) -> list[Scope]:
    """Candidates for the scope that makes the Accelerator: the scopes that need it, then their callers outwards."""
    ordered = sorted(
        homes,
        key=lambda s: (
            script.depth(function_of(script, s)),
            script.tree.start(s.node) if s.kind != "module" else 0,
        ),
    )
    queue, seen = list(ordered), set(ordered)
    while queue:
        home = queue.pop(0)
        for call in script.callers(function_of(script, home)):
            caller = caller_of(script, call)
            if caller not in seen and caller.kind != "module":
                seen.add(caller)
                ordered.append(caller)
                queue.append(caller)
    return ordered


def _root_anchor(script: ScriptModel, root: Scope, lifted: Lifted) -> Anchor | None:
    if root.kind == "class":
        init = init_of(script, root)
        if init is None:
            return None
        anchor = _in_block(script, init, init.node.body, lifted)
        anchor.root, anchor.attribute = root, True
        return anchor
    guard = script.main_guard if root.kind == "module" else None
    return _in_block(script, root, (guard or root.node).body, lifted)


def _module_block(script: ScriptModel) -> list[ast.stmt]:
    """The module's body, or the main guard's where everything that matters is in it."""
    guard = script.main_guard
    if guard is None:
        return script.tree.module.body
    body = script.tree.module.body
    outside = [
        s
        for s in body
        if s is not guard and not isinstance(s, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
    ]
    if any(script.trains(s) or asks_rank(script, s) or makes_role(script, s) for s in outside):
        return body
    return guard.body


def _in_block(script: ScriptModel, scope: Scope, block: list[ast.stmt], lifted: Lifted) -> Anchor:
    tree, needed = script.tree, lifted.names
    earliest = 0
    constrained = False
    for index, stmt in enumerate(block):
        if (script.trains(stmt) or asks_rank(script, stmt)) and not isinstance(stmt, DEFINITIONS):
            break
        if settles_device(script, block, index, needed):
            later = block[index:]
            if not any(lifted.changed_by(script, s) for s in later):
                if not may_set_options(script, later[1:]):
                    break
        if is_moved_by_then(block, index, needed):
            break
        if is_header(stmt) or (
            index == 0 and isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Constant)
        ):
            if index == earliest and not constrained:
                earliest = index + 1
        if isinstance(stmt, (ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal)) and leads(
            script, block, index
        ):
            earliest = max(earliest, index + 1)
        if (
            parses_arguments(script, stmt)
            or (
                needed
                and defines(stmt) & needed
                and not script.trains(stmt)
                and not named_before(script, stmt)
            )
            or lifted.changed_by(script, stmt)
            or runs_text(script, stmt)
            or hides_devices(script, stmt)
        ):
            earliest = max(earliest, index + 1)
            constrained = True
    place = earliest
    while place < len(block) and is_harmless(script, block[place]):
        place += 1
    if place == len(block) or not binds_device(script, block[place]):
        place = earliest
    if not constrained:
        # Definitions between imports and code stay where they are; the Accelerator comes after them.
        while place < len(block) and isinstance(block[place], DEFINITIONS):
            place += 1
    anchor = Anchor(scope, block)
    if place < len(block) and not (place and isinstance(block[place], DEFINITIONS)):
        anchor.before = block[place]
        anchor.offset = tree.start(block[place])
    else:
        anchor.after = block[place - 1]
        anchor.offset = tree.end(block[place - 1])
    return anchor


__all__ = ["NAME", "Anchor", "Reach", "find_anchor", "names_in", "node_of"]
