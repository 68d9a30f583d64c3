"""Losses that pit each sample of a batch against the others, which a model with weights can work out by itself.

scores = F.log_softmax(a @ b.t(), dim=1)
loss = -torch.diag(scores).mean()
loss = F.cross_entropy(scores, torch.arange(len(x)))
loss = (margin + scores - scores.diag().view(-1, 1)).clamp(min=0).sum()
own = scores[range(n), range(n)]
loss = -torch.log(own / (scores.sum(dim=1) - own)).mean()
criterion = losses.TripletMarginLoss()      (of pytorch_metric_learning)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.statements.assignments import assigned_once
from accelify.analysis.syntax import (
    call_argument,
    call_keyword,
    dotted,
    is_constant,
    target_names,
    text_of,
    walk,
)
from accelify.analysis.trained import is_in_model
from accelify.analysis.values import Imported, Thing

# By library: those of its losses that compare samples. Others compare each with learned proxies or with a memory.
_PAIR_LOSSES = {
    "pytorch_metric_learning": frozenset(
        "AngularLoss CentroidTripletLoss CircleLoss ContrastiveLoss DynamicSoftMarginLoss FastAPLoss "
        "GeneralizedLiftedStructureLoss HistogramLoss IntraPairVarianceLoss LiftedStructureLoss MarginLoss "
        "MultiSimilarityLoss NCALoss NPairsLoss NTXentLoss PNPLoss RankedListLoss SelfSupervisedLoss "
        "SignalToNoiseRatioContrastiveLoss SmoothAPLoss SupConLoss ThresholdConsistentMarginLoss "
        "TripletMarginLoss TupletMarginLoss VICRegLoss".split()
    ),
    "lightly": frozenset("BarlowTwinsLoss DCLLoss DCLWLoss NTXentLoss VICRegLoss".split()),
}
_DIAGONALS = frozenset({"diag", "diagonal"})
_PRODUCTS = frozenset({"mm", "matmul"})
_RANGES = frozenset({"range", "arange"})
_LOGARITHMS = frozenset({"log", "logsumexp"})
# Of rows with rows, `"ik,jk->ij"`.
_ROWS_WITH_ROWS = re.compile(r"([a-z])([a-z]),([a-z])\2->\1\3")
_CROSS_ENTROPIES = frozenset({"torch.nn.functional.cross_entropy", "torch.nn.CrossEntropyLoss"})
_MOVES = frozenset({"to", "cuda", "long", "type", "type_as"})
_FARTHEST = 4
_HINGES = frozenset({"clamp", "clamp_min", "clip", "relu", "softplus", "margin_ranking_loss"})


class PittedSamples:
    """Answers for one script which calls make such a loss.

    Args:
        script: its model.
    """

    def __init__(self, script: ScriptModel) -> None:
        self.script = script
        texts = [module.tree.data for module in script.program.modules.values()]
        self._libraries = any(name.encode() in text for name in _PAIR_LOSSES for text in texts)
        self._known: dict[Scope, ast.Call | None] = {}
        self._counting: dict[Scope, bool] = {}

    def pits(self, scope: Scope, call: ast.Call) -> bool:
        """Whether a call in a function compares the samples of a batch, as far as can be seen for sure."""
        last = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if last in _RANGES:
            scores = self._indexed_by(scope, call)
            return scores is not None and self._is_contrast(scope, scores)
        if last in _DIAGONALS:
            if _is_of_scores(scope, call):
                return True
            own = _diagonal_of(call)
            if isinstance(own, ast.Name) and self._is_contrast(scope, own):
                return True
            whole = _set_against(scope, call)
            return whole is not None and not self._is_of_products(scope, whole)
        if not call.args:
            return False
        return self._counts_as_classes(scope, call) or (self._libraries and self._is_pair_loss(scope, call))

    def _indexed_by(self, scope: Scope, call: ast.Call) -> ast.Name | None:
        """The matrix whose diagonal `scores[range(n), range(n)]` is, for the first of the two calls."""
        tree = self.script.interpreter.module_of(scope).tree
        pair = tree.parent(call)
        whole = tree.parent(pair) if isinstance(pair, ast.Tuple) and len(pair.elts) == 2 else None
        if (
            not isinstance(pair, ast.Tuple)
            or not isinstance(whole, ast.Subscript)
            or pair.elts[0] is not call
        ):
            return None
        same = whole.slice is pair and text_of(pair.elts[1]) == text_of(call)
        return whole.value if same and isinstance(whole.value, ast.Name) else None

    def _is_contrast(self, scope: Scope, scores: ast.Name) -> bool:
        return _sets_apart(scope, scores) and not self._is_of_products(scope, scores.id)

    def _is_of_products(self, scope: Scope, name: str) -> bool:
        """Whether a matrix is seen to be of products with all rows, here or where it is worked out: said there, but for
        what a model works out."""
        made = [n.value for n in scope.of_type(ast.Assign) if any(name in target_names(t) for t in n.targets)]
        inner = [n for value in made for n in walk(value)]
        called = {one for n in inner if isinstance(n, ast.Call) for one in self.script.callees(n)}
        own = [n for n in inner if not is_in_model(self.script, scope)]
        own += [n for one in called if not is_in_model(self.script, one) for n in one.nodes]
        return any(map(_is_product, own))

    def within(self, scope: Scope, depth: int = 3) -> tuple[Scope, ast.Call] | None:
        """The function and the call where another module's function, or what it calls, makes such a loss."""
        script = self.script
        if script.interpreter.module_of(scope) in script.modules:
            return None
        calls = scope.calls
        if scope not in self._known:
            self._known[scope] = next((call for call in calls if self.pits(scope, call)), None)
        own = self._known[scope]
        if own is not None:
            return scope, own
        inner = (self.within(c, depth - 1) for call in calls for c in script.callees(call) if c is not scope)
        return next(filter(None, inner), None) if depth else None

    def _held(self, scope: Scope, node: ast.expr) -> Iterator[tuple[str, ast.AST | None]]:
        """What a called expression is of a library, by name, with the call that made it."""
        module = self.script.interpreter.module_of(scope)
        for value in self.script.interpreter.evaluate(module, scope, node):
            if isinstance(value, Thing) and value.cls is None:
                yield value.qualname or "", value.site
            elif isinstance(value, Imported):
                yield value.name, None

    def _counts_as_classes(self, scope: Scope, call: ast.Call) -> bool:
        """`cross_entropy(scores, torch.arange(n))`: each sample is a class of its own."""
        target = call_argument(call, 1, "target")
        made = assigned_once(scope, target) if target is not None and self._counts(scope) else None
        while (
            isinstance(made, ast.Call) and isinstance(made.func, ast.Attribute) and made.func.attr in _MOVES
        ):
            made = made.func.value
        if not isinstance(made, ast.Call) or dotted(made.func) not in ("torch.arange", "th.arange"):
            return False
        if all(isinstance(n, ast.Constant) for n in made.args):
            return False
        return any(name in _CROSS_ENTROPIES for name, _ in self._held(scope, call.func))

    def _counts(self, scope: Scope) -> bool:
        """Whether a function has a call of `arange` at all."""
        if scope not in self._counting:
            calls = scope.calls
            self._counting[scope] = any(_called(call) == "arange" for call in calls)
        return self._counting[scope]

    def _is_pair_loss(self, scope: Scope, call: ast.Call) -> bool:
        for name, made in self._held(scope, call.func):
            known = _PAIR_LOSSES.get(name.partition(".")[0], frozenset[str]())
            if made is not None and name.rpartition(".")[2] in known:
                own = call_keyword(made, "gather_distributed") if isinstance(made, ast.Call) else None
                return not is_constant(own, True)
        return False


