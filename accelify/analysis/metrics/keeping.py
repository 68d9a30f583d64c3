"""What objects store of their methods' arguments: many a helper has methods and stores nothing.

class Packer:                       class Board:
    def __init__(self, size):           def __init__(self, folder):
        self.size = size                    self.folder, self.lines = folder, []
    def pack(self, x):                  def log(self, loss):
        return x[: self.size]               self.lines.append(loss)     (`board.folder` stays what it was made)
"""

from __future__ import annotations

import ast

from accelify.analysis import knowledge as k
from accelify.analysis.devices.conversions import converts_itself
from accelify.analysis.scopes import Scope, handed_to
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import Tree, call_keyword, target_names, walk
from accelify.analysis.values import CRITERION, MODEL, UNKNOWN, Class, Entity, Imported, Value

# Libraries whose functions change none of their arguments, except `out`.
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
        """Whether a method can change state of its object, as far as can be seen."""
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
                return None  # passed on whole
            if converts_itself(tree.statement(attribute)):
                continue
            if self._asks_a_model(method, attribute, tree.parent(attribute)):
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
        """Whether what an attribute holds is called for what it returns: a library's criterion, a model."""
        interpreter = self.script.interpreter
        contained = interpreter.evaluate(interpreter.module_of(method), method, attribute)
        # `loss or nn.MSELoss()`: what a parameter holds is not always known.
        known = [one for one in contained if not (isinstance(one, Entity) and one.kind == UNKNOWN)]
        return bool(known) and all(
            one.name.startswith(_PURE) if isinstance(one, Imported) else _is_stateless(one) for one in known
        )

    def _asks_a_model(self, method: Scope, attribute: ast.Attribute, around: ast.AST | None) -> bool:
        """Whether a model's mode is set or its parts are read, which stores no figure: `self.net.eval()`."""
        if not isinstance(around, ast.Attribute) or around.attr not in k.MODULE_API:
            return False
        interpreter = self.script.interpreter
        contained = interpreter.evaluate(interpreter.module_of(method), method, attribute)
        return bool(contained) and all(isinstance(one, Entity) and one.kind == MODEL for one in contained)

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
        given = node
        if isinstance(parent, ast.keyword):
            given, parent = parent, tree.parent(parent)
        if isinstance(parent, ast.Call):
            if self._only_reckons(parent, given):
                return False
            pure = (self.script.qualname(parent.func) or "").startswith(_PURE)
            return not pure or call_keyword(parent, "out") is not None
        return isinstance(parent, (ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.Return, ast.Yield))

    def _only_reckons(self, call: ast.Call, given: ast.AST) -> bool:
        """Whether a call uses its argument as a number only: `x.clamp_(a, b)`, or a function that computes with it."""
        callees = self.script.interpreter.calls.get(call, set())
        if not callees:
            return (
                isinstance(call.func, ast.Attribute) and call.func.attr.endswith("_") and given in call.args
            )
        value = given.value if isinstance(given, ast.keyword) else given
        taken = [(s, [name for argument, name in handed_to(call, s) if argument is value]) for s in callees]
        return all(names and all(self._reckons_by(s, name) for name in names) for s, names in taken)

    def _reckons_by(self, function: Scope, name: str) -> bool:
        tree = self.script.interpreter.module_of(function).tree
        reads = [n for n in walk(function.node) if isinstance(n, ast.Name) and n.id == name]
        around = [tree.parent(n) for n in reads]
        return all(isinstance(n, (ast.BinOp, ast.Compare, ast.UnaryOp, ast.AugAssign)) for n in around)


def _tells_each(tree: Tree, loop: ast.For) -> bool:
    """`for meter in self.meters: meter.add(x)`: what a loop iterates over may store the argument."""
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
    """Whether a value is a criterion of a library or a model, which store no figures."""
    return isinstance(value, Entity) and (
        value.kind == MODEL or (value.kind == CRITERION and value.cls is None)
    )


__all__ = ["Keeping"]
