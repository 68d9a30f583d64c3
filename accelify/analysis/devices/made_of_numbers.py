"""What is made of numbers alone: `line = torch.ones(size, 1) / size`, a window and no samples."""

from __future__ import annotations

import ast
import re

from accelify.analysis.program import Module
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import call_argument, children, dotted, hides_arguments, target_names

_FARTHEST = 12
_RANDOM = re.compile(r"rand|normal|uniform|bernoulli|empty|sample|shuffle|choice|load")
_LIBRARIES = frozenset({"torch", "th", "np", "numpy", "math", "F"})
_BUILTINS = frozenset(
    "range int float list tuple max min sum round abs enumerate zip reversed sqrt exp".split()
)
# What asks for numbers whatever it is asked of.
_MEASURES = frozenset({"size", "dim", "numel", "ndimension", "__len__"})


def is_made_of_numbers(script: ScriptModel, scope: Scope, node: ast.expr) -> bool:
    """Whether an expression holds none of what a model or a loader gives, however it was handed around.

    Args:
        script: the script.
        scope: where it stands, in whatever module.
        node: the expression.
    """
    return _Numbers(script).made_of(scope, node, 0)


class _Numbers:
    """One question; what was asked on the way is answered once."""

    def __init__(self, script: ScriptModel) -> None:
        self.script = script
        self.known: dict[tuple[Scope, str], bool] = {}

    def made_of(self, scope: Scope, node: ast.AST, far: int) -> bool:
        if far > _FARTHEST:
            return False
        if isinstance(node, ast.Constant):
            return node.value is None or isinstance(node.value, (int, float))
        if isinstance(node, ast.Name):
            key = (scope, node.id)
            if key not in self.known:
                self.known[key] = False  # until it is known: `x = x + 1` alone makes nothing
                self.known[key] = self._name(scope, node.id, far)
            return self.known[key]
        if isinstance(node, ast.Attribute):
            if node.attr in ("shape", "ndim"):
                return True
            return node.attr in ("T", "dtype", "device", "float32", "float64", "pi") and (
                dotted(node.value) in _LIBRARIES or self.made_of(scope, node.value, far)
            )
        if isinstance(node, ast.Call):
            return self._call(scope, node, far)
        if isinstance(node, ast.Subscript):
            return self.made_of(scope, node.value, far)
        if isinstance(node, (ast.operator, ast.unaryop, ast.cmpop, ast.boolop)):
            return True
        parts = (ast.BinOp, ast.UnaryOp, ast.Tuple, ast.List, ast.IfExp, ast.Compare)
        if isinstance(node, parts):
            return all(self.made_of(scope, part, far) for part in children(node))
        if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
            return self.made_of(scope, node.elt, far)
        return False

    def _call(self, scope: Scope, call: ast.Call, far: int) -> bool:
        name = dotted(call.func) or ""
        root, last = name.split(".")[0], name.rsplit(".", 1)[-1]
        if isinstance(call.func, ast.Attribute):
            last = call.func.attr
        if last in _MEASURES or name == "len":
            return True
        given = [*call.args, *[kw.value for kw in call.keywords if kw.arg not in ("device", "dtype")]]
        callees = self.script.callees(call)
        if callees:
            return all(self._returns(callee, far + 1) for callee in callees)
        if _RANDOM.search(last) or not all(self.made_of(scope, one, far) for one in given):
            return False
        if (root in _LIBRARIES and scope.resolve(root) is not None) or name in _BUILTINS:
            return bool(given)
        return isinstance(call.func, ast.Attribute) and self.made_of(scope, call.func.value, far)

    def _returns(self, function: Scope, far: int) -> bool:
        if (function, "") not in self.known:
            self.known[function, ""] = False
            returned = [n.value for n in function.of_type(ast.Return) if n.value is not None]
            made = bool(returned) and all(self.made_of(function, value, far) for value in returned)
            self.known[function, ""] = made
        return self.known[function, ""]

    def _name(self, scope: Scope, name: str, far: int) -> bool:
        owner = scope.resolve(name)
        if owner is None or owner.kind != "function":
            return False
        if any(argument.arg == name for argument in owner.parameters()):
            if not self._parameter(owner, name, far):
                return False
        elif not self._bindings(owner, name):
            return False
        return all(
            value is not None and self.made_of(owner, value, far + 1) for value in self._bindings(owner, name)
        )

    def _bindings(self, owner: Scope, name: str) -> list[ast.expr | None]:
        """What a name is bound to in a function; None for a way of binding that is not looked into."""
        found: list[ast.expr | None] = []
        seen = 0
        for node in owner.nodes:
            seen += isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)
            pairs: list[tuple[ast.expr, ast.expr | None]] = []
            if isinstance(node, ast.Assign):
                pairs = [(target, node.value) for target in node.targets]
            elif isinstance(node, (ast.AnnAssign, ast.AugAssign)):
                pairs = [(node.target, node.value)]
            elif isinstance(node, (ast.For, ast.comprehension)):
                pairs = [(node.target, node.iter)]
            found += [value for target, value in pairs if name in target_names(target)]
        return found if seen == len(found) else [None]

    def _parameter(self, function: Scope, name: str, far: int) -> bool:
        calls: list[tuple[Module, ast.Call]] = self.script.interpreter.callers.get(function, [])
        positional = function.positional()
        index = positional.index(name) if name in positional else -1
        bound = function.self_name() is not None
        default = _default(function, name)
        if name == function.self_name() or not (calls or default is not None):
            return False
        for module, call in calls:
            if hides_arguments(call):
                return False
            given = call_argument(call, index - bound if index >= 0 else -1, name) or default
            scope = module.scopes.of(call)
            if given is None or not self.made_of(function if given is default else scope, given, far + 1):
                return False
        return bool(calls) or (default is not None and self.made_of(function, default, far + 1))


def _default(function: Scope, name: str) -> ast.expr | None:
    if isinstance(function.node, (ast.Module, ast.ClassDef)):
        return None
    given = function.node.args
    plain = [*given.posonlyargs, *given.args]
    pairs = [*zip(reversed(plain), reversed(given.defaults), strict=False)]
    pairs += [(a, d) for a, d in zip(given.kwonlyargs, given.kw_defaults, strict=True) if d is not None]
    return next((value for argument, value in pairs if argument.arg == name), None)
