"""Evaluation loops: which can be sharded over processes, and what has to be gathered for their metrics."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Set

from accelify.analysis import values as v
from accelify.analysis.data.chosen_rows import chosen_rows
from accelify.analysis.data.gathered_entries import PickedEntries
from accelify.analysis.data.loaders import drops_last
from accelify.analysis.data.single_sample_loops import is_text, one_by_one, writes_all
from accelify.analysis.data.stored_before_model import taken_before
from accelify.analysis.data.unjoinable_batches import not_by_samples
from accelify.analysis.losses.scalar_losses import ScalarLosses
from accelify.analysis.metrics.averages import changed_by_gathering
from accelify.analysis.metrics.counts import first_of_shape, shape_of, size_of
from accelify.analysis.metrics.entry_counts import count_of
from accelify.analysis.metrics.evaluation_loop import (
    NO_MODEL,
    EvaluationLoop,
    addend,
    counts_rounds,
    filled_from,
    flat,
    names_of_batch,
    names_read_first,
    reduces,
    taken_as_number,
    unmoved,
)
from accelify.analysis.models.model_calls import run_elsewhere
from accelify.analysis.models.rows_together import takes_rows_together
from accelify.analysis.script import ScriptModel
from accelify.analysis.statements.bound_anew import is_read_after
from accelify.analysis.statements.enumerated import counter_of
from accelify.analysis.statements.reaching_assignments import last_assignment
from accelify.analysis.syntax import calls_in, dotted, names_in, target_names, text_of, walk
from accelify.analysis.values import Entity

_CRITERION = re.compile(r"crit|loss", re.I)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_WHOLE = ast.Name("")
_TENSORS = (v.BATCH, v.OUTPUT, v.TENSOR)


def evaluation_loops(
    script: ScriptModel, batch_size: str = "per-process", shared: Set[int] = frozenset()
) -> list[EvaluationLoop]:
    """Every loop over a loader that trains nothing, with the way its metrics are made whole.

    Args:
        script: its model.
        batch_size: `per-process`: what is gathered are several of the script's batches; `total`: one.
        shared: where the loaders are made that the script sharded by hand, and lost batches of itself.
    """
    found, losses = [], ScalarLosses(script).of_models()
    for loop, loaders in script.loader_loops:
        if any(script.trains(s) for s in loop.body) or _inside_training(script, loop):
            continue
        if _keeps_loss(script, loop) or _trains_unseen(script, loop):
            continue  # what it calls trains, or its function does where others call it
        if any(isinstance(n, (ast.Yield, ast.YieldFrom)) for s in loop.body for n in walk(s)):
            continue  # it passes the batches on
        found.append(_Analysis(script, loop, loaders, batch_size, losses).result)
    if batch_size != "total":
        _keep_batches(script, [e for e in found if e.problem is None], shared)
    return found


def _keeps_loss(script: ScriptModel, loop: ast.For | ast.AsyncFor) -> bool:
    """Whether a loop gives a value with gradients to an attribute on which a backward is called by this name."""
    names = {b.loss.attr for b in script.backwards if isinstance(b.loss, ast.Attribute)}
    return any(
        isinstance(n, ast.Attribute)
        and n.attr in names
        and isinstance(n.ctx, ast.Store)
        and not script.is_without_gradients(n)
        for stmt in (loop.body if names else ())
        for n in walk(stmt)
    )


def _trains_unseen(script: ScriptModel, loop: ast.For | ast.AsyncFor) -> bool:
    """Whether a loop has a backward of its own that is none of the script's: nothing here calls its function."""
    known = {backward.call for backward in script.every_backward}
    backwards = (call for call in calls_in(loop) if getattr(call.func, "attr", "") == "backward")
    return any(call not in known for call in backwards)


def _keep_batches(script: ScriptModel, evaluations: list[EvaluationLoop], shared: Set[int]) -> None:
    """Leave the data whole of which several processes would drop whole batches.

    What is trained on is sharded anyway, and with it what a loop iterates over besides.
    """
    tied, size = set(script.training_loaders), -1
    while size < len(tied):
        size = len(tied)
        tied.update(*[e.loaders for e in evaluations if e.loaders & tied])
    for evaluation in evaluations:
        made = [t.site for t in evaluation.loaders if drops_last(script, t)]
        by_hand = [n for n in made if n and script.tree.parent(n) and script.tree.start(n) in shared]
        if len(made) == len(by_hand):
            continue
        if evaluation.loaders & tied:
            evaluation.loses_batches = True
        else:
            evaluation.problem = "drop_last=True would leave out whole batches of it on several processes"