def _set_against(scope: Scope, call: ast.Call) -> str | None:
    """The name of a matrix whose diagonal is set against all of it, with a margin: how each sample's own score stands
    to those of the others. None where it is not."""
    whole = _diagonal_of(call)
    if not isinstance(whole, ast.Name):
        return None
    assigned = [n for n in scope.of_type(ast.Assign) if isinstance(n.targets[0], ast.Name)]
    own: set[str] = set()
    for stmt in sorted(assigned, key=lambda s: s.lineno):
        if any(n is call or (isinstance(n, ast.Name) and n.id in own) for n in walk(stmt.value)):
            if not _differences(stmt.value, whole.id, own, call):
                own |= set(target_names(stmt.targets[0]))
    hinged = (n for n in scope.of_type(ast.Call) if _called(n) in _HINGES)
    return whole.id if any(_differences(part, whole.id, own, call) for part in hinged) else None


def _diagonal_of(call: ast.Call) -> ast.expr | None:
    """What `scores.diag()`, or `torch.diag(scores)`, is the diagonal of; None where it is another diagonal."""
    whole = call.func.value if isinstance(call.func, ast.Attribute) else None
    if call.keywords:
        return None
    if whole is not None and dotted(whole) in ("torch", "th"):
        return call.args[0] if len(call.args) == 1 else None
    return None if call.args else whole


