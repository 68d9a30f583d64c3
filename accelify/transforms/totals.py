"""Running totals of a training loop, reduced over processes before they are used.

for data, target in loader:
    ...
    running_loss += loss.item()
                                    ->  running_loss = accelerator.reduce(running_loss, reduction="mean")
print(running_loss / len(loader))

A sum that goes on over several passes is reduced once, after the loop around them.
Where an epoch ends with fewer samples than processes, a process without one takes a sample again. That sample has no
weight in the gradient, but sums over samples count it: at most one for each process but one, each epoch. A mean over
batches gives a last round that is split between the processes the same weight as the others. Where such figures choose
the best checkpoint, evaluate on a separate loader, whose repeated samples `gather_for_metrics` leaves out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property

from accelify.analysis import values as v
from accelify.analysis.metrics.additions import addition, keeps_mean
from accelify.analysis.metrics.averages import divisors
from accelify.analysis.metrics.counts import counts_all, counts_own, size_of, steps_of
from accelify.analysis.metrics.figures import (
    LEFT,
    BatchLoop,
    Place,
    head_of,
    is_afterwards,
    is_table,
    place_of,
)
from accelify.analysis.metrics.set_divisors import SetDivisors
from accelify.analysis.metrics.set_numbers import is_set
from accelify.analysis.metrics.undivided import shown_undivided
from accelify.analysis.syntax import children, dotted, names_in, target_names, text_of, walk
from accelify.findings import Safety, Severity
from accelify.transforms.base import Change, Context, Rule
from accelify.writer.edits import Edit

TOTALS = Rule(
    "ACC302",
    "A running total covers one process's share of the data only.",
    safety=Safety.REVIEW,
    effort=5,
    done="added up running totals over all processes",
)
_TENSOR_METHODS = frozenset("sum mean eq ne gt lt ge le add mul div pow sqrt abs".split())


def transform(context: Context) -> Iterator[Change]:
    """Yield the reduction of running totals after the loops that train on sharded loaders."""
    for loop in [*context.shared_loops(), *context.ungathered_loops()]:
        sums = _Totals(context, loop)
        totals = sums.found()
        for place, node in sums.unclear.items():
            message = f"`{place.text}` adds up something of one process's share of the data"
            if (inner := sums.goes_through(place, node)) is not None:
                message += (
                    f", for each of `{text_of(inner.iter)}`: reduce all of them after the loop over batches"
                )
            by = list(divisors(context.script, loop, place.text))
            if by and all(is_set(context.script, one) for one in by) and not sums.splits_batches:
                message += f", and `{text_of(by[0])}` counts that of all processes: sum it over them first"
            yield context.change(TOTALS, node, message)
        for place in sums.undivided if totals else ():
            message = (
                f"`{place.text}` is the sum of the means of batches: a last round that is cut over the processes "
                "counts once for each of them"
            )
            yield context.change(TOTALS, sums.additions[place], message, severity=Severity.INFO)
        for place in sums.too_small:
            message = (
                f"`{place.text}` goes on from pass to pass, so that its mean over the processes stays exact: one "
                "num_processes-th of the sum over all batches as which it is read; multiply it there by "
                "accelerator.num_processes"
            )
            yield context.change(TOTALS, sums.additions[place], message)
        accelerator = context.accelerator(loop) if totals else None
        if accelerator is None:
            continue
        edits: list[Edit] = []
        homes = {place: sums.home(place) or loop for place in totals}
        tensors = [place for place in totals if context.for_accelerate and _is_tensor(context, loop, place)]
        if len(tensors) < len(totals) and context.for_accelerate:
            edits.append(context.import_for(loop, "from accelerate.utils import gather_object"))
        for home in dict.fromkeys([loop, *homes.values()]):
            here = {place: kind for place, kind in totals.items() if homes[place] is home}
            if here:
                edits.append(context.afterwards(home, _reductions(context, accelerator, here, tensors)))
                context.settle(home, here)
        yield context.change(
            TOTALS,
            head_of(loop),
            f"{', '.join(f'`{p.text}`' for p in totals)} would cover one process's share of the data",
            edits,
        )


def _reductions(
    context: Context, accelerator: str, totals: dict[Place, str], tensors: list[Place]
) -> list[str]:
    """The lines that put totals together."""
    lines = []
    for reduction in ("sum", "mean"):
        places = [place for place, kind in totals.items() if kind == reduction]
        if context.for_accelerate:
            # Accelerate's reduce takes only tensors. Numbers keep their type when they are gathered as objects.
            parts = f" / {accelerator}.num_processes" if reduction == "mean" else ""
            lines += [f"{p.text} = sum(gather_object([{p.text}])){parts}" for p in places if p not in tensors]
            places = [p for p in places if p in tensors]
        if places:
            joined = ", ".join(p.text for p in places)
            value = joined if len(places) == 1 else f"({joined})"
            lines.append(f'{joined} = {accelerator}.reduce({value}, reduction="{reduction}")')
    return lines


class _Totals:
    """What adds a value up over a loop and is read after it, with how its parts are combined."""

    def __init__(self, context: Context, loop: BatchLoop) -> None:
        self.context, self.loop = context, loop
        self.script, self.tree = context.script, context.tree
        self.figures = context.figures
        self.set_divisors = SetDivisors(context.script, loop, context.plan.prepared)
        # Additions of which it is not known how the parts of processes go together.
        self.unclear: dict[Place, ast.AST] = {}
        # Sums of the means of batches, which are shown as they are.
        self.undivided: list[Place] = []
        # Averages over processes that go on from pass to pass, and that are read as the sum over all batches.
        self.too_small: list[Place] = []
        # The first addition to each place.
        self.additions: dict[Place, ast.AST] = {}

    def found(self) -> dict[Place, str]:
        found: dict[Place, str] = {}
        wrong: set[Place] = set()
        batch = self.figures.of_the_batch(self.loop)
        for node in (n for stmt in self.loop.body for n in walk(stmt)):
            target, value = addition(node)
            place = place_of(self.script, target) if target is not None else None
            if place is None or value is None or self._is_set_inside(place, node):
                continue
            if place.text in self._trained_on:
                continue  # a loss of the whole pass: what is reduced has no gradient any more
            if node in self.context.claimed:
                continue  # it counts the samples of all processes
            self.additions.setdefault(place, node)
            kind = self.figures.kind(value)
            if self.goes_through(place, node) is not None:
                kind = None  # one line after the loop would meet the last of them alone
            if self.splits_batches and self.figures.share_of_set_size(value) == LEFT:
                kind = None
            if kind is None:
                own = names_in(value) & batch and self.figures.is_read_after(self.loop, place)
                if own and not _is_collected(value) and not is_table(self.script, value):
                    self.unclear.setdefault(place, node)
                continue
            if found.setdefault(place, kind) != kind or (place.whole and self.context.for_accelerate):
                wrong.add(place)
        for place in wrong:
            del found[place]
        found = {
            place: kind
            for place, kind in found.items()
            # Averages of what is the same everywhere already change nothing, sums do.
            if (kind == "mean" or self.home(place) is not None)
            and self.figures.is_read_after(self.loop, place)
        }
        for counter in [p for p in found if self._only_counts(p)]:
            divided = self._divided_by(counter, found)
            if not divided <= {p.text for p in found}:
                # It divides a number that stays local to this process.
                del found[counter]
                found.update({p: "mean" for p in found if p.text in divided})
        counters = {p.text for p, kind in found.items() if kind == "sum"}
        found = {place: self._by_divisor(place, kind, counters) for place, kind in found.items()}
        unclear = {place.text for place in self.unclear}
        for place in [p for p, kind in found.items() if kind == "sum"] if unclear else ():
            if any(text_of(d) in unclear for d in divisors(self.script, self.loop, place.text)):
                # Its divisor stays local to this process.
                found[place] = "mean"
        return found if self.splits_batches else self._by_batches(found)

    def goes_through(self, place: Place, node: ast.AST) -> ast.For | None:
        """The loop inside of this one whose rounds each add to an entry of another object: `for one in models:`."""
        around = [a for a in self.script.enclosing_loops(node) if a is not self.loop and a in self._inside]
        loops = (a for a in around if isinstance(a, ast.For) and place.root in target_names(a.target))
        return next(loops, None) if place.text != place.root else None

    @cached_property
    def _inside(self) -> set[ast.AST]:
        return set(walk(self.loop))

    @cached_property
    def _trained_on(self) -> set[str | None]:
        """The names whose `backward()` is called in the loop's function."""
        calls = self.script.scope_of(self.loop).of_type(ast.Call)
        return {
            dotted(c.func.value)
            for c in calls
            if isinstance(c.func, ast.Attribute) and c.func.attr == "backward"
        }

    def home(self, place: Place) -> BatchLoop | None:
        """The loop after which a total can be summed, as it starts again before it: this loop, or one around it.

        One around it where a variable is neither set nor read there but in this loop: summed after each of several
        passes, the sum of the first would be counted again by each process.
        """
        if self.figures.starts_over(self.loop, place):
            return self.loop
        scope = self.script.scope_of(self.loop)
        if place.text != place.root or "." in place.root or scope.resolve(place.root) is not scope:
            return None
        inside = {id(n) for n in walk(self.loop)}
        for outer in self.script.enclosing_loops(self.loop):
            names = [n for n in walk(outer) if isinstance(n, ast.Name) and n.id == place.root]
            if any(id(n) not in inside for n in names):
                return None
            if self.figures.starts_over(outer, place):
                elsewhere = {self.script.scope_of(n) for n in self.script.reads(place.root, scope)} - {scope}
                return None if elsewhere else outer
        return None

    def _is_pass(self) -> bool:
        """Whether the loop takes its batches from a loader itself: a window of batches that were drawn before it has as
        many on each process, while of a whole pass each has its part."""
        parts = () if isinstance(self.loop, ast.While) else walk(self.loop.iter)
        return isinstance(self.loop, ast.While) or any(
            isinstance(n, ast.expr) and self.script.is_a(n, v.LOADER, v.ITERATOR) for n in parts
        )

    @property
    def splits_batches(self) -> bool:
        """Whether every process has its part of each batch, and so as many batches as one process alone."""
        return self.context.plan.batch_size == "total" or self.context.plan.hand_cut is not None

    def _by_batches(self, found: dict[Place, str]) -> dict[Place, str]:
        """Sums that are divided by a number of batches: that number is summed too, or one process's share is taken."""
        loaders = self.context.plan.prepared
        for place in [p for p, kind in found.items() if kind == "sum"]:
            by = list(divisors(self.script, self.loop, place.text))
            own = [d for d in by if counts_own(self.script, self.loop, loaders, d)]
            if not own:
                continue
            names = {d.id for d in own if isinstance(d, ast.Name) and steps_of(self.script, self.loop, d.id)}
            counter = Place(min(names), min(names)) if len(names) == 1 and len(own) == len(by) else None
            if counter is not None and self.figures.starts_over(self.loop, counter):
                divided = [p for p in found if p.text in self._divided_by(counter, found)]
                if all(self.figures.starts_over(self.loop, p) for p in divided):
                    found.update(dict.fromkeys([*divided, counter], "sum"))
                    continue
            if len(own) == len(by) and not self._is_read_besides(place, len(by)):
                found[place] = "mean"
            else:
                del found[place]
                self.unclear[place] = self.additions[place]
        return found

    def _is_read_besides(self, place: Place, divisions: int) -> bool:
        """Whether a variable is read after the loop in other places than so many divisions."""
        scope = self.script.scope_of(self.loop).resolve(place.root)
        reads = self.script.reads(place.root, scope) if scope is not None else []
        own = [n for n in reads if is_afterwards(self.tree, n, self.loop)]
        for read in own:
            stmt = self.tree.statement(read)
            if isinstance(stmt, ast.Assign) and place.root in {text_of(t) for t in stmt.targets}:
                # From there on it holds the quotient.
                own = [n for n in own if not self.tree.is_after(n, stmt)]
                break
        return place.text == place.root and len(own) > divisions

    def _by_divisor(self, place: Place, kind: str, counters: set[str]) -> str:
        """Means of batches that are divided by the number of all samples are summed: each process has seen fewer."""
        _, added = addition(self.additions[place])
        if (
            kind != "mean"
            or self.splits_batches
            or keeps_mean(self.additions[place])
            or (added is not None and self.figures.is_part_of_mean(added))
        ):
            return kind
        by = list(divisors(self.script, self.loop, place.text))
        whole = bool(by) and all(counts_all(self.script, d) or text_of(d) in counters for d in by)
        whole = whole or self.set_divisors.divide(place.text, added)
        undivided = not by and shown_undivided(self.script, self.loop, place.text) and self._is_pass()
        if not (whole or undivided):
            return kind
        if self.home(place) is None:
            self.too_small.append(place)
            return kind
        if undivided:
            self.undivided.append(place)
        return "sum"

    def _is_set_inside(self, place: Place, addition: ast.AST) -> bool:
        """Whether the loop also sets the place, so that it holds no total of the whole loop."""
        texts = {place.text.replace("'", '"'), place.root}
        for stmt in (n for part in self.loop.body for n in walk(part)):
            if isinstance(stmt, (ast.Assign, ast.AnnAssign)) and stmt is not addition:
                targets = stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target]
                for node in (n for t in targets for n in walk(t)):
                    stored = isinstance(getattr(node, "ctx", None), ast.Store)
                    if stored and text_of(node).replace("'", '"') in texts:
                        return True
        return False

    def _only_counts(self, place: Place) -> bool:
        """Whether a total is a number of samples and nothing else."""
        values = []
        for node in walk(self.loop):
            target, value = addition(node)
            if target is not None and value is not None and place_of(self.script, target) == place:
                values.append(value)
        return bool(values) and all(
            size_of(value) is not None or (isinstance(value, ast.Name) and self.figures.is_batch_size(value))
            for value in values
        )

    def _divided_by(self, counter: Place, found: dict[Place, str]) -> set[str]:
        """What a counter divides after the loop, as it is written."""
        scope = self.script.scope_of(self.loop)
        stores = [
            n
            for n in self.tree.nodes(ast.Name)
            if n.id == counter.root
            and isinstance(n.ctx, ast.Store)
            and is_afterwards(self.tree, n, self.loop)
            if self.script.scope_of(n) is scope
        ]
        # From there on it counts something else.
        until = self.tree.first(stores)
        divided: set[str] = set()
        known = {p.text for p in found}
        for node in (*self.tree.nodes(ast.BinOp), *self.tree.nodes(ast.AugAssign)):
            if not isinstance(node.op, ast.Div) or not is_afterwards(self.tree, node, self.loop):
                continue
            if until is not None and not self.tree.is_before(node, until):
                continue
            divisor = node.right if isinstance(node, ast.BinOp) else node.value
            if not any(
                isinstance(n, (ast.Name, ast.Attribute, ast.Subscript)) and text_of(n) == counter.text
                for n in walk(divisor)
            ):
                continue
            if self.script.scope_of(node).resolve(counter.root) is not scope.resolve(counter.root):
                continue
            if isinstance(node, ast.BinOp):
                divided |= self._variables(node.left, known)
            else:
                place = place_of(self.script, node.target)
                divided.add(place.text if place is not None else text_of(node.target))
        return divided

    def _variables(self, node: ast.expr, known: set[str]) -> set[str]:
        text = text_of(node)
        for place in known:
            if text.replace("'", '"') == place.replace("'", '"'):
                return {place}
        if isinstance(node, ast.Name):
            return {node.id} if self.script.scope_of(node).resolve(node.id) is not None else set()
        return {
            name
            for child in children(node)
            if isinstance(child, ast.expr)
            for name in self._variables(child, known)
        }


