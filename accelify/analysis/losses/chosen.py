"""Means over what a condition chooses of a batch: the valid pixels, the tokens that are no padding."""

from __future__ import annotations

import ast
from collections.abc import Callable, Container, Iterator

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.interpretation.torch_calls import reduction_of
from accelify.analysis.metrics.counts import size_of
from accelify.analysis.program import Module
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.statements.reaching import made_of
from accelify.analysis.syntax import dotted, names_in, stores_in, target_names
from accelify.analysis.values import Imported, Thing

# How many assignments and calls are followed back.
_FARTHEST = 12
# What chooses without an index, and the operators that join conditions.
_CHOOSING = (b"masked_select", b"pack_padded_sequence")
_JOINING = (ast.BitAnd, ast.BitOr, ast.BitXor, ast.Mult)
_COMPARISONS = frozenset(
    {"gt", "lt", "ge", "le", "greater", "less", "ne", "eq", "isnan", "isinf", "isfinite"}
)
_LOGIC = frozenset({"logical_and", "logical_or", "logical_xor", "logical_not", "bitwise_and", "bitwise_or"})
# What makes a mask of numbers, where it is written to choose by.
_TO_MASK = frozenset({"bool", "byte"})
# Calls of a mask that leave what it chooses, or list the places that it chooses.
_SAME_MASK = frozenset(
    "detach clone cuda cpu to type squeeze unsqueeze view reshape flatten expand expand_as contiguous repeat "
    "repeat_interleave permute transpose any all nonzero Variable".split()
)
# Calls that work on each element, or on each row of what was chosen.
_ELEMENTWISE = frozenset(
    "abs pow square sqrt exp log log2 log10 log1p neg clamp clip float double half type to cuda cpu clone contiguous "
    "detach squeeze unsqueeze view reshape flatten norm sigmoid tanh relu softplus logsigmoid mul div add sub "
    "multiply divide subtract true_divide minimum maximum where sum mean Variable".split()
)


