"""Batches that a script cuts by hand, where it is certain that each process can take its share of them."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.losses.reduction_kinds import MEAN, SUM
from accelify.analysis.losses.reductions import LossReductions
from accelify.analysis.script import ScriptModel, is_in_model
from accelify.analysis.syntax import (
    call_keyword,
    dotted,
    is_constant,
    names_in,
    target_names,
    walk,
)
from accelify.analysis.training_loops import Loop
from accelify.analysis.values import Class, Entity

# Calls that make a tensor of what was cut, or move it, and leave one entry a sample.
_KEEPING = frozenset(
    "torch.from_numpy torch.tensor torch.as_tensor torch.Tensor torch.FloatTensor torch.LongTensor "
    "torch.autograd.Variable numpy.array numpy.asarray".split()
)
_DRAWING = frozenset(
    "torch.randint torch.randperm numpy.random.choice numpy.random.randint numpy.random.permutation "
    "random.sample numpy.random.choices".split()
)
_MAKING = frozenset("zeros ones randn rand empty full arange normal eye".split())
# Layers whose second dimension is the batch unless an argument says otherwise.
_TIME_FIRST = frozenset(
    "RNN LSTM GRU RNNCell LSTMCell GRUCell Transformer TransformerEncoder TransformerDecoder TransformerEncoderLayer "
    "TransformerDecoderLayer MultiheadAttention".split()
)
_OF_TIME = re.compile(r"seq|bptt|time|chunk|block|window|_len$|length", re.I)
_OF_SAMPLES = re.compile(r"batch|^bsz?$|^b_?size$", re.I)


_RECKONING = (ast.BinOp, ast.Name, ast.Constant, ast.Attribute, ast.operator, ast.expr_context, ast.Tuple)


@dataclass(eq=False)
class HandCut:
    """A training loop whose batches are cut by hand: `names` refer to the batch after the statement `after`."""

    loop: Loop
    after: ast.stmt
    names: list[str]


def find_hand_cut(script: ScriptModel) -> HandCut | None:
    """The one such loop of a script; None where anything about it is not certain."""
    if script.training_loaders or len(script.backwards) != 1 or script.fixed_batch_size is not None:
        return None
    backward = script.backwards[0]
    loops = script.enclosing_loops(backward.call)
    if not loops or LossReductions(script, "total").of(backward.loss) not in (MEAN, SUM):
        return None
    if _takes_time_first(script) or _models_know_the_batch(script):
        return None
    return _Search(script, loops[0], backward.call).result()


class _Search:
    def __init__(self, script: ScriptModel, loop: Loop, backward: ast.Call) -> None:
        self.script = script
        self.loop = loop
        self.backward = backward
        self.arrays: set[str] = set()
        # Names in the bounds of slices.
        self.bounds: set[str] = set()
        self.drawn = False

    def result(self) -> HandCut | None:
        names: list[str] = []
        last: ast.stmt | None = None
        for stmt in self.loop.body:
            if any(n is self.backward for n in walk(stmt)):
                break
            cut = self._cut(stmt, set(names))
            if cut:
                names += [n for n in cut if n not in names]
                last = stmt
            elif set(names) & _loaded(stmt):
                break
        if last is None or not names or not self._is_of_samples():
            return None
        return HandCut(self.loop, last, names) if self._all_follows(names, last) else None

    def _is_of_samples(self) -> bool:
        """Whether the cut dimension is that of the samples: drawn at random, or the same for inputs and targets."""
        if self.drawn:
            return True
        if len(self.arrays) < 2:
            return False
        step = _step(self.loop)
        names = self.bounds | set(names_in(step) if step is not None else ())
        if any(_OF_TIME.search(n) for n in names):
            return False
        return isinstance(step, ast.Constant) or any(_OF_SAMPLES.search(n) for n in names)

    # -- cutting

    def _cut(self, stmt: ast.stmt, known: set[str]) -> list[str]:
        """The names that a statement binds to batches, or to tensors made of them."""
        if not isinstance(stmt, ast.Assign) or len(stmt.targets) != 1:
            return []
        target = stmt.targets[0]
        if isinstance(target, ast.Name):
            if self._indexes(target.id):
                return []
            return [target.id] if self._is_cut(stmt.value, known) else []
        if not isinstance(target, ast.Tuple) or not all(isinstance(e, ast.Name) for e in target.elts):
            return []
        names = target_names(target)
        if isinstance(stmt.value, ast.Tuple) and len(stmt.value.elts) == len(names):
            return names if all(self._is_cut(e, known) for e in stmt.value.elts) else []
        return names if self._is_drawn_batch(stmt.value, len(names)) else []

    def _indexes(self, name: str) -> bool:
        """Whether a name is an index in the loop: it has no samples itself."""
        return any(
            isinstance(n, ast.Subscript) and isinstance(n.slice, ast.Name) and n.slice.id == name
            for s in self.loop.body
            for n in walk(s)
        )

    def _is_cut(self, node: ast.expr, known: set[str]) -> bool:
        while True:
            if (
                isinstance(node, ast.Call)
                and (self.script.qualname(node.func) or "") in _KEEPING
                and node.args
            ):
                node = node.args[0]
            elif (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and not node.func.attr.startswith("_")
            ):
                if node.func.attr not in k.SELF_RETURNING | {
                    "long",
                    "int",
                    "clone",
                    "detach",
                    "numpy",
                    "astype",
                }:
                    return False
                node = node.func.value
            else:
                break
        if isinstance(node, ast.Name):
            return node.id in known
        return isinstance(node, ast.Subscript) and self._cuts(node)

    def _cuts(self, node: ast.Subscript) -> bool:
        """`X[i : i + n]` over a counter of the loop, `X[index]` with an index drawn for the batch."""
        if not isinstance(node.value, ast.Name) or node.value.id in self._bound_in_loop():
            return False
        index = node.slice
        if isinstance(index, ast.Slice):
            if index.step is not None or index.lower is None or index.upper is None:
                return False
            if not self._counters() & set(names_in(index.lower)):
                return False
            self.bounds |= {*names_in(index.lower), *names_in(index.upper)}
            self.arrays.add(node.value.id)
            return True
        if isinstance(index, ast.Name) and self._is_index(index):
            self.arrays.add(node.value.id)
            return True
        return False

    def _is_index(self, name: ast.Name) -> bool:
        """Whether a name holds indices of samples: drawn, or a slice of a permutation, in this loop."""
        values = [
            s.value
            for s in self.loop.body
            if isinstance(s, ast.Assign) and any(name.id in target_names(t) for t in s.targets)
        ]
        if len(values) != 1:
            return False
        value = values[0]
        if isinstance(value, ast.Call) and self.script.qualname(value.func) in _DRAWING:
            self.drawn = True
            return True
        if (
            isinstance(value, ast.Subscript)
            and isinstance(value.slice, ast.Slice)
            and isinstance(value.value, ast.Name)
        ):
            counters = self._counters()
            owner = self.script.scope_of(name).resolve(value.value.id)
            made = [
                s.value
                for s in self.script.tree.nodes(ast.Assign)
                if any(value.value.id in target_names(t) for t in s.targets)
                and self.script.scope_of(s).resolve(value.value.id) is owner
            ]
            lower = value.slice.lower
            if made and lower is not None and counters & set(names_in(lower)):
                if all(isinstance(m, ast.Call) and self.script.qualname(m.func) in _DRAWING for m in made):
                    self.drawn = True
                    return True
        return False

    def _is_drawn_batch(self, value: ast.expr, count: int) -> bool:
        """`x, y = get_batch("train")`: a function whose results are stacked samples or samples at drawn indices."""
        callees = self.script.callees(value) if isinstance(value, ast.Call) else set()
        if len(callees) != 1:
            return False
        scope = next(iter(callees))
        if is_in_model(self.script, scope):
            return False
        returned = [n.value for n in scope.of_type(ast.Return)]
        if len(returned) != 1 or not isinstance(returned[0], ast.Tuple) or len(returned[0].elts) != count:
            return False
        assigned: dict[str, list[ast.expr]] = {}
        for stmt in scope.nodes:
            if isinstance(stmt, ast.Assign) and len(stmt.targets) == 1:
                targets, value_of = stmt.targets[0], stmt.value
                pairs = (
                    zip(targets.elts, value_of.elts, strict=False)
                    if isinstance(targets, ast.Tuple) and isinstance(value_of, ast.Tuple)
                    else [(targets, value_of)]
                )
                for one, other in pairs:
                    if isinstance(one, ast.Name):
                        assigned.setdefault(one.id, []).append(other)
        found = all(self._is_stacked(e, assigned, 0) for e in returned[0].elts)
        self.drawn = self.drawn or found
        return found

    def _is_stacked(self, node: ast.expr, assigned: dict[str, list[ast.expr]], depth: int) -> bool:
        if depth > 4:
            return False
        while (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and (node.func.attr in k.SELF_RETURNING | {"long", "pin_memory"})
        ):
            node = node.func.value
        if isinstance(node, ast.Name):
            values = [w for w in assigned.get(node.id, []) if node.id not in names_in(w)]
            return len(values) > 0 and all(self._is_stacked(w, assigned, depth + 1) for w in values)
        if isinstance(node, ast.Call) and self.script.qualname(node.func) == "torch.stack":
            return len(node.args) == 1 and not node.keywords and isinstance(node.args[0], ast.ListComp)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Name):
            values = assigned.get(node.slice.id, [])
            return (
                len(values) == 1
                and isinstance(values[0], ast.Call)
                and (self.script.qualname(values[0].func) in _DRAWING)
            )
        return False

    def _counters(self) -> set[str]:
        """The loop's counter, and names that are computed from it (`start = i * batch_size`)."""
        if not isinstance(self.loop, ast.For):
            return set()
        found = set(target_names(self.loop.target))
        for stmt in self.loop.body:
            if isinstance(stmt, ast.Assign) and found & set(names_in(stmt.value)):
                if all(isinstance(n, _RECKONING) for n in walk(stmt.value)):
                    self.bounds |= set(names_in(stmt.value))
                    found |= {n for t in stmt.targets for n in target_names(t)}
        return found

    # -- what is done with them

    def _bound_in_loop(self) -> set[str]:
        return {
            n.id
            for s in self.loop.body
            for n in walk(s)
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }

    def _all_follows(self, names: list[str], last: ast.stmt) -> bool:
        """Whether nothing in the loop needs the whole batch: models see the batch alone, no shape holds its size."""
        afterwards = self.loop.body[self.loop.body.index(last) + 1 :]
        derived = set(names)
        for stmt in afterwards:
            for node in walk(stmt):
                if isinstance(node, ast.Call) and not self._call_fits(node, derived):
                    return False
                if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
                    return False
                if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
                    last_part = (dotted(node) or "").rsplit(".", 1)[-1]
                    if k.BATCH_SIZE_NAME.search(last_part):
                        return False
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                    if self.script.models_of(node.value):
                        return False
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and self._counts(node):
                    if isinstance(self.script.tree.parent(node), ast.Subscript):
                        return False
            if isinstance(stmt, ast.Assign) and names_in(stmt.value) & derived:
                derived |= {n for t in stmt.targets for n in target_names(t)}
        return self._model_sees_it(names, afterwards)

    def _counts(self, node: ast.Name) -> bool:
        return isinstance(self.loop, ast.For) and node.id in target_names(self.loop.target)

    def _call_fits(self, call: ast.Call, derived: set[str]) -> bool:
        name = self.script.qualname(call.func) or ""
        last = (dotted(call.func) or "").rsplit(".", 1)[-1]
        if last in _MAKING and (
            name.startswith(("torch.", "numpy.")) or isinstance(call.func, ast.Attribute)
        ):
            return bool(names_in(call) & derived)
        if last in ("mm", "matmul", "cdist", "bmm", "einsum", "init_hidden"):
            return False
        if self.script.models_of(call.func):
            given = [*call.args, *[kw.value for kw in call.keywords]]
            return all(isinstance(a, ast.Constant) or names_in(a) & derived for a in given)
        return True

    def _model_sees_it(self, names: list[str], afterwards: list[ast.stmt]) -> bool:
        """Whether a model is called with the batch, in this very loop."""
        return any(
            isinstance(node, ast.Call)
            and self.script.models_of(node.func)
            and any(names_in(a) & set(names) for a in [*node.args, *[kw.value for kw in node.keywords]])
            for stmt in afterwards
            for node in walk(stmt)
        )


