"""Losses that are averaged over a count within the batch: the positives, the tokens that are no padding.

Shares of a batch have different numbers of them, and the mean of the processes' means is not that of the whole batch.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TypeVar

from accelify.analysis import knowledge as k
from accelify.analysis.interpretation.torch_calls import reduction_of
from accelify.analysis.losses.chosen import Chosen
from accelify.analysis.losses.curved_means import Curve, CurvedMeans
from accelify.analysis.losses.moved_samples import MovedSamples
from accelify.analysis.losses.reductions import LossReductions
from accelify.analysis.losses.sum_calls import sums_samples
from accelify.analysis.losses.sum_ratios import SumRatios
from accelify.analysis.metrics.figures import Figures
from accelify.analysis.scopes import Scope
from accelify.analysis.script import Backward, ScriptModel
from accelify.analysis.statements.given_none import is_none
from accelify.analysis.syntax import (
    call_argument,
    call_keyword,
    calls_in,
    dotted,
    names_in,
    target_names,
    text_of,
    walk,
)

_Node = TypeVar("_Node", bound=ast.expr)
# How many assignments are followed back: from a divisor to a count, and from what is counted to the batch. Boxes that a
# helper matches with the batch are counted far behind it: `size`, a tensor of that size, a mask of it, its rows' sums.
_FARTHEST = 4
_FARTHEST_BATCH = 6
# Weights that sum up to one: what they are divided by differs between shares, and their sum does not.
WEIGHTS = "its weights are divided by"
_TO_NUMBERS = frozenset({"float", "int", "long", "double"})
_COUNTING = frozenset({"sum", "count_nonzero"})
# Losses that divide by the weights of the targets they look at.
_WEIGHED = frozenset({"CrossEntropyLoss", "NLLLoss", "NLLLoss2d", "cross_entropy", "nll_loss"})


class OwnCounts:
    """Answers what counts of its own batch a loss is averaged over.

    Args:
        script: its model.
        backward: of the loss.
        reductions: how its losses are reduced.
    """

    def __init__(self, script: ScriptModel, backward: Backward, reductions: LossReductions) -> None:
        self.script = script
        self.reductions = reductions
        self.backward = backward
        self.home = script.scope_of(backward.call)
        self.loops = script.enclosing_loops(backward.call)
        self.chosen = Chosen(script, self._of_batch, self.loops)
        self.moved = MovedSamples(script)
        self.ratios = SumRatios(script, self.loops, self._made)

    @cached_property
    def batch(self) -> set[str] | None:
        """The names that hold something of the batch in the loops around the backward; None where there is none."""
        figures = Figures(self.script, self.reductions)
        return {name for loop in self.loops for name in figures.of_the_batch(loop)} if self.loops else None

    def found(self) -> Iterator[tuple[ast.expr, Scope, str]]:
        """Where, and in which scope, a loss is averaged over such a count, with how that is put."""
        averaging = self.reductions.averaging(self.backward.loss)
        for divisor, scope in self._in_order(averaging.divisors):
            if self.chosen.is_of_one_sample(divisor, scope):
                continue  # each sample by its own: their mean is that of the whole batch
            counts = list(self._counts(divisor, scope))
            # Of several counts each is one of what a condition chooses: sums of outputs are a quotient of their own.
            several = len(counts) > 1 and all(self._counts_chosen(count, scope) for count in counts)
            if several or (len(counts) == 1 and not self.ratios.trains(counts[0], scope)):
                own = [] if several else self._own_sums(counts[0], scope)
                by = " and ".join(f"`{text_of(d)}`" for d in own)
                yield (
                    divisor,
                    scope,
                    f"{WEIGHTS} {by}" if own else f"it is divided by `{text_of(divisor)}`",
                )
        for divisor, scope in self._in_order(averaging.weights):
            if any(self._counts(divisor, scope)):
                yield divisor, scope, f"{WEIGHTS} `{text_of(divisor)}`"
        for call, scope in self._in_order(averaging.averages):
            name = self._library_name(call, scope)
            if reduction_of(call) in (None, "mean") and name.rsplit(".", 1)[-1] in _WEIGHED:
                ignored = call_keyword(call, "ignore_index")
                at = 0 if k.is_loss_class(name) else 2
                weight = call_argument(call, at, "weight")
                if weight is not None and not is_none(self.script, weight, scope):
                    yield call, scope, "it is divided by the class weights of the targets at hand"
                elif ignored is not None:
                    yield call, scope, "it is averaged over the targets that are not `ignore_index`"
            chosen = None if reduction_of(call) in ("sum", "none") else self.chosen.averaged(call, scope)
            if chosen is not None:
                yield call, scope, f"it is averaged over `{text_of(chosen)}`"

    def ratios_of_sums(self) -> Iterator[tuple[ast.expr, Scope]]:
        """Where a loss divides a sum over the batch by others that are trained too, as a soft Dice loss does."""
        divisors = self.reductions.averaging(self.backward.loss).divisors
        if self.ratios.batches_of_one:
            return
        for divisor, scope in self._in_order(divisors):
            counts = list(self._counts(divisor, scope))
            if any(self.ratios.trains(count, scope) for count in counts):
                if not self.chosen.is_for_one_sample(divisor, scope) and not self._has_single_samples(scope):
                    yield self.ratios.whole(divisor, scope), scope

    def _has_single_samples(self, scope: Scope, far: int = 0) -> bool:
        """Whether a function is called for each sample of a batch by itself, or what calls it is."""
        calls = self.ratios.calls_of(scope) if far < _FARTHEST else {}
        return bool(calls) and all(
            self.chosen.is_for_one_sample(call, caller) or self._has_single_samples(caller, far + 1)
            for call, caller in calls.items()
        )

    def curved(self) -> list[Curve]:
        """What of a loss is a curve over a mean of the batch."""
        curves = CurvedMeans(self.script, self._of_batch).found(self.backward.loss, self.home)
        found = {curve.node: curve for curve in curves}
        return [found[node] for node, _ in self._in_order({node: one.scope for node, one in found.items()})]

    def _in_order(self, found: Mapping[_Node, Scope]) -> list[tuple[_Node, Scope]]:
        """By file and place: of several losses, which one is asked first differs between runs."""
        path = {scope: str(self.script.interpreter.module_of(scope).path) for scope in found.values()}
        return sorted(found.items(), key=lambda one: (path[one[1]], one[0].lineno, one[0].col_offset))

    def _library_name(self, call: ast.Call, scope: Scope) -> str:
        module = self.script.interpreter.module_of(scope)
        values = self.script.interpreter.evaluate(module, scope, call.func)
        names = {name for value in values if (name := getattr(value, "name", None)) is not None}
        return names.pop() if len(names) == 1 else ""

    def _counts(self, node: ast.expr, scope: Scope, far: int = 0) -> Iterator[ast.Call]:
        """The counts of the batch that an expression is made of."""
        inside = calls_in(node)
        direct = []
        for call in inside:
            last = str(dotted(call.func) or getattr(call.func, "attr", "")).rsplit(".", 1)[-1]
            if last not in _COUNTING:
                continue
            # Python's own sums up what it is given as well: `sum((y != 0).sum() for y in window)`.
            own = isinstance(call.func, ast.Name) and call.func.id == "sum"
            known = own or self._library_name(call, scope).startswith(("torch.", "numpy."))
            summed = call.args[0] if known and call.args else getattr(call.func, "value", None)
            dims = call.args[int(known) :]
            over = (not dims and not call.keywords) or sums_samples(dims, call.keywords)
            if isinstance(summed, ast.expr) and (over or self.moved.sums(call, scope)):
                if not any(getattr(n, "attr", "") == "exp" for n in walk(summed)):
                    direct += [call] if self._of_batch(summed, scope) else []
        if direct:
            inner = {id(n) for call in direct for n in walk(call) if n is not call}
            yield from (call for call in direct if id(call) not in inner)
            return
        called = {id(call.func) for call in inside}
        for name in [n for n in walk(node) if isinstance(n, ast.Name) and id(n) not in called]:
            if far < _FARTHEST:
                for value in self._made(name, scope):
                    yield from self._counts(value, scope, far + 1)

    def _counts_chosen(self, count: ast.Call, scope: Scope) -> bool:
        """Whether a sum counts where a mask is true: `positive.float().sum()`."""
        summed = _summed(count)
        while isinstance(summed, ast.Call) and getattr(summed.func, "attr", "") in _TO_NUMBERS:
            summed = summed.func.value  # type: ignore[attr-defined]
        return summed is not None and self.chosen.is_mask(summed, scope)

    def _own_sums(self, count: ast.Call, scope: Scope) -> list[ast.expr]:
        """What weights are divided by that so sum up to the same on every process: `a / a.sum() + b / b.sum()`."""
        summed = _summed(count)
        made = self._made(summed, scope) if isinstance(summed, ast.Name) else []
        return _normalised(made[0]) if len(made) == 1 else []

    def _made(self, name: ast.Name, scope: Scope) -> list[ast.expr]:
        """What a scope assigns to a name."""
        if scope.resolve(name.id) is not scope:
            return []
        return [
            n.value
            for n in scope.of_type(ast.Assign)
            if any(name.id in target_names(t) for t in n.targets) and name.id not in names_in(n.value)
        ]

    def _of_batch(self, node: ast.expr, scope: Scope) -> bool:
        """Whether an expression is made of the batch at hand."""
        made, seen = [node], set[str]()
        for _ in range(_FARTHEST_BATCH + 1):
            names = [name for one in made for name in self._read(one, scope)]
            if any(self._is_of_batch(name.id, scope) for name in names):
                return True
            made = [one for name in names if name.id not in seen for one in self._made(name, scope)]
            seen |= {name.id for name in names}
        return False

    def _read(self, node: ast.expr, scope: Scope) -> list[ast.Name]:
        """The variables that an expression reads, the object itself and what it calls aside."""
        called = {id(n.func) for n in calls_in(node)}
        names = [n for n in walk(node) if isinstance(n, ast.Name) and id(n) not in called]
        return [n for n in names if n.id != scope.self_name()]

    def _is_of_batch(self, name: str, scope: Scope) -> bool:
        """Whether a variable is a part of the batch, or a parameter that is given one."""
        if scope is self.home and self.batch is not None:
            return name in self.batch
        return scope.kind == "function" and name in {a.arg for a in scope.parameters()}


def _summed(call: ast.Call) -> ast.expr | None:
    """What `torch.sum(x)` or `x.sum()` sums up."""
    return call.args[0] if call.args else getattr(call.func, "value", None)


def _normalised(node: ast.expr) -> list[ast.expr]:
    """The sums that the terms of an expression are divided by, each by its own; none where one of them is not."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _normalised(node.left), _normalised(node.right)
        return [*left, *right] if left and right else []
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Div):
        return []
    sums = [n for n in calls_in(node.right) if _is_sum(n)]
    whole = [_summed(call) for call in sums]
    own = len(whole) == 1 and whole[0] is not None and text_of(whole[0]) == text_of(node.left)
    return [node.right] if own else []


def _is_sum(call: ast.Call) -> bool:
    return getattr(call.func, "attr", "") == "sum"
