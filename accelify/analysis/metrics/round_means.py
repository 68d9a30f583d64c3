"""Means over the rounds of an evaluation, each of which holds one batch of every process.

What is gathered of a round is averaged at once, and the mean of these averages is taken: the last round, which can hold
fewer samples, counts as much as the others. On one process the rounds are the batches, so that the mean is another.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set
from functools import cached_property

from accelify.analysis.losses.reduction_kinds import MIXED, SUM
from accelify.analysis.metrics.additions import addition
from accelify.analysis.metrics.averages import divisors, is_mean
from accelify.analysis.metrics.counts import counts_own, size_given, size_of
from accelify.analysis.metrics.evaluation_loop import EvaluationLoop
from accelify.analysis.metrics.figures import Figures, end_of, place_of
from accelify.analysis.metrics.meters import meter_of
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import call_argument, dotted, target_names, text_of, walk
from accelify.analysis.values import Thing

_MEANS = frozenset(
    {"numpy.mean", "numpy.average", "numpy.nanmean", "torch.mean", "statistics.mean", "statistics.fmean"}
)


def mean_over_rounds(
    script: ScriptModel, figures: Figures, loaders: Set[Thing], evaluation: EvaluationLoop
) -> tuple[str, ast.AST] | None:
    """What an evaluation averages over its rounds, and the node that adds to it; None where there is none.

    Args:
        script: its model.
        figures: what its loops add up.
        loaders: those that give each process a different share.
        evaluation: a loop whose outputs are gathered.
    """
    loop = evaluation.loop
    if any(
        isinstance(n, (ast.Break, ast.Return)) and script.enclosing_loops(n)[:1] == [loop]
        for s in loop.body
        for n in walk(s)
    ):
        return None  # it need not reach the last round
    rounds = _Rounds(script, figures, set(loaders), loop)
    for node in (n for s in loop.body for n in walk(s)):
        name = rounds.added(node) or (rounds.collected(node) if isinstance(node, ast.Call) else None)
        if name is not None and not rounds.is_for_one_sample(node):
            return name, node
    return None


class _Rounds:
    def __init__(
        self, script: ScriptModel, figures: Figures, loaders: set[Thing], loop: ast.For | ast.AsyncFor
    ) -> None:
        self.script, self.figures, self.loaders, self.loop = script, figures, loaders, loop
        self.tree, self.end = script.tree, end_of(script.tree, loop)

    def added(self, node: ast.AST) -> str | None:
        """`total += loss.item()`, divided by a number of rounds after the loop, here or where it is passed."""
        target, value = addition(node)
        if (
            target is None
            or value is None
            or not isinstance(target, (ast.Name, ast.Attribute, ast.Subscript))
        ):
            return None
        name = text_of(target)
        if self.figures.is_part_of_mean(value):
            assert isinstance(value, ast.BinOp)
            return name if self._counts(value.right) and self._is_mean(value.left) else None
        if not self._is_mean(value):
            return None
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp):
            if isinstance(node.value.op, ast.Div):  # mean = (mean * i + value) / (i + 1)
                return name if self._counts(node.value.right) else None
        if any(self._counts(d) for d in self._divisors(target)):
            return name
        read = self._is_averaged(name) if isinstance(target, ast.Name) else False
        return name if read else None

    def collected(self, call: ast.Call) -> str | None:
        """`losses.append(loss.item())` whose mean is taken, or a meter that gets no number of samples."""
        if not isinstance(call.func, ast.Attribute) or not call.args:
            return None
        name, method = text_of(call.func.value), call.func.attr
        if method == "append":
            return name if self._is_averaged(name) and self._is_mean(call.args[0]) else None
        meter, place = meter_of(self.script, call.func.value), place_of(self.script, call.func.value)
        if meter is None or place is None or meter.update != method or not self._is_mean(call.args[0]):
            return None
        given = call.args[1] if len(call.args) > 1 else next((kw.value for kw in call.keywords), None)
        if given is not None and self.figures.kind(given) is not None:
            return None
        if given is not None and not self.script.is_uniform(given):
            return None
        return name if self.figures.is_read_behind(self.loop, place) else None

    def is_for_one_sample(self, node: ast.AST) -> bool:
        """Whether a node is in a loop over the samples of the batch: what it adds represents one of them."""
        for inner in self.script.enclosing_loops(node):
            if inner is self.loop:
                return False
            if isinstance(inner, ast.For) and self._goes_over_samples(inner.iter):
                return True
        return False

    def _goes_over_samples(self, over: ast.expr) -> bool:
        """`range(len(target))`, `range(n)` of an `n = target.size(0)`, `zip(output, target)` of parts of the batch."""
        if not isinstance(over, ast.Call) or not isinstance(over.func, ast.Name) or not over.args:
            return False
        if over.func.id == "enumerate":
            return self._goes_over_samples(over.args[0])
        if over.func.id == "zip":
            return len(over.args) > 1 and all(dotted(one) in self._of_batch for one in over.args)
        if over.func.id != "range" or len(over.args) > 1:
            return False
        size = over.args[0]
        made = [
            size_given(stmt, size.id)
            for stmt in (n for s in self.loop.body for n in walk(s))
            if isinstance(stmt, ast.Assign) and isinstance(size, ast.Name)
        ]
        return any(one is not None and size_of(one) in self._of_batch for one in (size, *made))

    @cached_property
    def _of_batch(self) -> set[str | None]:
        return {*self.figures.of_the_batch(self.loop)}

    def _is_mean(self, value: ast.expr) -> bool:
        if is_mean(self.script, self.figures.reductions, value):
            return True
        if self.figures.kind(value) != "mean":
            return False
        losses = [n for n in walk(value) if isinstance(n, ast.Name) and self.figures.is_loss(n)]
        return not any(self.figures.reductions.of(loss) in (SUM, MIXED) for loss in losses)

    def _counts(self, divisor: ast.expr) -> bool:
        return counts_own(self.script, self.loop, self.loaders, divisor)

    def _divisors(self, target: ast.expr) -> Iterator[ast.expr]:
        name = dotted(target)
        if name is not None:
            yield from divisors(self.script, self.loop, name)
            return
        text = text_of(target)
        for node in self.script.divisions.get(self.script.scope_of(self.loop), ()):
            divided, by = (
                (node.target, node.value) if isinstance(node, ast.AugAssign) else (node.left, node.right)
            )
            if self.tree.start(node) > self.end and text_of(divided) == text:
                yield by

    def _is_averaged(self, name: str) -> bool:
        """Whether the mean of a list is taken after the loop, or a sum is returned to be divided by rounds."""
        scope = self.script.scope_of(self.loop)
        wanted = ast.parse(name, mode="eval").body
        for node in scope.nodes:
            if type(node) is not type(wanted) or not isinstance(
                node, (ast.Name, ast.Attribute, ast.Subscript)
            ):
                continue
            if not isinstance(node.ctx, ast.Load) or self.tree.start(node) < self.end:
                continue
            if text_of(node) == name and (self._averages(node) or self._is_averaged_by_caller(node)):
                return True
        return False

    def _is_averaged_by_caller(self, read: ast.expr) -> bool:
        """Whether what a function returns is averaged where it is called, at once or by its name there."""
        parent, scope, index = self.tree.parent(read), self.script.scope_of(read), None
        if isinstance(parent, ast.Tuple):
            index, parent = parent.elts.index(read), self.tree.parent(parent)
        if not isinstance(parent, ast.Return) or scope.kind != "function":
            return False
        for call in self.script.callers(scope):
            if index is None and self._averages(call):
                return True
            stmt = self.tree.parent(call)
            names = list(target_names(stmt.targets[0])) if isinstance(stmt, ast.Assign) else []
            name = names[index or 0] if len(names) > (index or 0) else None
            own = self.script.scope_of(call).resolve(name) if name is not None else None
            if own is None or name is None or (index is None and len(names) > 1):
                continue
            if any(
                self._averages(n)
                for n in self.script.reads(name, own)
                if self.script.scope_of(n) is self.script.scope_of(call) and self.tree.is_after(n, call)
            ):
                return True
        return False

    def _averages(self, read: ast.expr) -> bool:
        """Whether an expression around a read takes the mean of a list, or divides a sum by a number of rounds."""
        child: ast.AST = read
        for parent in self.tree.ancestors(read):
            if isinstance(parent, ast.Call) and self.script.qualname(parent.func) in _MEANS:
                return call_argument(parent, 0, "a") is not None and child in parent.args
            if isinstance(parent, ast.Attribute) and parent.attr == "mean":
                return True
            if isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Div) and child is parent.left:
                text, by = text_of(read), parent.right
                whole = isinstance(by, ast.Call) and dotted(by.func) == "len" and len(by.args) == 1
                return self._counts(by) or (whole and text_of(by.args[0]) == text)  # type: ignore[attr-defined]
            if isinstance(parent, ast.AugAssign) and isinstance(parent.op, ast.Div):
                return child is parent.target and self._counts(parent.value)
            if isinstance(parent, (ast.stmt, ast.Compare, ast.Subscript)):
                return False
            child = parent
        return False
