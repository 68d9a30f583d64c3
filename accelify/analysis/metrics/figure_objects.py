"""Figures that an object stores, and shows by another method: `board.update(loss)`, `board.show()`."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator

from accelify.analysis.metrics.shown_elsewhere import OUTPUTS, shows
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import call_argument, names_in, target_names, text_of, walk
from accelify.analysis.values import INSTANCE

_PUTTING = frozenset({"append", "extend", "update", "add", "insert", "setdefault"})
_ROUNDS = 3


def shown_attribute(
    script: ScriptModel,
    origins: Iterable[ast.stmt],
    methods: Iterable[Scope],
    share_in: Callable[[ast.expr], object],
) -> str | None:
    """The attribute that a method shows and that other calls fill; None where it shows none.

    Args:
        script: its model.
        origins: the statements that pass an object a value to store.
        methods: of the object, which a call can run.
        share_in: what an argument has of one process's share of the data, if anything.
    """
    called = list(methods)
    for stmt in script.tree.in_order(origins) if called else ():
        call = stmt.value if isinstance(stmt, ast.Expr) else None
        if not isinstance(call, ast.Call):
            continue
        found: set[str] = set()
        for callee in script.callees(call):
            parameters = callee.positional()[1:] if callee.is_method and callee not in called else []
            arguments = {p: call_argument(call, i, p) for i, p in enumerate(parameters)}
            given = {p for p, a in arguments.items() if a is not None and share_in(a) is not None}
            found.update(filled(callee, given) if given else ())
        shown = {name for name in found if any(_shows(script, method, name) for method in called)}
        if shown:
            return min(shown)
    return None


def filled(method: Scope, given: set[str]) -> Iterator[str]:
    """The attributes in which a method stores some of its parameters, or what it makes of them."""
    known, own = _made_of(method, lambda node: bool(names_in(node) & given)) | given, method.self_name()
    for node in method.nodes:
        targets: list[ast.expr] = []
        if isinstance(node, ast.AugAssign) and names_in(node.value) & known:
            targets = [node.target]
        elif isinstance(node, ast.Assign) and names_in(node.value) & known:
            targets = node.targets
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in _PUTTING and any(names_in(a) & known for a in node.args):
                targets = [node.func.value]
        for target in targets:
            while isinstance(target, ast.Subscript) or _is_found(target):
                target = target.value if isinstance(target, ast.Subscript) else target.func.value  # type: ignore
            if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
                if target.value.id == own:
                    yield target.attr


def _is_found(node: ast.expr) -> bool:
    """`self.meters.setdefault(name, Meter())`: what a table holds."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("setdefault", "get")
    )


def returns_stored(script: ScriptModel, origin: ast.stmt, output: ast.Call) -> bool:
    """Whether an output shows what the object returns that a statement passes something to: `logger.get("train")`.

    Args:
        script: its model.
        origin: the statement, `logger.update(errors)`.
        output: a call that shows something.
    """
    call = origin.value if isinstance(origin, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return False
    methods = [s for s in script.callees(call) if s.is_method]
    retained = {
        name for s in methods for name in filled(s, {a.arg for a in s.parameters()} - {s.self_name()})
    }
    receiver = text_of(call.func.value)
    for node in _shown_parts(script, output) if retained else ():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if text_of(node.func.value) == receiver:
                if any(_gives_back(method, retained) for method in script.callees(node)):
                    return True
        elif isinstance(node, (ast.Name, ast.Attribute)) and isinstance(script.tree.parent(node), ast.Call):
            if text_of(node) == receiver and any(_gives_back(s, retained) for s in _texts(script, node)):
                return True
    return False


def _shown_parts(script: ScriptModel, output: ast.Call) -> Iterator[ast.AST]:
    """What a call shows, and what the variables in that were assigned."""
    scope = script.scope_of(output)
    for argument in [*output.args, *[kw.value for kw in output.keywords]]:
        for node in walk(argument):
            yield node
            for stmt in script.tree.assigns(node.id) if isinstance(node, ast.Name) else ():
                if script.scope_of(stmt) is scope:
                    yield from walk(stmt.value)


def _texts(script: ScriptModel, node: ast.expr) -> Iterator[Scope]:
    """The methods that make a text of an object."""
    for entity in script.entities(node, INSTANCE):
        for name in ("__str__", "__repr__", "__format__"):
            found = entity.cls.method(name) if entity.cls is not None else None
            if found is not None:
                yield found[1]


def _gives_back(method: Scope, attributes: set[str]) -> bool:
    """Whether a method returns some of these attributes of its object, or what it makes of them."""
    reads = _reading(method, attributes)
    known = _made_of(method, reads)
    given = [n.value for n in method.of_type(ast.Return) if n.value is not None]
    return any(reads(value) or names_in(value) & known for value in given)


def _reading(method: Scope, attributes: set[str]) -> Callable[[ast.AST], bool]:
    """Answers whether an expression reads some of these attributes of a method's object."""
    own = method.self_name()

    def reads(node: ast.AST) -> bool:
        return any(
            isinstance(n, ast.Attribute)
            and n.attr in attributes
            and isinstance(n.value, ast.Name)
            and n.value.id == own
            for n in walk(node)
        )

    return reads


def _made_of(method: Scope, begins: Callable[[ast.AST], bool]) -> set[str]:
    """The variables of a method that are made of something."""
    known: set[str] = set()
    for _ in range(_ROUNDS):
        before = len(known)
        for node in method.nodes:
            if isinstance(node, (ast.Assign, ast.AugAssign)):
                if begins(node.value) or names_in(node.value) & known:
                    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                    known |= {n for t in targets if not isinstance(t, ast.Attribute) for n in target_names(t)}
            elif isinstance(node, (ast.For, ast.AsyncFor)):
                if begins(node.iter) or names_in(node.iter) & known:
                    known |= set(target_names(node.target))
            elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in _PUTTING:
                given = node.func.value  # type: ignore[attr-defined]
                if isinstance(given, ast.Name) and any(begins(a) or names_in(a) & known for a in node.args):
                    known.add(given.id)
        if len(known) == before:
            break
    return known


def _shows(script: ScriptModel, method: Scope, attribute: str, far: int = 2) -> bool:
    """Whether a method shows an attribute of its object, by itself or by a function that it calls."""
    reads = _reading(method, {attribute})
    known = _made_of(method, reads)
    for call in method.calls:
        callees = script.callees(call)
        last = getattr(call.func, "attr", getattr(call.func, "id", ""))
        given = [*call.args, *[kw.value for kw in call.keywords]]
        contained = [a for a in given if reads(a) or names_in(a) & known]
        if contained and last in OUTPUTS and not callees:
            return True
        for callee in callees if far else ():
            if callee.is_method and callee.owner_class is method.owner_class:
                if _shows(script, callee, attribute, far - 1):
                    return True
            positional = callee.positional()[1 if callee.self_name() is not None else 0 :]
            taken = [p for i, p in enumerate(positional) if call_argument(call, i, p) in contained]
            if any(shows(script, callee, p, far - 1) for p in taken):
                return True
    return False


__all__ = ["filled", "returns_stored", "shown_attribute"]
