"""Scopes and bindings: which definition a name in a script refers to."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from accelify.analysis.statements.methods_without_self import is_without_object
from accelify.analysis.syntax import FunctionNode, Node, Tree, target_names, walk_scope


@dataclass(eq=False)
class Scope:
    """A module, class or function body.

    `locals` are the names it binds; comprehension variables count to the scope around them, which is close enough
    for roles and keeps one scope a function.
    """

    node: ast.Module | ast.ClassDef | FunctionNode
    parent: Scope | None
    name: str
    locals: set[str] = field(default_factory=set)
    globals: set[str] = field(default_factory=set)
    children: dict[Node, Scope] = field(default_factory=dict)
    kind: str = field(init=False)
    """`module`, `class` or `function`."""

    @cached_property
    def nodes(self) -> list[Node]:
        """Every node of it but those of functions and classes inside."""
        return list(walk_scope(self.node.body))

    @property
    def calls(self) -> Sequence[ast.Call]:
        """Every call among the nodes, in the same order."""
        return self.of_type(ast.Call)

    def of_type(self, *types: type) -> Sequence[Any]:
        """The nodes of some types (not of their subclasses), in the same order. Cached."""
        found = self._of_types.get(types)
        if found is None:
            found = self._of_types[types] = [node for node in self.nodes if type(node) in types]
        return found

    @cached_property
    def _of_types(self) -> dict[tuple[type, ...], list[Any]]:
        return {}

    def __post_init__(self) -> None:
        if isinstance(self.node, ast.Module):
            self.kind = "module"
        else:
            self.kind = "class" if isinstance(self.node, ast.ClassDef) else "function"

    @property
    def is_method(self) -> bool:
        """Whether it is a function defined directly in a class."""
        return self.kind == "function" and self.parent is not None and self.parent.kind == "class"

    @property
    def owner_class(self) -> ast.ClassDef | None:
        """The class whose method this is (or inside whose method it is)."""
        scope: Scope | None = self
        while scope is not None:
            if scope.is_method and scope.parent is not None and isinstance(scope.parent.node, ast.ClassDef):
                return scope.parent.node
            scope = scope.parent
        return None

    def parameters(self) -> list[ast.arg]:
        """All parameters in order: positional-only, positional, star, keyword-only, double star."""
        if isinstance(self.node, (ast.Module, ast.ClassDef)):
            return []
        a = self.node.args
        star = [a.vararg] if a.vararg else []
        double = [a.kwarg] if a.kwarg else []
        return [*a.posonlyargs, *a.args, *star, *a.kwonlyargs, *double]

    def takes(self, name: str) -> bool:
        """Whether one of the parameters is called so."""
        return name in self._parameter_names

    @cached_property
    def _parameter_names(self) -> frozenset[str]:
        return frozenset([a.arg for a in self.parameters()])

    def defaults(self) -> list[tuple[ast.arg, ast.expr]]:
        """The parameters of a function that have a default, with it."""
        arguments = getattr(self.node, "args", None)
        if not isinstance(arguments, ast.arguments):
            return []
        positional = [*arguments.posonlyargs, *arguments.args]
        pairs = [
            *zip(positional[len(positional) - len(arguments.defaults) :], arguments.defaults, strict=True),
            *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
        ]
        return [(argument, default) for argument, default in pairs if default is not None]

    def positional(self) -> list[str]:
        """Names of the parameters that take positional arguments, in order."""
        if isinstance(self.node, (ast.Module, ast.ClassDef)):
            return []
        return [a.arg for a in [*self.node.args.posonlyargs, *self.node.args.args]]

    def self_name(self) -> str | None:
        """The first parameter of a method, None for a function, a static method and what is called like one."""
        return self._self_name

    @cached_property
    def _self_name(self) -> str | None:
        if not self.is_method or isinstance(self.node, (ast.Module, ast.ClassDef)):
            return None
        if any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in self.node.decorator_list):
            return None
        names = self.positional()
        return names[0] if names and not is_without_object(self) else None

    @property
    def is_class_method(self) -> bool:
        """Whether a method gets its class in place of an object."""
        return isinstance(self.node, (ast.FunctionDef, ast.AsyncFunctionDef)) and any(
            isinstance(d, ast.Name) and d.id == "classmethod" for d in self.node.decorator_list
        )

    @property
    def has_object(self) -> bool:
        """Whether it is a method whose first parameter is an object of its class."""
        return self.is_method and self.self_name() is not None and not self.is_class_method

    @property
    def method_around(self) -> Scope:
        """The method that a function is in, whose `self` it sees; the outermost function where there is none."""
        scope = self
        while not scope.is_method and scope.parent is not None and scope.parent.kind == "function":
            scope = scope.parent
        return scope

    def resolve(self, name: str) -> Scope | None:
        """The scope that binds a name as seen from here; None for builtins and unknown names."""
        scope: Scope | None = self
        first = True
        while scope is not None:
            if name in scope.globals:
                while scope.parent is not None:
                    scope = scope.parent
                return scope
            # A class body's names are not seen by the functions inside it.
            if (scope.kind != "class" or first) and name in scope.locals:
                return scope
            scope, first = scope.parent, False
        return None

    def imports(self, name: str) -> bool:
        """Whether a name is a module as seen from here: `np` of `import numpy as np`."""
        owner = self.resolve(name)
        return owner is not None and any(
            (alias.asname or alias.name.partition(".")[0]) == name
            for stmt in owner.of_type(ast.Import)
            for alias in stmt.names
        )


class Scopes:
    """All scopes of a script, and the scope of every node."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.module = Scope(tree.module, None, "")
        self._by_node: dict[Node, Scope] = {tree.module: self.module}
        self._around: dict[Node, Scope] = {}
        self._build(self.module)

    def _build(self, scope: Scope) -> None:
        for argument in scope.parameters():
            scope.locals.add(argument.arg)
        self._around.update(dict.fromkeys(scope.nodes, scope))
        for node in scope.nodes:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                scope.locals.add(node.name)
                prefix = f"{scope.name}." if scope.name else ""
                child = Scope(node, scope, prefix + node.name)
                scope.children[node] = child
                self._by_node[node] = child
                self._build(child)
            elif type(node) in _BINDING:
                _bind(scope, node)
        # What a function declares global and assigns is the module's, even where that never assigns it itself.
        self.module.locals |= scope.locals & scope.globals
        scope.locals -= scope.globals

    def all(self) -> Iterator[Scope]:
        """Every scope, outer ones first."""
        stack = [self.module]
        while stack:
            scope = stack.pop()
            yield scope
            stack.extend(reversed(scope.children.values()))

    def functions(self) -> Iterator[Scope]:
        """Every function and method."""
        return (s for s in self.all() if s.kind == "function")

    def of(self, node: Node) -> Scope:
        """The scope that contains a node (a definition is in the scope around it)."""
        known = self._around.get(node)
        if known is None:
            known = self.module
            for ancestor in self.tree.ancestors(node):
                scope = self._by_node.get(ancestor)
                if scope is not None:
                    known = scope
                    break
            self._around[node] = known
        return known

    def opens(self, node: Node) -> bool:
        """Whether a node is a definition (or the module) of these scopes."""
        return node in self._by_node

    def for_definition(self, node: Node) -> Scope:
        """The scope that a function, class or module opens."""
        return self._by_node[node]


