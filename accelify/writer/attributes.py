"""Attributes that objects of a program may not have where they are read.

    class Base:
        def __init__(self, accelerator):
            self.accelerator = accelerator
        def save(self):
            self.accelerator.save(...)
    class Other(Base):
        def __init__(self):        objects of `Other` have no `accelerator`
            self.net = None

Attributes of `self` are followed from the first line of `__init__` on, through the methods that it calls, those of
derived classes first, and then in all other methods. What other code sets is not followed. As with names, what matters
is what an edit adds.
"""

from __future__ import annotations

import ast
from collections import Counter

from accelify.analysis.syntax import walk
from accelify.writer.assignment import (
    FUNCTIONS,
    Flow,
    Function,
    Read,
    State,
    bound_by,
    calls_name,
    joined,
    method_of,
    name_of,
    run_at_once,
)

_OPEN = frozenset({"__getattr__", "__getattribute__", "__setattr__"})
_MAKING = ("__init__", "__post_init__")


class Attributes:
    """What objects of one file's classes may lack where it is read, or cannot have: `lacking`, and `lines`."""

    def __init__(self, tree: ast.Module) -> None:
        self._classes = {stmt.name: stmt for stmt in tree.body if isinstance(stmt, ast.ClassDef)}
        self._made = {node.func.id for node in walk(tree) if calls_name(node)} if self._classes else set()
        self.lacking: Counter[Read] = Counter()
        self.lines: dict[Read, int] = {}
        for cls in self._classes.values():
            self._look_at(cls)

    def _look_at(self, cls: ast.ClassDef) -> None:
        known = self._ancestry(cls)
        methods = [stmt for base in known for stmt in base.body if isinstance(stmt, FUNCTIONS)]
        if any(method.name in _OPEN for method in methods):
            return
        whole = all(
            name_of(base) == "object" or name_of(base) in self._classes for one in known for base in one.bases
        )
        stored = {method: _attributes(method, ast.Store) for method in methods}
        followed = set[str]().union(*stored.values())
        if whole and cls.name in self._made:
            followed |= set[str]().union(*(_attributes(method, ast.Load) for method in methods))
        objects = _Objects(followed - set[str]().union(*(bound_by(one.body) for one in known)), known)
        state = State(set())
        first: dict[str, ast.AST] = {}
        for name in _MAKING:
            found = objects.lookup(name)
            if found is not None:
                first |= objects.lacked(*found, state)
        making = {*objects.summaries, *(method for method in methods if method.name in _MAKING)}
        # Whoever calls the other methods may have called those before that set something.
        state.names |= set[str]().union(*(names for method, names in stored.items() if method not in making))
        for name in dict.fromkeys(method.name for method in methods):
            found = objects.lookup(name)
            if found is not None and found[0] not in making:
                first |= objects.lacked(*found, state.copy())
        only = _only(known) if whole else None
        if only is not None:
            first |= {name: method for method, names in stored.items() for name in names - only}
        for name, node in first.items():
            self.lacking[cls.name, name] += 1
            self.lines[cls.name, name] = getattr(node, "lineno", 1)

    def _ancestry(self, cls: ast.ClassDef) -> list[ast.ClassDef]:
        """A class with those of the file that it is derived from, in the order in which methods are looked up."""
        found = [cls]
        for one in found:  # which grows
            bases = [self._classes[name_of(base)] for base in one.bases if name_of(base) in self._classes]
            found += [base for base in bases if base not in found]
        return found