def _inside_training(script: ScriptModel, loop: ast.For | ast.AsyncFor) -> bool:
    """Whether the loop only gathers material for a backward after it (`for x in loader: losses.append(...)`)."""
    scope = script.scope_of(loop)
    direct = [b for b in script.backwards if b.scope is scope]
    outer = script.enclosing_loops(loop)
    return any(
        script.tree.is_after(b.call, loop)
        and script.enclosing_loops(b.call)[:1] == outer[:1]
        and bool(outer)
        and _shares_name(b.loss, loop)
        for b in direct
    )


def _shares_name(loss: ast.expr, loop: ast.For | ast.AsyncFor) -> bool:
    assigned = {n.id for n in walk(loop) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return bool(names_in(loss) & assigned)


class _Analysis:
    def __init__(
        self,
        script: ScriptModel,
        loop: ast.For | ast.AsyncFor,
        loaders: set[Entity],
        batch_size: str,
        losses: Set[tuple[Entity, int | None]],
    ) -> None:
        self.batch_size = batch_size
        self.losses = losses
        self.script = script
        self.loop = loop
        self.result = EvaluationLoop(loop, loaders)
        self.statements = list(flat(loop.body))
        self._assigned: list[list[ast.Assign]] | None = None
        self.result.problem = self._look()
        self.result.only_looks = not self._keeps_something()

    def _look(self) -> str | None:
        forward: list[int] = []
        for index, stmt in enumerate(self.statements):
            calls = [c for c in calls_in(stmt) if self._is_forward(c)]
            if not calls:
                continue
            if isinstance(stmt, (ast.If, ast.For, ast.While, ast.Try, ast.With)):
                return "the model is called inside a nested block"
            forward.append(index)
        if not forward:
            return run_elsewhere(self.script, [c for s in self.loop.body for c in walk(s)]) or NO_MODEL
        last = forward[-1]
        stmt = self.statements[last]
        number = self._number_of_the_model(forward)
        if number is not None:
            return f"`{number[0]}` is a number that {number[1]} makes of the local batch"
        shaped = not_by_samples(self.script, self.loop, self.result.loaders)
        if shaped is not None:
            return shaped
        if self.script.has_ctc_loss:
            return "a CTC loss takes the time first, and gathering joins along the first dimension"
        chosen = chosen_rows(self.statements, last)
        if chosen is not None:
            return f"`{chosen}` has those rows that each process chooses of its batch, of which all have other numbers"
        single = one_by_one(self.script, self.loop, self.statements, last)
        if single is not None:
            return single
        if self.batch_size != "total" and self._is_placed_by_rounds(last):
            return "its results are put where the rounds of one process count"
        if isinstance(stmt, (ast.Assign, ast.AnnAssign)) and self._assigns_per_sample(stmt):
            return self._gather_after(forward, self._takes_rows_together(last))
        if len(forward) == 1:
            return self._gather_inline(stmt, last)
        return "the outputs of the model are used where they are computed"

    def _is_placed_by_rounds(self, last: int) -> bool:
        """Whether results are stored by the number of the batch: `found[i * size : (i + 1) * size] = out`.

        A gathered batch is N times as large. By a count that goes up with it, as `found[n : n + len(out)]`, they fit.
        """
        counter = counter_of(self.script, self.loop)
        slices = [
            node.slice
            for stmt in self.statements[last:]
            for node in walk(stmt)
            if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)
        ]
        return counter is not None and any(
            isinstance(part, ast.BinOp)
            and isinstance(part.op, ast.Mult)
            and counter in names_in(part)
            and size_of(part.left) is None
            and size_of(part.right) is None
            for one in slices
            for part in walk(one)
        )

    def _number_of_the_model(self, forward: list[int]) -> tuple[str, str] | None:
        """A loss that the model, or a criterion that is one, returns, and which of them does:
        `logits, loss = model(x, y)`, and `loss.item()` after it.

        What is added to others, of which the sum is taken as a number, is one too: `(error + divergence).item()`.
        """
        for index in forward:
            stmt = self.statements[index]
            if not isinstance(stmt, ast.Assign) or not isinstance(stmt.value, ast.Call):
                continue
            if not self._is_forward(stmt.value):
                continue
            given = {n for t in stmt.targets for n in target_names(t)}
            maker = dotted(stmt.value.func) or ""
            maker = f"`{maker}`" if _CRITERION.search(maker) else "the model"
            trained = self._given_as_loss(stmt.value, stmt.targets[0])
            if trained is not None:
                return trained, maker
            sums: dict[str, str] = {name: name for name in given}
            for node in (n for s in self.statements[index + 1 :] for n in walk(s)):
                if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                    added = addend(node.value, sums)
                    if added is not None:
                        sums[node.targets[0].id] = added
                    elif node.targets[0].id not in given:
                        sums.pop(node.targets[0].id, None)
                number = taken_as_number(node)
                added = addend(number, sums) if number is not None else None
                if added is not None:
                    return added, maker
        return None

    def _given_as_loss(self, call: ast.Call, target: ast.expr) -> str | None:
        """What is set to the number on which the script calls backward in its training, by the same call."""
        for model, number in self.losses if self.script.models_run(call) else ():
            if model in self.script.models_run(call):
                if number is None and isinstance(target, ast.Name):
                    return target.id
                if number is not None and isinstance(target, ast.Tuple) and number < len(target.elts):
                    return dotted(target.elts[number])
        return None

    def _keeps_something(self) -> bool:
        """Whether a loop adds a value up, collects it, returns it or leaves a name that is read after it.

        One that ends with its first batch only fetches that.
        """
        if isinstance(self.loop.body[-1], ast.Break) or self._only_steps():
            return False
        if writes_all(self.script, self.loop, self.statements):
            return True
        stored: set[str] = set()
        for node in (n for stmt in self.loop.body for n in walk(stmt)):
            if isinstance(node, (ast.AugAssign, ast.Return, ast.Yield)):
                return True
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                if node.func.attr in ("append", "extend", "update", "add", "write", "writerow"):
                    return True
            if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
                return True
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                stored.add(node.id)
        end = self.script.tree.end(self.loop)
        scope = self.script.scope_of(self.loop)
        return any(is_read_after(self.script, scope, name, end) for name in stored)

    def _only_steps(self) -> bool:
        """Whether a loop reads nothing of its batches and only sets learning rates or steps a schedule, to show it."""
        batch = set(target_names(self.loop.target))
        nodes = [n for stmt in self.loop.body for n in walk(stmt)]
        if any(isinstance(n, ast.Name) and n.id in batch and isinstance(n.ctx, ast.Load) for n in nodes):
            return False
        return self.result.problem == NO_MODEL and any(
            isinstance(n, ast.Attribute) and self.script.is_a(n.value, v.OPTIMIZER, v.SCHEDULER)
            for n in nodes
        )

    def _is_forward(self, call: ast.Call) -> bool:
        if self.script.models_run(call):
            return True
        return (
            isinstance(call.func, ast.Attribute)
            and bool(self.script.models_of(call.func.value))
            and any(t.kind == v.OUTPUT for t in self.script.entities(call))
        )

    def _takes_rows_together(self, last: int) -> bool:
        """Whether the model's input has several rows for each sample, in one dimension: `x.view(-1, c, h, w)`."""
        calls = [c for c in calls_in(self.statements[last]) if self._is_forward(c)]
        return any(takes_rows_together(call, self.statements[:last]) for call in calls)

    def _assigns_per_sample(self, stmt: ast.Assign | ast.AnnAssign) -> bool:
        """Whether what the statement assigns still has a row for every sample, as far as can be seen."""
        value = stmt.value
        if value is None:
            return False
        targets = stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target]
        names = [n for t in targets for n in target_names(t)]
        if any("loss" in n.lower() for n in names):
            return False
        return bool(names) and not reduces(self.script, value)

    def _batch_names(self, until: int) -> list[str]:
        given = [n for stmt in self._assignments(until) for t in stmt.targets for n in target_names(t)]
        seen = dict.fromkeys([*target_names(self.loop.target), *given])
        scope = self.script.scope_of(self.loop)
        contained = self.script.interpreter.variables
        retained, counts = [], self._counts(until)
        for name in seen:
            sized = name in counts or self._size_of_batch(name, until) is not None
            if sized or self._is_of_a_shape(name, until):
                continue
            values = contained.get((scope.resolve(name) or scope, name), set())
            if any(isinstance(w, Entity) and w.kind in _TENSORS for w in values):
                retained.append(name)
        return retained

    def _assignments(self, until: int) -> Iterator[ast.Assign]:
        """Assignments up to a statement, those in branches (`if use_cuda: x = x.cuda()`) too."""
        if self._assigned is None:
            self._assigned = [[n for n in walk(s) if isinstance(n, ast.Assign)] for s in self.statements]
        for assigned in self._assigned[: until + 1]:
            yield from assigned

    def _size_of_batch(self, name: str, until: int) -> ast.expr | None:
        """The expression, where a name is nothing but the batch's size: `n = x.size(0)`, `len(x)`, `x.shape[0]`."""
        found: list[ast.expr] = []
        for stmt in self.statements[: until + 1]:
            if isinstance(stmt, ast.Assign) and any(name in target_names(t) for t in stmt.targets):
                first = first_of_shape(stmt, name)
                found.append(stmt.value if first is None else first)
        return found[0] if len(found) == 1 and size_of(found[0]) is not None else None

    def _counts(self, until: int) -> set[str]:
        """The names that hold a number of entries of the batch: `n = (y != pad).sum()`."""
        counted = [stmt for stmt in self._assignments(until) if count_of(stmt.value) is not None]
        return {name for stmt in counted for target in stmt.targets for name in target_names(target)}

    def _is_of_a_shape(self, name: str, until: int) -> bool:
        """Whether a name is one of the other sizes in `n, channels, _ = x.size()`: the same for every batch."""
        made = [s for s in self._assignments(until) if any(name in target_names(t) for t in s.targets)]
        return bool(made) and all(shape_of(s.value) is not None for s in made)

    def _take_sizes_again(self, last: int, later: set[str]) -> None:
        """Sizes that the metric uses have to be those of the gathered tensors."""
        for stmt in self.statements[: last + 1]:
            if isinstance(stmt, ast.Assign) and len(stmt.targets) == 1:
                for name in target_names(stmt.targets[0]):
                    size = self._size_of_batch(name, last)
                    if name in later and size is not None:
                        self.result.sizes.append((name, size))

    def _gather_after(self, forward: list[int], together: bool = False) -> str | None:
        last = forward[-1]
        outputs: list[str] = []
        for index in forward:
            stmt = self.statements[index]
            if not isinstance(stmt, ast.Assign):
                return "the outputs of the model are used where they are computed"
            outputs += [n for t in stmt.targets for n in target_names(t)]
        carried = {n for n in outputs if n in names_read_first(self.statements)}
        if carried:
            return f"`{sorted(carried)[0]}` is carried from batch to batch"
        entries = self._entries(forward)
        early = taken_before(self.script, self.loop, self.statements, last)
        if early is not None:
            return early
        for index, stmt in enumerate(self.statements[:last]):
            if index not in forward and isinstance(stmt, ast.AugAssign) and not counts_rounds(stmt):
                added = text_of(stmt.target)
                return f"`{added}` is added up before the last call of the model"
        later: set[str] = set()
        for stmt in self.statements[last + 1 :]:
            later |= {n.id for n in walk(stmt) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        counted = sorted(self._counts(last) & later)
        if counted:
            return f"`{counted[0]}` counts entries of the local batch"
        names = [n for n in dict.fromkeys([*outputs, *self._batch_names(last)]) if n in later]
        taken = entries.found(outputs, [n for n in names if n not in outputs])
        if isinstance(taken, str):
            return taken
        names = [n for n in names if n not in taken.holders]
        alone = entries.first_alone(names)
        if alone is not None:
            return f"`{alone}` is the first sample of each batch, or a part of what the model gives"
        text = next(
            (n for n in names if any(is_text(self.script, r) for r in self._reads_after(n, last))), None
        )
        if text is not None:
            return f"`{text}` is a text, one for each sample"
        hidden = [n for n in names if "hidden" in n or n in ("h", "state", "states")]
        if hidden:
            return f"`{hidden[0]}` may not have a row for every sample"
        self._take_sizes_again(last, later)
        sizes = {name for name, _ in self.result.sizes}
        if together and sizes and not set(names) & set(target_names(self.loop.target)):
            return f"`{min(sizes)}` counts the local batch's samples, of which the model is given the rows together"
        if any("loss" in n.lower() for n in names):
            return "a loss of the local batch is used after the last call of the model"
        if not self.script.tree.ends_line(self.statements[last]):
            return "the metric stands on the line of the model's call"
        gathered = set(names) | set(outputs) | sizes | taken.holders
        left = self._left_local(last, gathered, later)
        if left:
            return f"`{left}` is made from the local batch and used with what would be gathered"
        changed = self._changed_by_gathering(self.statements[last], [*names, *taken.holders])
        if changed is not None:
            return changed
        self.result.after = self.statements[last]
        self.result.gathered = names
        self.result.picked = taken
        return None

    def _reads_after(self, name: str, last: int) -> list[ast.Name]:
        """The reads of a variable after a statement, but for those of what it is set to there."""
        tree, end = self.script.tree, self.script.tree.end(self.statements[last])
        reads = [
            n
            for s in self.statements[last + 1 :]
            for n in walk(s)
            if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load)
        ]
        made = {read: last_assignment(tree, read) for read in reads}
        return [read for read, stmt in made.items() if stmt is None or tree.start(stmt) < end]

    def _entries(self, forward: list[int]) -> PickedEntries:
        calls = [c for index in forward for c in calls_in(self.statements[index]) if self._is_forward(c)]
        return PickedEntries(self.script, self.loop, self.statements, forward[-1], calls)

    def _left_local(self, last: int, gathered: set[str], later: set[str]) -> str | None:
        """A name made from the batch before the last call of the model, used after it and not gathered."""
        made = names_of_batch(self.loop)
        for stmt in self._assignments(last):
            if names_in(stmt.value) & made:
                made |= {n for t in stmt.targets for n in target_names(t)}
        made = filled_from(self.statements[: last + 1], made)
        made = {n for n in made if not self._is_of_a_shape(n, last)}
        return next(iter(sorted((made & later) - gathered)), None)

    def _changed_by_gathering(self, forward: ast.stmt, names: list[str]) -> str | None:
        if self.batch_size == "total":
            return None
        return changed_by_gathering(
            self.script, self.loop, self.result.loaders, self.statements, forward, set(names)
        )

    def _gather_inline(self, stmt: ast.stmt, last: int) -> str | None:
        """`total += criterion(model(x), y).item()`: gather the call where it is and the targets before it."""
        calls = [c for c in calls_in(stmt) if self._is_forward(c)]
        if len(calls) != 1 or not isinstance(stmt, (ast.Assign, ast.AugAssign, ast.Expr)):
            return "the outputs of the model are used where they are computed"
        call: ast.expr = calls[0]
        if isinstance(stmt, ast.Expr) and stmt.value is call:
            return "nothing here reads what the model gives"
        if any(isinstance(a, (ast.Lambda, *COMPREHENSIONS)) for a in self.script.tree.ancestors(call)):
            return "the model is called more than once in one statement"
        inside = names_in(call)
        outside = {
            n.id for n in walk(stmt) if isinstance(n, ast.Name) and not any(n is m for m in walk(call))
        }
        later: set[str] = set()
        for other in self.statements[last + 1 :]:
            later |= {n.id for n in walk(other) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        needed = [n for n in self._batch_names(last - 1) if n in outside | later]
        if set(needed) & inside:
            return "the batch is used both by the model and by the metric in one statement"
        counted = self._counts(last - 1)
        if any(n in counted or self._size_of_batch(n, last - 1) is not None for n in outside | later):
            return "the size of the local batch is used with what would be gathered"
        entries = PickedEntries(self.script, self.loop, self.statements, last, calls)
        early = taken_before(self.script, self.loop, self.statements, last)
        if early is not None:
            return early
        if (changed := self._changed_by_gathering(stmt, needed)) is not None:
            return changed
        entry = entries.entry_of_call(calls[0])
        taken = any(unmoved(one) is call for one in map(taken_as_number, walk(stmt)) if one is not None)
        whole = (taken or self._given_as_loss(calls[0], _WHOLE) is not None) and entry is None
        if whole or (entry is not None and entries.is_number(entry)):
            return f"`{text_of(entry or call)}` is a number that the model makes of the local batch"
        call = entry or call
        self.result.inline = [call]
        self.result.before = stmt
        self.result.gathered = needed
        return None
