"""How numbers of a loss grow with the batch: weights that are divided by a count of it make a sum a mean.

w[positive] = 1 / positive.sum()
w[negative] = 1 / negative.sum()
(w * each).sum()                    does not grow with the batch: a mean
w = negative.sum() / target.numel()
(w * each).sum()                    grows with it: a sum of which each part has a share
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from typing import NamedTuple

from accelify.analysis import values as v
from accelify.analysis.interpretation.torch_calls import reduction_of
from accelify.analysis.metrics.counts import size_given
from accelify.analysis.program import Module
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import assigned_pairs, call_argument, calls_in, dotted, is_constant, walk
from accelify.analysis.values import Entity, Function, Imported

_DEEPEST = 10
# Smaller constants keep a divisor from being zero, and weigh nothing.
_TINY = 1e-3
_PASSING = frozenset(
    "clamp clamp_min clone contiguous cpu cuda detach double expand expand_as flatten float half int item long "
    "numpy permute repeat reshape squeeze to transpose type type_as unsqueeze view".split()
)
_WRAPPING = frozenset(
    "builtins.float builtins.int builtins.max numpy.array numpy.asarray torch.FloatTensor torch.Tensor "
    "torch.as_tensor torch.autograd.Variable torch.clamp torch.from_numpy torch.tensor".split()
)
_FILLED = frozenset(
    "empty empty_like full full_like new_empty new_full new_ones new_zeros ones ones_like zeros zeros_like".split()
)
_WEIGHED = {"binary_cross_entropy": 2, "binary_cross_entropy_with_logits": 2}
_WEIGHED_CLASSES = frozenset({"BCELoss", "BCEWithLogitsLoss"})
Functions = Callable[[ast.Call, Module, Scope], list[tuple[Function, list[ast.expr]]]]


class _Place(NamedTuple):
    module: Module
    scope: Scope


class BatchDegrees:
    """Answers by which power of the batch's size an expression grows, and by what it was divided for that.

    Args:
        script: its model.
        functions: the functions of the program that a call runs, with what each can return.
    """

    def __init__(self, script: ScriptModel, functions: Functions) -> None:
        self.script, self.functions = script, functions
        self._divisors: dict[ast.expr, Scope] = {}
        self._active: set[ast.AST] = set()
        # What a name is up to the assignment that is looked at.
        self._contained: dict[tuple[Scope, str], float] = {}

    def averaging(self, node: ast.expr, module: Module, scope: Scope) -> dict[ast.expr, Scope]:
        """The counts of the batch by which what a sum adds up, or its weight, is divided; none where the sum grows."""
        self._divisors = {}
        return self._divisors if self._of(node, _Place(module, scope), 0) == -1 else {}

    def weight_of(self, call: ast.Call, name: str) -> ast.expr | None:
        """The weight of each element, where a call has one: a loss, or the constructor of one."""
        last = name.rpartition(".")[2]
        at = 0 if last in _WEIGHED_CLASSES else _WEIGHED.get(last)
        return call_argument(call, at, "weight") if at is not None else None

    def _of(self, node: ast.expr, place: _Place, depth: int) -> float:
        if depth > _DEEPEST or node in self._active:
            return 0
        self._active.add(node)
        try:
            return self._look(node, place, depth + 1)
        finally:
            self._active.discard(node)

    def _look(self, node: ast.expr, place: _Place, depth: int) -> float:
        if isinstance(node, ast.Constant):
            small = isinstance(node.value, (int, float)) and abs(node.value) < _TINY
            return -math.inf if small else 0
        if isinstance(node, ast.UnaryOp):
            return self._of(node.operand, place, depth)
        if isinstance(node, ast.BinOp):
            return self._operation(node, place, depth)
        if isinstance(node, ast.Name):
            return self._variable(node, place, depth)
        if isinstance(node, ast.Subscript):
            return self._size(node, place) or self._of(node.value, place, depth)
        if isinstance(node, ast.Attribute):
            return self._of(node.value, place, depth) if node.attr == "data" else 0
        return self._call(node, place, depth) if isinstance(node, ast.Call) else 0

    def _operation(self, node: ast.BinOp, place: _Place, depth: int) -> float:
        left = self._of(node.left, place, depth)
        if isinstance(node.op, ast.Pow):
            power = node.right.value if isinstance(node.right, ast.Constant) else None
            return left * power if isinstance(power, (int, float)) and math.isfinite(left) else 0
        right = self._of(node.right, place, depth)
        if isinstance(node.op, (ast.Add, ast.Sub)):
            return max(left, right)
        if isinstance(node.op, ast.Mult):
            return left + right
        return self._quotient(left, right, node.right, place) if isinstance(node.op, ast.Div) else 0

    def _quotient(self, left: float, right: float, divisor: ast.expr, place: _Place) -> float:
        if right > 0:
            self._divisors[divisor] = place.scope
        return left - right if math.isfinite(right) else left

    def _variable(self, name: ast.Name, place: _Place, depth: int) -> float:
        """What the assignments before a place make of a name, and those to its elements."""
        key = place.scope, name.id
        if place.scope.resolve(name.id) is not place.scope:
            return 0
        if key in self._contained:
            return self._contained[key]
        start, tree = place.module.tree.start(name), place.module.tree
        whole, blank = 0.0, False
        degree: float = 0
        for stmt in place.scope.nodes:
            if not isinstance(stmt, (ast.Assign, ast.AugAssign)) or tree.start(stmt) >= start:
                continue
            target, value = self._given(stmt, name.id)
            if target is None or value is None:
                continue
            self._contained[key] = degree
            try:
                given = self._assigned(stmt, value, place, depth)
            finally:
                del self._contained[key]
            if isinstance(target, ast.Subscript):
                one = given if isinstance(stmt, ast.Assign) else whole + given
                degree = one if blank else max(degree, one)
                blank = False if math.isfinite(one) else blank
            else:
                degree = whole = given if isinstance(stmt, ast.Assign) else degree + given
                blank = isinstance(stmt, ast.Assign) and _last(value) in _FILLED
        return degree

    def _given(self, stmt: ast.Assign | ast.AugAssign, name: str) -> tuple[ast.expr | None, ast.expr | None]:
        """What a statement stores that belongs to a name (itself, or elements of it), and the value for that."""
        if isinstance(stmt, ast.AugAssign):
            pairs: list[tuple[ast.expr, ast.expr]] = [(stmt.target, stmt.value)]
        else:
            size = size_given(stmt, name)
            if size is not None and size is not stmt.value:
                return ast.Name(name), size
            pairs = [pair for target in stmt.targets for pair in assigned_pairs(target, stmt.value)]
        for target, value in pairs:
            contained = target.value if isinstance(target, ast.Subscript) else target
            if isinstance(contained, ast.Name) and contained.id == name:
                return target, value
        return None, None

    def _assigned(
        self, stmt: ast.Assign | ast.AugAssign, value: ast.expr, place: _Place, depth: int
    ) -> float:
        """The degree that a statement gives, or, for an augmented one, adds to that before."""
        given = self._of(value, place, depth)
        if isinstance(stmt, ast.Assign):
            return given
        if isinstance(stmt.op, ast.Div):
            return self._quotient(0, given, value, place)
        return given if isinstance(stmt.op, ast.Mult) else 0

    def _call(self, node: ast.Call, place: _Place, depth: int) -> float:
        size = self._size(node, place)
        if size:
            return size
        name, last = self._library_name(node, place), _last(node)
        if name.startswith("torch.nn.") and reduction_of(node) == "none":
            weight = self.weight_of(node, name)
            return self._of(weight, place, depth) if weight is not None else 0
        receiver = node.func.value if isinstance(node.func, ast.Attribute) and not name else None
        given = ([receiver] if receiver is not None else []) + node.args
        if not given:
            return 0
        if last == "where" and len(node.args) == 3:
            return max(self._of(one, place, depth) for one in node.args[1:])
        if last in ("mul", "multiply", "div", "divide", "true_divide") and len(given) == 2:
            left, right = (self._of(one, place, depth) for one in given)
            return left + right if last.startswith("mul") else self._quotient(left, right, given[1], place)
        if last == "sum":
            return self._of(given[0], place, depth) + self._grown_by(node, given, place)
        if name in _WRAPPING:
            return max(self._of(one, place, depth) for one in node.args)
        if last in _PASSING or last == "mean":
            return self._of(given[0], place, depth)
        return max(
            (
                self._of(result, _Place(function.module, function.scope), depth)
                for function, results in self.functions(node, place.module, place.scope)
                for result in results
            ),
            default=0,
        )

    def _grown_by(self, node: ast.Call, given: list[ast.expr], place: _Place) -> float:
        """1 for a sum over the samples of the batch."""
        dims = [*given[1:], *[kw.value for kw in node.keywords if kw.arg in ("dim", "axis")]]
        first = (
            dims[0].elts[0] if dims and isinstance(dims[0], (ast.Tuple, ast.List)) and dims[0].elts else None
        )
        over_samples = not dims or is_constant(dims[0], 0) or is_constant(first, 0)
        return 1 if over_samples and self._is_of_batch(given[0], place) else 0

    def _size(self, node: ast.expr, place: _Place) -> float:
        """1 for a number of samples or elements of the batch: `len(x)`, `x.size(0)`, `x.shape[0]`, `x.numel()`."""
        if isinstance(node, ast.Subscript):
            inner = (
                node.value.func if isinstance(node.value, ast.Call) and not node.value.args else node.value
            )
            sized = isinstance(inner, ast.Attribute) and inner.attr in ("shape", "size")
            owner = inner.value if isinstance(inner, ast.Attribute) else None
            return self._counted(owner, place) if sized and is_constant(node.slice, 0) else 0
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            return 0
        last, args = node.func.attr, node.args
        whole = last in ("numel", "nelement", "count_nonzero") and not args
        return self._counted(node.func.value, place) if whole or (last == "size" and _is_first(args)) else 0

    def _counted(self, owner: ast.expr | None, place: _Place) -> float:
        return 1 if owner is not None and self._is_of_batch(owner, place) else 0

    def _is_of_batch(self, node: ast.expr, place: _Place, far: int = 0) -> bool:
        """Whether an expression is computed from the whole current batch: not from weights or a single sample."""
        if self._is_one_sample(node, place):
            return False
        called = {id(n.func) for n in calls_in(node)}
        names = [n for n in walk(node) if isinstance(n, ast.Name) and id(n) not in called]
        return far < _DEEPEST and any(self._holds_batch(name, place, far) for name in names)

    def _holds_batch(self, name: ast.Name, place: _Place, far: int) -> bool:
        scope = place.scope
        if name.id == scope.self_name() or scope.resolve(name.id) is not scope:
            return False
        contained = self.script.interpreter.evaluate(place.module, scope, name)
        kinds = {w.kind for w in contained if isinstance(w, Entity)}
        if kinds & {v.BATCH, v.OUTPUT, v.MODEL, v.PARAMETERS}:
            return bool(kinds & {v.BATCH, v.OUTPUT})
        if scope.kind == "function" and scope.takes(name.id):
            return True
        made = [self._given(s, name.id)[1] for s in scope.of_type(ast.Assign)]
        return any(self._is_of_batch(value, place, far + 1) for value in made if value is not None)

    def _is_one_sample(self, node: ast.expr, place: _Place) -> bool:
        """Whether what is counted is one sample's, one after the other in a loop, or by its index: `target[0]`."""
        tree = place.module.tree
        for inner in walk(node):
            index = inner.slice if isinstance(inner, ast.Subscript) else None
            first = index.elts[0] if isinstance(index, ast.Tuple) and index.elts else index
            if isinstance(first, ast.Constant) and isinstance(first.value, int):
                return True
        for around in tree.ancestors(node) if tree.parent(node) is not None else ():
            if isinstance(around, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
                return False
            if isinstance(around, (ast.For, ast.AsyncFor, ast.While)):
                # Outside of the loop over batches there are epochs.
                batches = place.module in self.script.modules and any(
                    self.script.trains(stmt) for stmt in around.body
                )
                return not batches
        return False

    def _library_name(self, node: ast.Call, place: _Place) -> str:
        contained = self.script.interpreter.evaluate(place.module, place.scope, node.func)
        names = {w.name for w in contained if isinstance(w, Imported)}
        return names.pop() if len(names) == 1 else ""


def _is_first(args: list[ast.expr]) -> bool:
    """Whether a dimension is the first, that of the samples."""
    return len(args) == 1 and is_constant(args[0], 0)


def _last(node: ast.expr) -> str:
    func = node.func if isinstance(node, ast.Call) else None
    return str(dotted(func) or getattr(func, "attr", "")).rpartition(".")[2]