def _is_collected(value: ast.expr) -> bool:
    """Whether a list grows, and no number."""
    return isinstance(value, (ast.List, ast.ListComp)) or (
        isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "tolist"
    )


def _is_tensor(context: Context, loop: BatchLoop, place: Place) -> bool:
    """Whether something that is no plain number is added to a total."""
    for node in walk(loop):
        target, value = addition(node)
        if target is not None and value is not None and place_of(context.script, target) == place:
            if _gives_tensor(context, value):
                return True
    return False


def _gives_tensor(context: Context, node: ast.expr, depth: int = 0) -> bool:
    if isinstance(node, ast.BinOp):
        return any(_gives_tensor(context, side, depth) for side in (node.left, node.right))
    if isinstance(node, ast.UnaryOp):
        return _gives_tensor(context, node.operand, depth)
    if isinstance(node, ast.Compare):
        return True
    if isinstance(node, ast.Call):
        if context.script.qualname(node.func) is not None:
            known = context.script.qualname(node.func) or ""
            inside = known == "builtins.sum" and any(isinstance(a, ast.Compare) for a in node.args)
            return known.startswith("torch.") or inside
        if isinstance(node.func, ast.Attribute):
            return node.func.attr in _TENSOR_METHODS or (
                node.func.attr in ("cpu", "detach", "clone", "float", "double", "long")
                and _gives_tensor(context, node.func.value, depth)
            )
        return context.script.is_a(node, v.OUTPUT)
    if isinstance(node, ast.Attribute):
        return node.attr == "data" and _gives_tensor(context, node.value, depth)
    if not isinstance(node, ast.Name) or depth > 3:
        return False
    if any(isinstance(b.loss, ast.Name) and b.loss.id == node.id for b in context.script.backwards):
        return True
    scope = context.script.scope_of(node).resolve(node.id)
    return any(
        _gives_tensor(context, stmt.value, depth + 1)
        for stmt in context.tree.nodes(ast.Assign)
        for target in stmt.targets
        if isinstance(target, ast.Name) and target.id == node.id
        if context.script.scope_of(stmt).resolve(node.id) is scope
    )