def scope_around(tree: Tree, node: Node, every: Iterable[Scopes]) -> Scope | None:
    """The scope that contains a node of several files; None outside of them."""
    for ancestor in tree.ancestors(node):
        for scopes in every:
            if scopes.opens(ancestor):
                return scopes.for_definition(ancestor)
    return None


_BINDING = frozenset(
    {
        ast.Name,
        ast.Import,
        ast.ImportFrom,
        ast.Global,
        ast.Nonlocal,
        ast.ExceptHandler,
        ast.comprehension,
        ast.MatchAs,
    }
)


def _bind(scope: Scope, node: Node) -> None:
    if isinstance(node, ast.Name):
        if not isinstance(node.ctx, ast.Load):
            scope.locals.add(node.id)
    elif isinstance(node, ast.Import):
        for alias in node.names:
            scope.locals.add(alias.asname or alias.name.split(".")[0])
    elif isinstance(node, ast.ImportFrom):
        for alias in node.names:
            scope.locals.add(alias.asname or alias.name)
    elif isinstance(node, ast.Global):
        scope.globals.update(node.names)
    elif isinstance(node, ast.Nonlocal):
        scope.locals.difference_update(node.names)
    elif isinstance(node, ast.ExceptHandler) and node.name:
        scope.locals.add(node.name)
    elif isinstance(node, ast.comprehension):
        scope.locals.update(target_names(node.target))
    elif isinstance(node, ast.MatchAs) and node.name:
        scope.locals.add(node.name)


def in_order(scopes: Iterable[Scope]) -> list[Scope]:
    """Scopes by name and line: where the first of several decides, every run has to decide the same."""
    found = list(scopes)
    if len(found) > 1:
        found.sort(key=lambda scope: (scope.name, getattr(scope.node, "lineno", 0)))
    return found


def handed_to(call: ast.Call, callee: Scope) -> list[tuple[ast.expr, str]]:
    """What a call passes, with the parameters that take it."""
    names = callee.positional()
    if callee.self_name() is not None:
        names = names[1:]
    pairs = list(zip(call.args, names, strict=False))
    return pairs + [(kw.value, kw.arg) for kw in call.keywords if kw.arg is not None]


def spread_to(call: ast.Call, callee: Scope) -> list[tuple[ast.expr, str]]:
    """What a call spreads, `*batch` or `**batch`, with the parameters that can take a part of it."""
    first = next((i for i, a in enumerate(call.args) if isinstance(a, ast.Starred)), len(call.args))
    named = {kw.arg for kw in call.keywords}
    if first == len(call.args) and None not in named:
        return []
    names = callee.positional()[1 if callee.self_name() is not None else 0 :][first:]
    rest = getattr(getattr(callee.node, "args", None), "kwarg", None)
    free = [name for name in [*names, *([rest.arg] if rest is not None else [])] if name not in named]
    spread = [a.value for a in call.args if isinstance(a, ast.Starred)]
    spread += [kw.value for kw in call.keywords if kw.arg is None]
    return [(value, name) for value in spread for name in free]
