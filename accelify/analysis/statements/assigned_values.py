"""The values of a program's names and attributes: by assignments, whole or in part, by sums and by loops."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from accelify.analysis.metrics.stored_state import class_of
from accelify.analysis.program import Module
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.statements.reaching import last_assignment, reaching_assignments
from accelify.analysis.syntax import Tree, dotted
from accelify.analysis.values import Entity, Imported, Values

Place = tuple[Scope, str]

WHOLE, PART, ADDED, ELEMENT = "whole", "part", "added", "element"


@dataclass(frozen=True)
class Gift:
    """An expression that is assigned to a place, how, and in which module it is.

    The `whole` of it, the `part` at an index of it, what is `added` to what is there, or each `element` that a loop
    iterates over.
    """

    how: str
    value: ast.expr
    module: Module
    index: int = 0


class Given:
    """Finds for a program what is assigned to its names and attributes.

    Args:
        script: its model.
    """

    def __init__(self, script: ScriptModel) -> None:
        self.script = script
        self._attributes: dict[int, dict[Place, list[Gift | None]]] = {}

    def values(self, node: ast.expr, module: Module) -> Values:
        """What an expression can be."""
        if module in self.script.modules:
            return self.script.values(node)
        return self.script.interpreter.evaluate(module, self.script.scope_in(module, node), node)

    def imported_name(self, node: ast.expr, module: Module) -> str:
        """The qualified name of what a library or Python itself gives; "" for anything else."""
        if not isinstance(node, (ast.Name, ast.Attribute)):
            return ""
        names = [value.name for value in self.values(node, module) if isinstance(value, Imported)]
        if (
            not names
            and isinstance(node, ast.Name)
            and self.script.scope_in(module, node).resolve(node.id) is None
        ):
            return f"builtins.{node.id}"
        return min(names, default="")

    def place(self, node: ast.expr, module: Module) -> Place | None:
        """A name with the scope that binds it, an attribute of an object with the object's class."""
        scope = self.script.scope_in(module, node)
        if isinstance(node, ast.Name):
            owner = scope.resolve(node.id)
            return None if owner is None else (owner, node.id)
        if not isinstance(node, ast.Attribute):
            return None
        own = class_of(scope)
        if own is not None and isinstance(node.value, ast.Name) and node.value.id == scope.self_name():
            return own, node.attr
        classes = {
            value.cls.scope
            for value in self.values(node.value, module)
            if isinstance(value, Entity) and value.cls is not None
        }
        if len(classes) == 1:
            return classes.pop(), node.attr
        text = dotted(node)
        return None if text is None else (scope, text)

    def given(self, node: ast.expr, module: Module) -> list[Gift] | None:
        """All that is assigned to the place of a read; None where it is bound in a way that is not looked into."""
        place = self.place(node, module)
        if place is None:
            return None
        found: list[Gift | None] = []
        if isinstance(node, ast.Name):
            reaching = self._reaching(node, module)
            for store in module.tree.writes(node.id):
                if self.script.scope_in(module, store).resolve(node.id) is not place[0]:
                    continue
                if reaching is None or module.tree.statement(store) in reaching:
                    found.append(_gift(module, store))
        else:
            home = self.script.interpreter.module_of(place[0])
            found = self._by_attribute(home).get(place, [])
        gifts = [gift for gift in found if gift is not None]
        return gifts if len(gifts) == len(found) else None

    def _reaching(self, read: ast.Name, module: Module) -> list[ast.Assign] | None:
        """The assignments that a name can have its value from where it is read; None where they are not known."""
        last = last_assignment(module.tree, read) if isinstance(read.ctx, ast.Load) else None
        if last is not None:
            return [last]
        return reaching_assignments(self.script, read) if module in self.script.modules else None

    def _by_attribute(self, module: Module) -> dict[Place, list[Gift | None]]:
        known = self._attributes.get(id(module.tree))
        if known is None:
            known = self._attributes[id(module.tree)] = {}
            for store in module.tree.nodes(ast.Attribute):
                if isinstance(store.ctx, ast.Load):
                    continue
                home = self.script.module_of(store) if module in self.script.modules else module
                place = self.place(store, home)
                if place is not None:
                    known.setdefault(place, []).append(_gift(home, store))
        return known

    def is_parameter(self, place: Place) -> bool:
        """Whether a place is a parameter of a function."""
        return any(argument.arg == place[1] for argument in place[0].parameters())


def _gift(module: Module, store: ast.expr) -> Gift | None:
    """What the statement around a stored name or attribute gives to it."""
    tree = module.tree
    parent = tree.parent(store)
    if isinstance(parent, (ast.Assign, ast.AnnAssign, ast.NamedExpr)):
        return None if parent.value is None else Gift(WHOLE, parent.value, module)
    if isinstance(parent, ast.AugAssign):
        return Gift(ADDED, parent.value, module)
    if isinstance(parent, (ast.For, ast.comprehension)):
        return Gift(ELEMENT, parent.iter, module)
    if isinstance(parent, (ast.Tuple, ast.List)):
        return _of_several(tree, module, store, parent)
    return None


def _of_several(tree: Tree, module: Module, store: ast.expr, targets: ast.Tuple | ast.List) -> Gift | None:
    if any(isinstance(target, ast.Starred) for target in targets.elts):
        return None
    index = targets.elts.index(store)
    around = tree.parent(targets)
    if isinstance(around, ast.Assign):
        value = around.value
        if isinstance(value, (ast.Tuple, ast.List)):
            return Gift(WHOLE, value.elts[index], module) if len(value.elts) == len(targets.elts) else None
        return Gift(PART, value, module, index)
    if isinstance(around, (ast.For, ast.comprehension)):
        through = _column(around.iter, index)
        return None if through is None else Gift(ELEMENT, through, module)
    return None


def _column(iterated: ast.expr, index: int) -> ast.expr | None:
    """What the element at an index of each tuple that is gone through comes from: `zip`, `enumerate`, `items`."""
    if not isinstance(iterated, ast.Call):
        return None
    if isinstance(iterated.func, ast.Attribute) and iterated.func.attr in ("items", "iteritems"):
        return iterated.func.value if index == 1 else None
    name = dotted(iterated.func)
    if name == "zip":
        return iterated.args[index] if index < len(iterated.args) else None
    return iterated.args[0] if name == "enumerate" and index == 1 and iterated.args else None


__all__ = ["ADDED", "ELEMENT", "PART", "WHOLE", "Gift", "Given", "Place"]