def _sets_apart(scope: Scope, scores: ast.Name) -> bool:
    """Whether a matrix of products of all rows with all rows is summed along its rows, and a logarithm taken there."""
    name = scores.id
    products = any(
        _is_product(part) or _is_einsum_of_rows(part)
        for node in scope.nodes
        if isinstance(node, ast.Assign) and any(name in target_names(t) for t in node.targets)
        for part in walk(node.value)
    )
    if not products or not any(_called(node) in _LOGARITHMS for node in scope.calls):
        return False
    return any(
        _called(call) in ("sum", "logsumexp")
        and any(isinstance(n, ast.Name) and n.id == name for n in walk(call))
        and (any(kw.arg in ("dim", "axis") for kw in call.keywords) or bool(call.args))
        for call in scope.calls
    )


def _differences(node: ast.expr, whole: str, own: set[str], call: ast.Call) -> bool:
    """Whether an expression subtracts a matrix and its diagonal, or what is made of that, from each other."""
    for part in walk(node):
        if not isinstance(part, ast.BinOp) or not isinstance(part.op, ast.Sub):
            continue
        sides = [list(walk(side)) for side in (part.left, part.right)]
        of_own = [any(n is call or (isinstance(n, ast.Name) and n.id in own) for n in side) for side in sides]
        of_all = [
            any(isinstance(n, ast.Name) and n.id == whole for n in side) and not is_own
            for side, is_own in zip(sides, of_own, strict=True)
        ]
        if (of_own[0] and of_all[1]) or (of_own[1] and of_all[0]):
            return True
    return False


def _is_of_scores(scope: Scope, call: ast.Call) -> bool:
    """Whether a diagonal is taken of the softmax over products of all rows with all rows."""
    whole = call.func.value if isinstance(call.func, ast.Attribute) else None
    taken: ast.expr | None = whole
    if whole is None or dotted(whole) in ("torch", "th"):
        taken = call.args[0] if len(call.args) == 1 and not call.keywords else None
    elif call.args or call.keywords:
        return False  # another diagonal, or one within each sample
    if taken is None:
        return False
    scored = False
    for _ in range(_FARTHEST):
        parts = list(walk(taken))
        scored = scored or any("softmax" in _called(part) for part in parts)
        if any(_is_product(part) for part in parts):
            return scored
        names = [n for n in parts if isinstance(n, ast.Name) and assigned_once(scope, n) not in (None, n)]
        made = assigned_once(scope, names[0]) if len(names) == 1 else None
        if made is None:
            return False
        taken = made
    return False


def _called(node: ast.AST) -> str:
    if not isinstance(node, ast.Call):
        return ""
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return str(name).lower()


def _is_einsum_of_rows(node: ast.AST) -> bool:
    """`torch.einsum("ik,jk->ij", a, b)`."""
    if not isinstance(node, ast.Call) or _called(node) != "einsum" or not node.args:
        return False
    rule = node.args[0].value if isinstance(node.args[0], ast.Constant) else ""
    return bool(_ROWS_WITH_ROWS.fullmatch(str(rule).replace(" ", "")))


def _is_product(node: ast.AST) -> bool:
    """`torch.mm(a, b.t())`, `a @ b.T`: of two matrices, one of them turned."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        return _is_turned(node.left) != _is_turned(node.right)
    if not isinstance(node, ast.Call) or _called(node) not in _PRODUCTS:
        return False
    assert isinstance(node.func, (ast.Attribute, ast.Name))
    own = [node.func.value] if isinstance(node.func, ast.Attribute) and len(node.args) == 1 else []
    pair = [*own, *node.args]
    return len(pair) == 2 and _is_turned(pair[0]) != _is_turned(pair[1])


def _is_turned(node: ast.expr) -> bool:
    """`x.t()`, `x.T`, `x.transpose(0, 1)`, `torch.transpose(x, 0, 1)`."""
    if isinstance(node, ast.Attribute):
        return node.attr == "T"
    if not isinstance(node, ast.Call) or _called(node) not in ("t", "transpose"):
        return False
    given = [a.value for a in node.args if isinstance(a, ast.Constant)]
    return _called(node) == "t" or sorted(given, key=str) == [0, 1]


__all__ = ["PittedSamples"]
