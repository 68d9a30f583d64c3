"""Classes that keep a running average: `update(value, n)` adds up, `avg` divides."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from accelify.analysis import values as v
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import names_in, walk
from accelify.analysis.values import Class


@dataclass(frozen=True)
class Meter:
    """Attributes of such a class: the sum, the count, and the average where there is one."""

    update: str
    total: str
    count: str
    average: str | None

    def averaged(self, contained: str) -> str:
        """How the average of one that is called `contained` is computed again."""
        return f"{contained}.{self.total} / max({contained}.{self.count}, 1)"


def meter_of(script: ScriptModel, node: ast.expr) -> Meter | None:
    """What is known of the running average that an expression represents; None for anything else."""
    classes = {t.cls for t in script.entities(node, v.INSTANCE)}
    found = {_meter(cls) if cls is not None else None for cls in classes}
    return found.pop() if len(found) == 1 else None


def _meter(cls: Class) -> Meter | None:
    """`self.total += value * n; self.count += n; self.average = self.total / self.count`."""
    for own in cls.ancestry():
        for definition, scope in own.scope.children.items():
            name = getattr(definition, "name", "")
            receiver, parameters = scope.self_name(), scope.positional()[1:]
            if scope.kind != "function" or receiver is None or not parameters or name.startswith("__"):
                continue
            added: dict[str, set[str]] = {}
            for node in scope.of_type(ast.AugAssign):
                if isinstance(node.op, ast.Add):
                    attribute = _own(node.target, receiver)
                    if attribute is not None:
                        added[attribute] = set(names_in(node.value))
            quotient = _quotient(cls, set(added)) if len(added) == 2 else None
            if quotient is None or not added[quotient[0]] & set(parameters):
                continue
            if set(added) != {quotient[0], quotient[1]}:
                continue
            retained = [
                node.value
                for node in scope.of_type(ast.Assign)
                if any(_own(t, receiver) == quotient[2] for t in node.targets)
            ]
            total, count, average = (_outside(own, attribute) for attribute in quotient)
            if not retained:
                return Meter(name, total, count, None)
            return Meter(name, total, count, average) if _divides(retained[0], receiver, quotient) else None
    return None


def _outside(cls: Class, attribute: str) -> str:
    """What an attribute is called outside of its class: `__sum` is `_Average__sum` there."""
    private = attribute.startswith("__") and not attribute.endswith("__")
    return f"_{getattr(cls.scope.node, 'name', '').lstrip('_')}{attribute}" if private else attribute


def _divides(value: ast.expr, receiver: str, quotient: tuple[str, str, str]) -> bool:
    """Whether an average is nothing but the quotient: `total / count if count else 0`."""
    total = quotient[0]
    if isinstance(value, ast.IfExp):
        value = value.body if total in {_own(n, receiver) for n in walk(value.body)} else value.orelse
    return (
        isinstance(value, ast.BinOp) and isinstance(value.op, ast.Div) and _own(value.left, receiver) == total
    )


def _quotient(cls: Class, added: set[str]) -> tuple[str, str, str] | None:
    """The sum, the count and what their quotient is called, in any method or property of a class."""
    for own in cls.ancestry():
        for definition, scope in own.scope.children.items():
            receiver = scope.self_name() or ""
            for node in scope.of_type(ast.Assign, ast.Return) if scope.kind == "function" else ():
                for part in walk(node.value) if node.value is not None else ():
                    if not isinstance(part, ast.BinOp) or not isinstance(part.op, ast.Div):
                        continue
                    total, count = _own(part.left, receiver), _counted(part.right, receiver)
                    if total in added and count in added and total is not None and count is not None:
                        name = getattr(definition, "name", "")
                        if isinstance(node, ast.Assign):
                            name = _own(node.targets[0], receiver) or ""
                        return total, count, name
    return None


def _counted(node: ast.expr, receiver: str) -> str | None:
    """The attribute in `self.count`, `max(self.count, 1)`, `(self.count + 1e-5)`."""
    found = {_own(n, receiver) for n in walk(node) if isinstance(n, ast.expr)} - {None}
    return found.pop() if len(found) == 1 else None


def _own(node: ast.AST, receiver: str) -> str | None:
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == receiver:
        return node.attr
    return None
