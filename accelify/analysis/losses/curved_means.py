"""Losses that bend a mean over the batch: `(1 - torch.exp(-mean)) ** 2 * mean`, `torch.sqrt(F.mse_loss(a, b))`.

The mean over the processes of what is made of each one's mean is not what is made of the mean of the whole batch. The
same holds of means over the samples alone, `p.mean(0)`, of products of means and of spreads: `z.std(dim=0)`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.interpretation.torch_calls import reduction_of
from accelify.analysis.metrics.counts import size_of
from accelify.analysis.models.alternatives import run_by
from accelify.analysis.program import Module
from accelify.analysis.scopes import Scope, handed_to
from accelify.analysis.script import ScriptModel
from accelify.analysis.statements.given import Given
from accelify.analysis.statements.plain_numbers import PlainNumbers
from accelify.analysis.syntax import dotted, is_constant, is_minus_one, names_in, target_names, walk
from accelify.analysis.values import Imported, Thing

_CURVES = frozenset("exp log log1p log10 pow reciprocal rsqrt sigmoid sqrt square tanh".split())
# Straight on both sides of a fold: what bends is a difference that changes its sign.
_FOLDS = frozenset("abs relu clamp clamp_min norm".split())
_PASSING = frozenset("contiguous double float mean reshape squeeze sum to unsqueeze view".split())
_SPREADS = frozenset({"std", "var"})
# Behind these the first dimension may not be that of the samples: views of an image, draws of a model, steps of time.
# Weights of several draws are averaged over these too, between `exp` and `log`.
_REARRANGING = frozenset("chunk exp expand permute repeat split stack t transpose unfold unsqueeze".split())
_RESHAPING = frozenset({"reshape", "view"})
_METHODS: dict[str, type[ast.operator]] = {
    "mul": ast.Mult, "multiply": ast.Mult, "div": ast.Div, "divide": ast.Div,
}  # fmt: skip
_MAKING = frozenset("tensor Tensor FloatTensor as_tensor stack".split())
_DEEPEST = 6


@dataclass(frozen=True, eq=False)
class _Frame:
    """A function as one call runs it: what its parameters are given, and where that stands."""

    scope: Scope
    given: dict[str, tuple[ast.expr, _Frame]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Curve:
    """What of a loss is not the same for the mean of the shares as for the whole batch.

    Attributes:
        node: the curve.
        scope: in which it stands.
        how: what it does to a mean, as a finding says it.
    """

    node: ast.expr
    scope: Scope
    how: str


class CurvedMeans:
    """Follows a loss to the curves in it that are taken of a mean over the batch.

    Args:
        script: its model.
        of_batch: whether an expression of a scope is made of the batch at hand.
    """

    def __init__(self, script: ScriptModel, of_batch: Callable[[ast.expr, Scope], bool]) -> None:
        self.script, self.of_batch = script, of_batch
        self._numbers = PlainNumbers(Given(script))

    def found(self, loss: ast.expr, scope: Scope) -> Iterator[Curve]:
        """The curves in a loss, each once."""
        queue, seen, done = [(loss, _Frame(scope), 0)], set[tuple[ast.AST, _Frame]](), set[ast.AST]()
        for node, frame, far in queue:  # which grows
            if (node, frame) in seen or far > _DEEPEST:
                continue
            seen.add((node, frame))
            how = self._how(node, frame)
            if how:
                if node not in done:
                    done.add(node)
                    yield Curve(node, frame.scope, how)
                continue
            bent = self._bent(node, frame)
            if bent is not None:
                queue.append((bent, frame, far))
            elif (sides := _sides(node)) is not None:
                queue += [(side, frame, far) for side in sides[1:]]
            elif isinstance(node, ast.UnaryOp):
                queue.append((node.operand, frame, far))
            elif isinstance(node, ast.Name):
                queue += [
                    (one, at, far + 1) for one, at in [*self._given(node, frame), *self._added(node, frame)]
                ]
            elif isinstance(node, ast.Call):
                returned = list(self._returned(node, frame))
                queue += [(value, inner, far + 1) for value, inner in returned]
                last = _last(node)
                if not returned and (last in _PASSING or last in _FOLDS):
                    given = [node.func.value] if isinstance(node.func, ast.Attribute) else []
                    queue += [(one, frame, far) for one in [*given, *node.args[:1]]]

    def _how(self, node: ast.expr, frame: _Frame) -> str:
        """What an expression does to means of the batch; "" for nothing, or nothing but what is straight."""
        bent = self._bent(node, frame)
        if bent is not None:
            return "bends a mean over the batch" if self._is_mean(bent, frame) else ""
        if (parts := _sides(node)) is not None:
            op, sides = parts[0], list(parts[1:])
            if op is ast.Mult and all(self._is_mean(side, frame) for side in sides):
                # A bend in one of them is the plainer word, and comes next.
                return "" if any(map(self._how, sides, [frame] * 2)) else "multiplies means over the batch"
            divides = op is ast.Div and self._is_mean(sides[1], frame)
            return "divides by a mean over the batch" if divides else ""
        if not isinstance(node, ast.Call):
            return ""
        if self._divides_each(node, frame):
            return "divides by a mean over the batch"
        if self._folded(node, frame) or self._compared(node, frame):
            return "bends a mean over the batch"
        summed = self._over_samples(node, frame, _SPREADS)
        spread = summed is not None and self._is_of_batch(summed, frame)
        return "is a spread over the batch" if spread else ""

    def _bent(self, node: ast.expr, frame: _Frame) -> ast.expr | None:
        """What a curve is taken of: `x` in `x.exp()`, `torch.exp(x)` and `x ** 2`."""
        if isinstance(node, ast.BinOp):
            return node.left if isinstance(node.op, ast.Pow) and not is_constant(node.right, 1) else None
        return self._taken_of(node, frame) if isinstance(node, ast.Call) and _last(node) in _CURVES else None

    def _taken_of(self, call: ast.Call, frame: _Frame) -> ast.expr | None:
        """`x` in `x.exp()` and `torch.exp(x)`."""
        names = [w.name for w in self._held(call.func, frame) if isinstance(w, Imported)]
        if names:
            return call.args[0] if call.args and names[0].startswith("torch.") else None
        return call.func.value if isinstance(call.func, ast.Attribute) else None

    def _folded(self, call: ast.Call, frame: _Frame) -> bool:
        """`torch.abs(a.mean() - b.mean())`: of what cannot be told to be on one side of the fold."""
        inner = self._taken_of(call, frame) if _last(call) in _FOLDS else None
        made = self._given(inner, frame) if isinstance(inner, ast.Name) else []
        whole = made[0][0] if len(made) == 1 else inner
        if inner is None or not isinstance(whole, ast.BinOp) or not isinstance(whole.op, ast.Sub):
            return False
        # `torch.clamp(self.margin - mean, min=0)`: a hinge
        sides = [whole.left, whole.right]
        means = [side for side in sides if self._is_mean(side, frame)]
        hinge = bool(means) and all(s in means or self._numbers.has(s, self._module(frame)) for s in sides)
        return hinge or self._is_mean(inner, frame)

    def _divides_each(self, call: ast.Call, frame: _Frame) -> bool:
        """`torch.tensor([1 / share for share in shares])`, where the shares are means over the samples."""
        made = call.args[0] if _last(call) in _MAKING and len(call.args) == 1 else None
        if not isinstance(made, ast.ListComp) or len(made.generators) != 1:
            return False
        over = made.generators[0]
        divisors = [n.right for n in walk(made.elt) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Div)]
        named = frozenset[str]().union(*map(names_in, divisors))
        return not named.isdisjoint(target_names(over.target)) and self._is_mean(over.iter, frame)

    def _compared(self, call: ast.Call, frame: _Frame) -> bool:
        """`F.mse_loss(fake.mean(0), real.mean(0))`: what a loss of torch's compares is a mean already."""
        name = self._loss_name(call, frame)
        # What is compared by `kl_div` comes as logarithms, and goes in by factors alone.
        return bool(name) and any(
            self._is_mean(one, frame)
            for at, one in enumerate(call.args[:2])
            if at or not name.endswith(("kl_div", "KLDivLoss"))
        )

    def _is_mean(self, node: ast.expr, frame: _Frame, far: int = 0) -> bool:
        """Whether an expression is made of means over the batch by factors and constants alone."""
        if far > _DEEPEST:
            return False
        if isinstance(node, ast.UnaryOp):
            return self._is_mean(node.operand, frame, far + 1)
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub, ast.Mult, ast.Div)):
            sides = [node.left, node.right]
            means = [side for side in sides if self._is_mean(side, frame, far + 1)]
            return bool(means) and all(s in means or isinstance(s, ast.Constant) for s in sides)
        if isinstance(node, ast.Name):
            given = self._given(node, frame)
            return bool(given) and all(self._is_mean(value, at, far + 1) for value, at in given)
        if isinstance(node, ast.Call):
            return self._averages(node, frame, far)
        bent = self._bent(node, frame)
        return bent is not None and self._is_mean(bent, frame, far + 1)

    def _averages(self, call: ast.Call, frame: _Frame, far: int) -> bool:
        bent = self._bent(call, frame)
        if bent is not None:
            return self._is_mean(bent, frame, far + 1)
        if self._loss_name(call, frame):
            return True
        averaged = self._over_samples(call, frame, frozenset({"mean"}))
        if averaged is not None:
            return self._is_of_batch(averaged, frame)
        returned = list(self._returned(call, frame))
        return bool(returned) and all(self._is_mean(value, inner, far + 1) for value, inner in returned)

    def _loss_name(self, call: ast.Call, frame: _Frame) -> str:
        """The name of a loss of torch's that a call averages over the batch; "" for anything else."""
        held = self._held(call.func, frame)
        names = [w.name for w in held if isinstance(w, Imported)]
        if len(held) == len(names) == 1 and k.is_loss_function(names[0]):
            return names[0] if reduction_of(call) in (None, "mean") else ""
        # Of `nn.MSELoss().cuda()` and `nn.MSELoss()` in two branches each is one.
        criteria = [w for w in held if isinstance(w, Thing) and w.kind == v.CRITERION and w.cls is None]
        known = [
            w.qualname
            for w in criteria
            if w.qualname and k.is_loss_class(w.qualname) and isinstance(w.site, ast.Call)
            if reduction_of(w.site) in (None, "mean")
        ]
        return min(known) if known and len(known) == len(held) else ""

    def _over_samples(self, call: ast.Call, frame: _Frame, last: frozenset[str]) -> ast.expr | None:
        """What a call takes the mean, or the like, of: of all of it, or over its samples, the first dimension."""
        if _last(call) not in last:
            return None
        names = [w.name for w in self._held(call.func, frame) if isinstance(w, Imported)]
        if names:
            whole, given = (call.args[0] if call.args else None), call.args[1:]
            if whole is None or not names[0].startswith("torch."):
                return None
        elif isinstance(call.func, ast.Attribute):
            whole, given = call.func.value, call.args
        else:
            return None
        dims = [*given, *[kw.value for kw in call.keywords if kw.arg in ("dim", "axis")]]
        if not given and not call.keywords:
            return whole
        # `std(0, False)`, `mean(dim=0, keepdim=True)`
        return whole if dims and is_constant(dims[0], 0) and self._has_rows(whole, frame) else None

    def _has_rows(self, node: ast.expr, frame: _Frame, far: int = 0) -> bool:
        """Whether nothing is seen that puts another dimension first than that of the samples."""
        if far > _DEEPEST:
            return False
        if isinstance(node, ast.Name):
            return all(self._has_rows(value, at, far + 1) for value, at in self._given(node, frame))
        if isinstance(node, ast.BinOp):
            return all(self._has_rows(side, frame, far + 1) for side in (node.left, node.right))
        if isinstance(node, ast.Attribute):
            return node.attr not in ("T", "mT")
        if not isinstance(node, ast.Call):
            return not isinstance(node, (ast.List, ast.Tuple, ast.ListComp))
        last = _last(node)
        if last in _REARRANGING:
            return False
        if last in _RESHAPING:
            first = node.args[0] if node.args else None
            return first is not None and (is_minus_one(first) or size_of(first) is not None)
        held = self._held(node.func, frame)
        if any(isinstance(w, Thing) and w.kind == v.MODEL for w in held):
            return True
        returned = list(self._returned(node, frame))
        if returned:
            return all(self._has_rows(value, inner, far + 1) for value, inner in returned)
        inner = self._taken_of(node, frame)
        return inner is None or self._has_rows(inner, frame, far + 1)

    def _is_of_batch(self, node: ast.expr, frame: _Frame) -> bool:
        weights = any(
            isinstance(w, Thing) and w.kind in (v.MODEL, v.PARAMETERS) for w in self._held(node, frame)
        )
        return self.of_batch(node, frame.scope) and not weights

    def _held(self, node: ast.expr, frame: _Frame) -> set[v.Value]:
        return self.script.interpreter.evaluate(self._module(frame), frame.scope, node)

    def _module(self, frame: _Frame) -> Module:
        return self.script.interpreter.module_of(frame.scope)

    def _returned(self, call: ast.Call, frame: _Frame) -> Iterator[tuple[ast.expr, _Frame]]:
        """What the functions of the program give back that a call runs."""
        for value in self._held(call.func, frame):
            for function, _ in run_by(value):
                given = {name: (one, frame) for one, name in handed_to(call, function.scope)}
                inner = _Frame(function.scope, given)
                for node in function.scope.nodes:
                    if isinstance(node, ast.Return) and node.value is not None:
                        yield node.value, inner

    def _given(self, name: ast.Name, frame: _Frame) -> list[tuple[ast.expr, _Frame]]:
        """What a function assigns to a name of its own, by itself, or is given under it."""
        scope = frame.scope
        if scope.resolve(name.id) is not scope:
            return []
        handed = scope.takes(name.id)
        stmts = self._written(name, frame)
        if handed:
            return [frame.given[name.id]] if not stmts and name.id in frame.given else []
        around = next((n for n in self._module(frame).tree.ancestors(name) if isinstance(n, ast.stmt)), None)
        stmts = [s for s in stmts if s is not around] or stmts  # what it held before
        plain = [
            (s.value, frame)
            for s in stmts
            if isinstance(s, ast.Assign)
            and any(isinstance(t, ast.Name) and t.id == name.id for t in s.targets)
        ]
        return plain if len(plain) == len(stmts) else self._unpacked(name, stmts, frame)

    def _unpacked(
        self, name: ast.Name, stmts: list[ast.stmt], frame: _Frame
    ) -> list[tuple[ast.expr, _Frame]]:
        """What a function gives back at the place of a name: `loss, distance = criterion(scores, y)`."""
        made = [s for s in stmts if not _holds_nothing(s)]
        one = made[0] if len(made) == 1 else None
        if not isinstance(one, ast.Assign) or not isinstance(one.value, ast.Call):
            return []
        target = one.targets[0]
        names = [dotted(t) for t in target.elts] if isinstance(target, (ast.Tuple, ast.List)) else []
        if name.id not in names:
            return []
        return [
            (value.elts[names.index(name.id)], inner)
            for value, inner in self._returned(one.value, frame)
            if isinstance(value, ast.Tuple) and len(value.elts) == len(names)
        ]

    def _added(self, name: ast.Name, frame: _Frame) -> list[tuple[ast.expr, _Frame]]:
        """The terms of a loss that is put together bit by bit: `loss = fit`, and `loss += 0.1 * spread`."""
        stmts = self._written(name, frame) if frame.scope.resolve(name.id) is frame.scope else []
        grows = [s for s in stmts if isinstance(s, ast.AugAssign) and isinstance(s.op, (ast.Add, ast.Sub))]
        begun = [s for s in stmts if isinstance(s, ast.Assign) and name.id in target_names(s.targets[0])]
        if not grows or len(grows) + len(begun) < len(stmts):
            return []
        plain = [s for s in begun if isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Name)]
        return [*((s.value, frame) for s in plain), *((s.value, frame) for s in grows)]

    def _written(self, name: ast.Name, frame: _Frame) -> list[ast.stmt]:
        """The statements of a function that write a name, but for its header."""
        module = self._module(frame)
        writes = [w for w in module.tree.writes(name.id) if module.scopes.of(w) is frame.scope]
        return [module.tree.statement(write) for write in writes]


def _holds_nothing(stmt: ast.stmt) -> bool:
    """`loss, distance = None, None`"""
    value = stmt.value if isinstance(stmt, ast.Assign) else None
    held = value.elts if isinstance(value, (ast.Tuple, ast.List)) else [value]
    return all(is_constant(one, None) for one in held)


def _sides(node: ast.expr) -> tuple[type[ast.operator], ast.expr, ast.expr] | None:
    """The operator and both sides of `a * b`, of `a.mul(b)` and of `torch.mul(a, b)`."""
    if isinstance(node, ast.BinOp):
        return type(node.op), node.left, node.right
    op = _METHODS.get(_last(node)) if isinstance(node, ast.Call) and not node.keywords else None
    if op is None or not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    both = node.args if dotted(node.func.value) == "torch" else [node.func.value, *node.args]
    return (op, both[0], both[1]) if len(both) == 2 else None


def _last(call: ast.Call) -> str:
    return str(dotted(call.func) or getattr(call.func, "attr", "")).rpartition(".")[2]


__all__ = ["Curve", "CurvedMeans"]