class _Objects(Flow):
    """The paths through the methods of an object: of attributes of `self` as of names.

    Args:
        own: the attributes that are followed.
        known: the class and those that it is derived from.
    """

    def __init__(self, own: set[str], known: list[ast.ClassDef]) -> None:
        super().__init__(None, "", own)
        # Of each method what it reads first, and what it sets on every path to its end.
        self.summaries: dict[Function, tuple[dict[str, ast.AST], set[str]]] = {}
        self._known = known
        self._index = 0
        self._self = ""

    def lookup(self, name: str, first: int = 0) -> tuple[Function, int] | None:
        """A method, that of the first class which has it from a place on, and that class's place."""
        for index, cls in enumerate(self._known[first:], first):
            method = method_of(cls, name)
            if method is not None:
                return method, index
        return None

    def lacked(self, method: Function, index: int, state: State) -> dict[str, ast.AST]:
        """What a call of a method reads that a state lacks; what it sets is in the state then."""
        if method not in self.summaries:
            self.summaries[method] = {}, set()  # of one that calls itself
            outer = self.lacks, self.returns, self.breaks, self._index, self._self
            self.lacks, self.returns, self.breaks, self._index, self._self = {}, [], [], index, _self(method)
            if self._self:
                end = joined([self.block(method.body, State(set())), *self.returns])
                self.summaries[method] = self.lacks, end.names
            self.lacks, self.returns, self.breaks, self._index, self._self = outer
        lacks, sets = self.summaries[method]
        found = {name: node for name, node in lacks.items() if name not in state.names}
        state.names |= sets
        return found

    def read(self, node: ast.AST | None, state: State) -> None:
        for one in run_at_once([node] if node is not None else []):
            if isinstance(one, ast.Attribute) and name_of(one.value) == self._self:
                if isinstance(one.ctx, ast.Load):
                    self.used(one.attr, one, state)
            elif isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute):
                called = self._called(one, one.func)
                for name, _ in self.lacked(*called, state).items() if called is not None else ():
                    self.lacks.setdefault(name, one)

    def _called(self, call: ast.Call, func: ast.Attribute) -> tuple[Function, int] | None:
        """The method of the same object that is called, and the place of its class."""
        if name_of(func.value) == self._self:
            return self.lookup(func.attr)
        if calls_name(func.value) and func.value.func.id == "super":
            return self.lookup(func.attr, self._index + 1)
        if call.args and name_of(call.args[0]) == self._self:  # Base.__init__(self)
            bases = [index for index, cls in enumerate(self._known) if cls.name == name_of(func.value)]
            return self.lookup(func.attr, bases[0]) if bases else None
        return None

    def store(self, target: ast.expr | None, state: State) -> None:
        for node in run_at_once([target] if target is not None else []):
            if isinstance(node, ast.Attribute) and name_of(node.value) == self._self:
                if isinstance(node.ctx, ast.Load):
                    self.used(node.attr, node, state)
                else:
                    state.names.add(node.attr)


def _self(method: Function) -> str:
    """What a method calls its object; "" where it has none."""
    if any(name_of(one) in ("staticmethod", "classmethod") for one in method.decorator_list):
        return ""
    every = [*method.args.posonlyargs, *method.args.args]
    return every[0].arg if every else ""


def _attributes(method: Function, kind: type[ast.expr_context]) -> set[str]:
    """The attributes of its object that a method sets, or reads."""
    this = _self(method)
    every = (n for n in walk(method) if isinstance(n, ast.Attribute) and isinstance(n.ctx, kind))
    return {node.attr for node in every if this and name_of(node.value) == this}


def _only(known: list[ast.ClassDef]) -> set[str] | None:
    """The only attributes that objects can be given, by `__slots__` or as they are frozen; None where any."""
    found: set[str] = set()
    for cls in known:
        words = [word for made in cls.decorator_list if isinstance(made, ast.Call) for word in made.keywords]
        if any(w.arg == "frozen" and isinstance(w.value, ast.Constant) and w.value.value for w in words):
            return set()
    for cls in known:
        assigned = (stmt for stmt in cls.body if isinstance(stmt, ast.Assign))
        slots = next((stmt for stmt in assigned if name_of(stmt.targets[0]) == "__slots__"), None)
        if slots is None:
            return None
        texts = (node.value for node in walk(slots.value) if isinstance(node, ast.Constant))
        found |= {text for text in texts if isinstance(text, str)}
    return None if "__dict__" in found else found