def _loaded(stmt: ast.stmt) -> set[str]:
    return {n.id for n in walk(stmt) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def _step(loop: Loop) -> ast.expr | None:
    """The third argument of `for i in range(start, stop, step)`, a progress bar around it or not."""
    if not isinstance(loop, ast.For):
        return None
    node: ast.expr = loop.iter
    while isinstance(node, ast.Call) and node.args:
        if isinstance(node.func, ast.Name) and node.func.id in ("range", "trange"):
            return node.args[2] if len(node.args) == 3 else None
        node = node.args[0]
    return None


def _takes_time_first(script: ScriptModel) -> bool:
    """Whether some layer of the program takes the batch as its second dimension."""
    for value in script.interpreter.entities.values():
        if isinstance(value, Class) and any(
            b.rsplit(".", 1)[-1] in _TIME_FIRST for b in value.external_bases()
        ):
            return True
        if not isinstance(value, Entity) or (value.qualname or "").rsplit(".", 1)[-1] not in _TIME_FIRST:
            continue
        if not isinstance(value.site, ast.Call) or not is_constant(
            call_keyword(value.site, "batch_first"), True
        ):
            return True
    return False


def _models_know_the_batch(script: ScriptModel) -> bool:
    """Whether the code of a model reads a configured batch size."""
    for value in script.interpreter.entities.values():
        if not isinstance(value, Class) or script.interpreter.kind_of_class(value) != v.MODEL:
            continue
        for node in walk(value.scope.node):
            if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
                if k.BATCH_SIZE_NAME.search((dotted(node) or "").rsplit(".", 1)[-1]):
                    return True
    return False
