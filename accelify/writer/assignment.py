"""Names of a program that may not be assigned where they are read.

    if train:
        model = Net()
    save(model)                    `model`, where it does not train

    report("begins")               `accelerator`, which `report` reads and which is assigned below
    accelerator = Accelerator()

Names are followed through the module and each function, and through calls of functions and classes of the file by
their names. What runs later, or by way of a value, is not followed. No program is asked alone: what matters is what an
edit leaves unassigned that was not so before it.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeGuard

from accelify.analysis.syntax import children, walk

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_WITH_BODIES = (*FUNCTIONS, ast.Lambda)
_ENDS = frozenset({"exit", "quit", "_exit"})
Function = ast.FunctionDef | ast.AsyncFunctionDef
Callables = Mapping[str, ast.AST]
# What is read: in which scope, and under which name.
Read = tuple[str, str]


class _NamedCall(ast.Call):
    func: ast.Name


@dataclass
class State:
    """What is assigned at a place on every path to it; `live` is false where no path reaches it."""

    names: set[str]
    # What is assigned if a test is true that was asked before, by the text of the test.
    implied: dict[str, set[str]] = field(default_factory=dict)
    live: bool = True

    def copy(self) -> State:
        return State(set(self.names), dict(self.implied), self.live)

    def end(self) -> None:
        self.live = False


def joined(states: Iterable[State]) -> State:
    """What is assigned on all of some paths."""
    live = [state for state in states if state.live]
    if not live:
        return State(set(), live=False)
    names = set.intersection(*(state.names for state in live))
    implied = {
        test: set.intersection(*(state.names | state.implied.get(test, set()) for state in live))
        for state in live
        for test in state.implied
    }
    return State(names, implied)


class Assignments:
    """What of one file may not be assigned where it is read: `unassigned`, with how often, and `lines`."""

    def __init__(self, tree: ast.Module) -> None:
        functions = {function.name: function for function in functions_in(tree.body)}
        classes = {stmt.name: stmt for stmt in tree.body if isinstance(stmt, ast.ClassDef)}
        self.unassigned: Counter[Read] = Counter()
        self.lines: dict[Read, int] = {}
        # Of each scope what it binds, and how often it reads which name.
        self.bound: dict[str, set[str]] = {"": bound_by(tree.body)}
        self.reads: dict[str, Counter[str]] = {"": _reads(tree.body)}
        self._needs: dict[ast.AST, frozenset[str]] = {}
        Flow(self, "", self.bound[""], {**classes, **functions}).block(tree.body, State(set()))
        for where, node in _every_function(tree, ""):
            names = _parameters(node.args)
            own = bound_by(node.body) - _declared(node.body)
            inner = {s.name: s for s in functions_in(node.body)}
            self.bound[where] = self.bound.get(where, set()) | own | names
            self.reads[where] = self.reads.get(where, Counter()) + _reads(node.body)
            Flow(self, where, own | names, inner).block(node.body, State(names))

    def note(self, where: str, name: str, node: ast.AST) -> None:
        read = (where, name)
        self.unassigned[read] += 1
        self.lines.setdefault(read, getattr(node, "lineno", 1))

    def needs(self, called: ast.AST, callable_: Callables) -> frozenset[str]:
        """The names from outside of it that a function or class reads when it is called, itself or by its calls.

        Args:
            called: the function or class.
            callable_: what else can be called by its name there.
        """
        if called not in self._needs:
            self._needs[called] = frozenset()  # of a function that calls itself
            body = method_of(called, "__init__") if isinstance(called, ast.ClassDef) else called
            self._needs[called] = self._read_by(body, callable_) if body is not None else frozenset()
        return self._needs[called]

    def _read_by(self, function: ast.AST, callable_: Callables) -> frozenset[str]:
        assert isinstance(function, FUNCTIONS)
        bound, declared = bound_by(function.body), _declared(function.body)
        own = (bound - declared) | _parameters(function.args)
        found: set[str] = set()
        for node in run_at_once(function.body):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in own:
                found.add(node.id)
            if calls_name(node) and node.func.id in callable_ and node.func.id not in own:
                found |= self.needs(callable_[node.func.id], callable_)
        return frozenset(found - (bound & declared))


class Flow:
    """The paths through the statements of one scope.

    Args:
        file: what is called there, and takes what is found.
        where: the scope, by its name.
        own: the names that are followed.
        callable_: the functions and classes that can be called by their names.
    """

    def __init__(
        self, file: Assignments | None, where: str, own: set[str], callable_: Callables | None = None
    ) -> None:
        self.file = file
        self.where = where
        self.own = own
        self.callable = callable_ or {}
        self.breaks: list[list[State]] = []
        self.returns: list[State] = []
        self.lacks: dict[str, ast.AST] = {}

    def block(self, body: Sequence[ast.stmt], state: State) -> State:
        for stmt in body:
            if not state.live:
                break
            state = self._statement(stmt, state)
        return state

    def _statement(self, stmt: ast.stmt, state: State) -> State:
        match stmt:
            case ast.If(test=test):
                return self._if(stmt, test, state)
            case ast.For() | ast.AsyncFor():
                self.read(stmt.iter, state)
                return self._loop(stmt, state, always=False)
            case ast.While(test=test):
                self.read(test, state)
                return self._loop(stmt, state, always=isinstance(test, ast.Constant) and bool(test.value))
            case ast.Try() | ast.TryStar():
                return self._try(stmt, state)
            case ast.With() | ast.AsyncWith():
                for item in stmt.items:
                    self.read(item.context_expr, state)
                    self.store(item.optional_vars, state)
                return self.block(stmt.body, state)
            case ast.Match(subject=subject):
                self.read(subject, state)
                ways = []
                for case in stmt.cases:
                    inner = state.copy()
                    inner.names |= _captured(case.pattern)
                    if case.guard is not None:
                        self.read(case.guard, inner)
                    ways.append(self.block(case.body, inner))
                last = stmt.cases[-1]
                total = isinstance(last.pattern, ast.MatchAs) and last.pattern.pattern is None
                return joined(ways if total and last.guard is None else [*ways, state])
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                for node in [*stmt.decorator_list, *stmt.args.defaults, *stmt.args.kw_defaults]:
                    self.read(node, state)
                state.names.add(stmt.name)
            case ast.ClassDef():
                for node in [*stmt.decorator_list, *stmt.bases, *(word.value for word in stmt.keywords)]:
                    self.read(node, state)
                inner = state.copy()
                Flow(self.file, self.where, self.own - bound_by(stmt.body), self.callable).block(
                    stmt.body, inner
                )
                state.names.add(stmt.name)
            case ast.Import() | ast.ImportFrom():
                state.names |= {alias.asname or alias.name.partition(".")[0] for alias in stmt.names}
            case ast.Break():
                if self.breaks:
                    self.breaks[-1].append(state.copy())
                state.end()
            case ast.Continue():
                state.end()
            case ast.Return() | ast.Raise():
                self.read(stmt, state)
                if isinstance(stmt, ast.Return):
                    self.returns.append(state.copy())
                state.end()
            case ast.Delete(targets=targets):
                self.read(stmt, state)
                for target in targets:
                    state.names -= {node.id for node in walk(target) if isinstance(node, ast.Name)}
            case ast.Assign(targets=targets, value=value):
                self.read(value, state)
                for target in targets:
                    self.store(target, state)
            case ast.AnnAssign(target=target, value=value):
                self.read(value, state)
                if value is not None:
                    self.store(target, state)
            case ast.AugAssign(target=target, value=value):
                self.read(value, state)
                if isinstance(target, ast.Name):
                    self.used(target.id, target, state)
                self.store(target, state)
            case ast.Expr(value=ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name))) if name in _ENDS:
                self.read(stmt, state)
                state.end()
            case _:
                self.read(stmt, state)
        return state

    def _if(self, stmt: ast.If, test: ast.expr, state: State) -> State:
        self.read(test, state)
        yes, no = ast.unparse(test), f"not {ast.unparse(test)}"
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            no = ast.unparse(test.operand)
        inner, other = state.copy(), state.copy()
        for asked in (yes, *_conjuncts(test)):
            inner.names |= state.implied.get(asked, set())
        other.names |= state.implied.get(no, set())
        ways = [self.block(stmt.body, inner), self.block(stmt.orelse, other)]
        found = joined(ways)
        for asked, way in zip((yes, no), ways, strict=True):
            known = way.names if way.live else found.names
            found.implied[asked] = found.implied.get(asked, set()) | state.implied.get(asked, set()) | known
        return found

    def _loop(self, stmt: ast.For | ast.AsyncFor | ast.While, state: State, *, always: bool) -> State:
        self.breaks.append([])
        inner = state.copy()
        if not isinstance(stmt, ast.While):
            self.store(stmt.target, inner)
        self.block(stmt.body, inner)
        out = self.breaks.pop()
        end = state.copy()
        if always:
            end.end()
        return joined([self.block(stmt.orelse, end), *out])

    def _try(self, stmt: ast.Try | ast.TryStar, state: State) -> State:
        before = state.copy()
        ways = [self.block(stmt.orelse, self.block(stmt.body, state))]
        for handler in stmt.handlers:
            inner = before.copy()
            if handler.type is not None:
                self.read(handler.type, inner)
            if handler.name is not None:
                inner.names.add(handler.name)
            ways.append(self.block(handler.body, inner))
        found = joined(ways)
        if not stmt.finalbody:
            return found
        last = self.block(stmt.finalbody, before)
        return State(found.names | last.names, found.implied, found.live and last.live)

    def read(self, node: ast.AST | None, state: State) -> None:
        """What an expression reads, and the functions that it calls read."""
        if node is None:
            return
        for one in run_at_once([node]):
            if isinstance(one, ast.NamedExpr):
                self.store(one.target, state)
            elif isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load):
                self.used(one.id, one, state)
            elif calls_name(one) and one.func.id in self.callable:
                called = self.callable[one.func.id]
                for name in self.file.needs(called, self.callable) if self.file is not None else ():
                    self.used(name, one, state)
                if isinstance(called, FUNCTIONS):
                    state.names |= bound_by(called.body) & _declared(called.body)

    def used(self, name: str, node: ast.AST, state: State) -> None:
        if name in self.own and name not in state.names:
            if self.file is not None:
                self.file.note(self.where, name, node)
            self.lacks.setdefault(name, node)
            # Where it is not assigned, what follows is not reached.
            state.names.add(name)

    def store(self, target: ast.expr | None, state: State) -> None:
        for node in run_at_once([target]) if target is not None else ():
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                state.names.add(node.id)
            elif isinstance(node, ast.Name):
                self.used(node.id, node, state)


def _conjuncts(test: ast.expr) -> list[str]:
    """The texts of the tests that are all true where one is."""
    return (
        [ast.unparse(one) for one in test.values]
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And)
        else []
    )


def run_at_once(nodes: Iterable[ast.AST]) -> list[ast.AST]:
    """What runs with some statements or an expression: no body of a function, and no name of a comprehension."""
    found: list[ast.AST] = []
    for node in nodes:
        _add_what_runs(node, found)
    return found


def _add_what_runs(node: ast.AST, found: list[ast.AST]) -> None:
    if isinstance(node, _WITH_BODIES):
        for one in (*getattr(node, "decorator_list", ()), *node.args.defaults, *node.args.kw_defaults):
            if one is not None:
                _add_what_runs(one, found)
    elif isinstance(node, _COMPREHENSIONS):
        hidden = {n.id for g in node.generators for n in walk(g.target) if isinstance(n, ast.Name)}
        # Where it comes from is read first, and what its tests bind is there for its elements.
        rest = [child for child in children(node) if not isinstance(child, ast.comprehension)]
        inner = run_at_once([*node.generators, *rest])
        found += [one for one in inner if not (isinstance(one, ast.Name) and one.id in hidden)]
    else:
        for child in children(node):
            _add_what_runs(child, found)
        found.append(node)


def bound_by(body: Iterable[ast.AST]) -> set[str]:
    """The names that the statements of one scope bind."""
    found: set[str] = set()
    for node in body:
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, (ast.Lambda, *_COMPREHENSIONS)):
            found |= {n.target.id for n in walk(node) if isinstance(n, ast.NamedExpr)}
        else:
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                found.add(node.id)
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                found |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ExceptHandler) and node.name:
                found.add(node.name)
            elif isinstance(node, ast.pattern):
                found |= _captured(node)
            found |= bound_by(children(node))
    return found


def _reads(body: Iterable[ast.AST]) -> Counter[str]:
    read = (
        node for node in run_at_once(body) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    )
    return Counter(node.id for node in read)


def _declared(body: Iterable[ast.AST]) -> set[str]:
    """The names that a function takes from outside of it."""
    return {
        name
        for stmt in body
        for node in walk(stmt)
        if isinstance(node, (ast.Global, ast.Nonlocal))
        for name in node.names
    }


def _captured(pattern: ast.pattern) -> set[str]:
    names = (getattr(node, "name", None) or getattr(node, "rest", None) for node in walk(pattern))
    return {name for name in names if name}


def _parameters(args: ast.arguments) -> set[str]:
    every = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
    return {arg.arg for arg in every if arg is not None}


def _every_function(node: ast.AST, where: str) -> Iterator[tuple[str, Function]]:
    for child in children(node):
        if isinstance(child, ast.expr):
            continue
        inner = f"{where}.{child.name}" if isinstance(child, (*FUNCTIONS, ast.ClassDef)) else where
        if isinstance(child, FUNCTIONS):
            yield inner, child
        yield from _every_function(child, inner)


def functions_in(body: Iterable[ast.AST]) -> Iterator[Function]:
    """The functions that are defined in one scope."""
    for node in body:
        if isinstance(node, FUNCTIONS):
            yield node
        elif not isinstance(node, (ast.expr, ast.ClassDef)):
            yield from functions_in(children(node))


def method_of(cls: ast.AST, name: str) -> Function | None:
    """The method of a class by its name."""
    body = getattr(cls, "body", ())
    return next((s for s in body if isinstance(s, FUNCTIONS) and s.name == name), None)


def name_of(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def calls_name(node: ast.AST) -> TypeGuard[_NamedCall]:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
