"""What objects keep of what their methods are handed: many a helper has methods and keeps nothing.

class Packer:                       class Board:
    def __init__(self, size):           def __init__(self, folder):
        self.size = size                    self.folder, self.lines = folder, []
    def pack(self, x):                  def log(self, loss):
        return x[: self.size]               self.lines.append(loss)     (`board.folder` stays what it was made)
"""

from __future__ import annotations

import ast

from accelify.analysis.devices.conversions import converts_itself
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import Tree, call_keyword, target_names, walk
from accelify.analysis.values import CRITERION, MODEL, UNKNOWN, Class, Imported, Thing, Value

# Libraries whose functions change nothing that they are handed, but for what they are told to write to by `out`.
_PURE = ("torch.", "numpy.", "math.", "builtins.", "os.path.")


class Keeping:
    """Answers which methods change their object, and which attributes stay as `__init__` has made them.

    Args:
        script: its model.
    """

    def __init__(self, script: ScriptModel) -> None:
        self.script = script
        self._keeps: dict[Scope, bool] = {}
        self._changed: dict[Class, frozenset[str] | None] = {}

    def keeps(self, method: Scope) -> bool:
        """Whether a method can change anything that its object keeps, as far as can be seen."""
        if method not in self._keeps:
            self._keeps[method] = False  # where it calls itself
            changed = self._changed_by(method)
            self._keeps[method] = changed is None or bool(changed)
        return self._keeps[method]

    def stays(self, cls: Class, attribute: str) -> bool:
        """Whether an attribute of a class's objects is set by `__init__`, and changed by no method of theirs."""
        if cls not in self._changed:
            methods = [s for c in cls.ancestry() for s in c.scope.children.values() if s.is_method]
            found = [self._changed_by(s) for s in methods if not s.name.endswith(".__init__")]
            known = cls.external_bases() <= {"builtins.object"} and None not in found
            self._changed[cls] = frozenset().union(*filter(None, found)) if known else None
        changed = self._changed[cls]
        made = cls.method("__init__")
        if changed is None or made is None or attribute in changed:
            return False
        own = made[1].self_name()
        return any(
            isinstance(n, ast.Attribute)
            and n.attr == attribute
            and isinstance(n.ctx, ast.Store)
            and isinstance(n.value, ast.Name)
            and n.value.id == own
            for n in made[1].nodes
        )

    def _changed_by(self, method: Scope) -> frozenset[str] | None:
        """The attributes that a method can change in its object, itself or by another; None: whichever."""
        own = method.self_name()
        if own is None:
            return None
        tree, found = self.script.interpreter.module_of(method).tree, set[str]()
        for node in walk(method.node):
            if not isinstance(node, ast.Name) or node.id != own:
                continue
            attribute = tree.parent(node)
            if not isinstance(attribute, ast.Attribute):
                return None  # handed on whole
            if converts_itself(tree.statement(attribute)):
                continue
            if not isinstance(attribute.ctx, ast.Load) or self._is_changed(tree, attribute):
                found.add(attribute.attr)
                continue
            call = tree.parent(attribute)
            if isinstance(call, ast.Call) and call.func is attribute:
                if self._holds_a_function(method, attribute):
                    continue
                run = self.script.interpreter.calls.get(call, set())
                if not run or any(not s.has_object or self.keeps(s) for s in run):
                    return None
        return frozenset(found)

    def _holds_a_function(self, method: Scope, attribute: ast.Attribute) -> bool:
        """Whether what an attribute holds is called for what it gives back: a library's criterion, a model."""
        interpreter = self.script.interpreter
        held = interpreter.evaluate(interpreter.module_of(method), method, attribute)
        # `loss or nn.MSELoss()`: what a parameter holds is not always known.
        known = [one for one in held if not (isinstance(one, Thing) and one.kind == UNKNOWN)]
        return bool(known) and all(
            one.name.startswith(_PURE) if isinstance(one, Imported) else _is_stateless(one) for one in known
        )

    def _is_changed(self, tree: Tree, attribute: ast.Attribute) -> bool:
        """Whether what an attribute holds is changed where it is read, or gets another name or owner."""
        node: ast.AST = attribute
        while True:
            parent = tree.parent(node)
            if isinstance(parent, ast.Subscript) and node is parent.slice:
                return False
            if not isinstance(parent, (ast.Attribute, ast.Subscript)):
                break
            if not isinstance(parent.ctx, ast.Load):
                return True
            node = parent
        if isinstance(parent, ast.Call) and parent.func is node:
            return node is not attribute  # `self.lines.append(x)`
        if isinstance(parent, ast.For) and parent.iter is node:
            return _tells_each(tree, parent)
        if isinstance(parent, ast.keyword):
            parent = tree.parent(parent)
        if isinstance(parent, ast.Call):
            pure = (self.script.qualname(parent.func) or "").startswith(_PURE)
            return not pure or call_keyword(parent, "out") is not None
        return isinstance(parent, (ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.Return, ast.Yield))


def _tells_each(tree: Tree, loop: ast.For) -> bool:
    """`for meter in self.meters: meter.add(x)`: what a loop goes through may keep what it is told."""
    names = set(target_names(loop.target))
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id in names
        and isinstance(tree.parent(node), ast.Expr)
        for stmt in loop.body
        for node in walk(stmt)
    )


def _is_stateless(value: Value) -> bool:
    """Whether a value is a criterion of a library or a model, which keep no figures."""
    return isinstance(value, Thing) and (
        value.kind == MODEL or (value.kind == CRITERION and value.cls is None)
    )


__all__ = ["Keeping"]