class Chosen:
    """Answers which part of a batch a call averages, where a condition chooses it.

    Args:
        script: its model.
        of_batch: whether an expression in a scope is made of the batch at hand.
        loops: those that run once for each batch, or around that.
    """

    def __init__(
        self, script: ScriptModel, of_batch: Callable[[ast.expr, Scope], bool], loops: Container[ast.AST]
    ) -> None:
        self.script = script
        self.of_batch = of_batch
        self.loops = loops
        self._choosing: dict[Module, bool] = {}

    def _may_choose(self, scope: Scope) -> bool:
        """Whether anything in the module of a function is indexed by what may be a condition, or packed."""
        module = self.script.interpreter.module_of(scope)
        found = self._choosing.get(module)
        if found is None:
            tree = module.tree
            found = any(tree.mentions(word) for word in _CHOOSING) or any(
                _may_be_mask(node.slice) for node in tree.nodes(ast.Subscript)
            )
            self._choosing[module] = found
        return found

    def averaged(self, call: ast.Call, scope: Scope) -> ast.expr | None:
        """The first `loss[y > 0]`, as it is written, that `loss[y > 0].mean()` or a loss takes its mean of.

        Args:
            call: that takes the mean.
            scope: in which it stands.
        """
        if not self._may_choose(scope) or self.is_for_one_sample(call, scope):
            return None
        given = [*call.args, *[kw.value for kw in call.keywords if kw.arg in ("input", "target")]]
        own = [call.func.value] if isinstance(call.func, ast.Attribute) and call.func.attr == "mean" else []
        return next((one for part in [*own, *given] for one in self._of(part, scope, 0)), None)

    def is_for_one_sample(self, part: ast.expr, scope: Scope) -> bool:
        """Whether a call or another part stands in a loop over the samples of a batch: their means are averaged."""
        return self._loop_over_samples(part, scope) is not None

    def is_of_one_sample(self, part: ast.expr, scope: Scope) -> bool:
        """Whether a part within such a loop is made of the sample at hand: `mask[i].sum()`, and not `mask.sum()`."""
        loop = self._loop_over_samples(part, scope)
        return loop is not None and bool(names_in(part) & stores_in(loop).keys())

    def _loop_over_samples(self, part: ast.expr, scope: Scope) -> ast.For | None:
        for node in self.script.interpreter.module_of(scope).tree.ancestors(part):
            if node is scope.node:
                return None
            if isinstance(node, ast.For) and isinstance(node.iter, ast.Call) and node not in self.loops:
                if dotted(node.iter.func) == "range" and len(node.iter.args) == 1:
                    return node if self._is_first_dimension(node.iter.args[0], scope) else None
        return None

    def _is_first_dimension(self, node: ast.expr, scope: Scope) -> bool:
        """`x.size(0)`, `x.shape[0]` or a name for one; `len(x)` may count scales, or layers."""
        made = self._made(node, scope) if isinstance(node, ast.Name) else [node]
        return bool(made) and all(
            size_of(one) is not None and not (isinstance(one, ast.Call) and dotted(one.func) == "len")
            for one in made
        )

    def _of(self, node: ast.expr, scope: Scope, far: int) -> Iterator[ast.expr]:
        """What of an averaged expression is chosen by a condition."""
        if far > _FARTHEST:
            return
        parts: list[ast.expr] = []
        if isinstance(node, ast.Subscript):
            if self.is_mask(node.slice, scope, far + 1):
                yield node
                return
            parts = [node.value]
        elif isinstance(node, ast.UnaryOp):
            parts = [node.operand]
        elif isinstance(node, ast.BinOp):
            parts = [node.left, node.right]
        elif isinstance(node, ast.NamedExpr) or getattr(node, "attr", "") in ("data", "T"):
            parts = [node.value]  # type: ignore[attr-defined]
        elif isinstance(node, ast.Name):
            parts = self._made(node, scope)
        elif isinstance(node, ast.Call):
            name = _last(node)
            packed = name == "pack_padded_sequence" and any(self.of_batch(a, scope) for a in node.args)
            if packed or name == "masked_select":
                yield node
                return
            receiver = self._receiver(node, scope)
            if name in _ELEMENTWISE and (name not in ("sum", "mean") or _along(node, bool(receiver))):
                parts = [*receiver, *node.args]
            elif self._keeps_each(node, scope):
                parts = list(node.args)
        for part in parts:
            yield from self._of(part, scope, far + 1)

    def is_mask(self, node: ast.expr, scope: Scope, far: int = 0) -> bool:
        """Whether an index chooses by a condition on the batch, so that it is not known how many it takes."""
        if far > _FARTHEST:
            return False
        if isinstance(node, ast.Compare):
            asked = (ast.Is, ast.IsNot, ast.In, ast.NotIn)
            return not any(isinstance(op, asked) for op in node.ops) and self.of_batch(node, scope)
        if isinstance(node, ast.Tuple):
            return any(self.is_mask(one, scope, far + 1) for one in node.elts)
        if isinstance(node, ast.BinOp):
            if isinstance(node.op, _JOINING):
                return any(self.is_mask(one, scope, far + 1) for one in (node.left, node.right))
            return False
        if isinstance(node, ast.UnaryOp):
            return isinstance(node.op, ast.Invert) and self.is_mask(node.operand, scope, far + 1)
        if isinstance(node, ast.Subscript) or (isinstance(node, ast.Attribute) and node.attr == "data"):
            return self.is_mask(node.value, scope, far + 1)
        if isinstance(node, ast.Name):
            made = self._made(node, scope)
            return bool(made) and all(self.is_mask(one, scope, far + 1) for one in made)
        return isinstance(node, ast.Call) and self._is_mask_call(node, scope, far)

    def _is_mask_call(self, call: ast.Call, scope: Scope, far: int) -> bool:
        name = _last(call)
        receiver = self._receiver(call, scope)
        if name in _COMPARISONS or name in _TO_MASK:
            return any(self.of_batch(one, scope) for one in [*receiver, *call.args])
        if name in _LOGIC:
            return any(self.is_mask(one, scope, far + 1) for one in [*receiver, *call.args])
        if name == "where" and len(call.args) == 1 and not receiver:
            return self.is_mask(call.args[0], scope, far + 1)
        if name in _SAME_MASK:
            held = receiver or call.args[:1]
            return bool(held) and self.is_mask(held[0], scope, far + 1)
        return False

    def _receiver(self, call: ast.Call, scope: Scope) -> list[ast.expr]:
        """What a method is called on; nothing for a function of a module (`torch.abs(x)`)."""
        if not isinstance(call.func, ast.Attribute):
            return []
        held = self._values(call.func, scope)
        return [] if any(isinstance(value, Imported) for value in held) else [call.func.value]

    def _keeps_each(self, call: ast.Call, scope: Scope) -> bool:
        """Whether a call is of a loss that is left as it is for each element."""
        for value in self._values(call.func, scope):
            if isinstance(value, Imported) and k.is_loss_function(value.name):
                return reduction_of(call) == "none"
            if isinstance(value, Thing) and value.kind == v.CRITERION and isinstance(value.site, ast.Call):
                return value.cls is None and reduction_of(value.site) == "none"
        return False

    def _values(self, node: ast.expr, scope: Scope) -> v.Values:
        return self.script.interpreter.evaluate(self.script.interpreter.module_of(scope), scope, node)

    def _made(self, name: ast.Name, scope: Scope) -> list[ast.expr]:
        """What is assigned to a name of the scope where it is read, and to its place of several."""
        if scope.resolve(name.id) is not scope:
            return []
        found: list[ast.expr] = []
        for stmt in made_of(self.script.interpreter.module_of(scope).tree, name):
            for target in stmt.targets if isinstance(stmt, ast.Assign) else ():
                found += _given_to(target, stmt.value, name.id) if isinstance(stmt, ast.Assign) else []
        return found


def _may_be_mask(index: ast.expr) -> bool:
    """Whether an index may choose by a condition, by its shape alone."""
    if isinstance(index, ast.Tuple):
        return any(map(_may_be_mask, index.elts))
    if isinstance(index, ast.UnaryOp):
        return isinstance(index.op, ast.Invert)
    if isinstance(index, ast.BinOp):
        return isinstance(index.op, _JOINING)
    return not isinstance(index, (ast.Constant, ast.Slice))


def _given_to(target: ast.expr, value: ast.expr, name: str) -> list[ast.expr]:
    """What of an assigned value goes to a name: of `a, b = p[m], t[m]` its own part."""
    if isinstance(target, (ast.Tuple, ast.List)) and isinstance(value, (ast.Tuple, ast.List)):
        if len(target.elts) == len(value.elts) and not any(isinstance(t, ast.Starred) for t in target.elts):
            pairs = zip(target.elts, value.elts, strict=True)
            return [one for inner, given in pairs for one in _given_to(inner, given, name)]
    return [value] if name in target_names(target) else []


def _along(call: ast.Call, is_method: bool) -> bool:
    """Whether a sum or mean is taken along dimensions that are named, not over all."""
    return len(call.args) > (0 if is_method else 1) or any(kw.arg in ("dim", "axis") for kw in call.keywords)


def _last(call: ast.Call) -> str:
    return str(dotted(call.func) or getattr(call.func, "attr", "")).rsplit(".", 1)[-1]
