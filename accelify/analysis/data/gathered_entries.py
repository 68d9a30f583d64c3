"""Entries of a batch and of a model's output that metrics read: what is gathered where the whole cannot be.

outputs = model(**batch)
hits += (outputs.logits.argmax(-1) == batch["labels"]).sum()      `outputs.logits` and `batch["labels"]`
total += outputs.loss.item()                                      `outputs.loss`, a number of the local batch
"""

from __future__ import annotations

import ast
import builtins
import keyword
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from accelify.analysis.metrics.averages import samples_divisor
from accelify.analysis.metrics.undivided import shown_undivided
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import call_keyword, is_constant, names_in, target_names, text_of, walk

# Properties of tensors; any other attribute is an entry of an object that holds tensors.
_OF_TENSORS = frozenset(
    "data shape T mT H mH dtype device grad ndim is_cuda real imag requires_grad grad_fn layout is_sparse".split()
)
_OF_MAPPINGS = frozenset({"items", "keys", "values"})
# Arguments that only models take whose output is an object or a tuple.
_OF_LANGUAGE = frozenset("labels attention_mask token_type_ids start_positions pixel_values".split())
_LOSS = re.compile(r"loss|nll|perplex", re.I)


@dataclass(eq=False)
class Pick:
    """An entry that is read after the last call of the model.

    Args:
        text: how it is written.
        reads: the places where it is.
        number: it is a mean over the local batch, and no tensor of its samples.
        name: a new variable for what is gathered; "" where it is gathered at its only read.
        measured: only its size is read, and that of `name`, which is gathered anyway, is the same.
    """

    text: str
    reads: list[ast.expr] = field(default_factory=list)
    number: bool = False
    name: str = ""
    measured: bool = False


@dataclass(eq=False)
class Picked:
    """What the metrics of an evaluation loop read of objects that hold tensors."""

    holders: set[str] = field(default_factory=set)
    picks: list[Pick] = field(default_factory=list)

    @property
    def is_needed(self) -> bool:
        """Whether there are such objects at all."""
        return bool(self.holders or self.picks)

    @property
    def nodes(self) -> list[ast.expr]:
        """The expressions that are the same on every process once they are gathered."""
        return [read for pick in self.picks for read in pick.reads]


class PickedEntries:
    """Looks for such entries in one evaluation loop.

    Args:
        script: its model.
        loop: over the batches.
        statements: of its body, those under a plain `with` as well.
        last: the index of the one with the last call of the model.
        forwards: the calls of the model.
    """

    def __init__(
        self,
        script: ScriptModel,
        loop: ast.For | ast.AsyncFor,
        statements: Sequence[ast.stmt],
        last: int,
        forwards: Sequence[ast.Call],
    ) -> None:
        self.script, self.tree, self.loop = script, script.tree, loop
        self.statements, self.last, self.forwards = statements, last, forwards
        self._names: dict[str, list[ast.Name]] = {}
        for node in (n for stmt in loop.body for n in walk(stmt)):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                self._names.setdefault(node.id, []).append(node)

    def found(self, outputs: list[str], batch: list[str]) -> Picked | str:
        """What is picked out of which variables; a sentence where one is used in a way that cannot be followed.

        Args:
            outputs: the variables that the model's calls are assigned to.
            batch: those that hold something of the batch.
        """
        picked = Picked()
        picked.holders = {n for n in outputs if self._is_output_object(n)}
        picked.holders |= {n for n in [*batch, *self._displayed(batch)] if self._is_batch_object(n)}
        for name in batch:
            if name in picked.holders and self._has_attributes(name) and not self._is_mapping(name):
                return f"`{name}` is an object, whose parts need not have a row for every sample"
        by_text: dict[str, Pick] = {}
        for name in sorted(picked.holders):
            for read in self._after(name):
                entry = self._entry(read)
                if entry is not None:
                    pick = by_text.setdefault(text_of(entry), Pick(self.tree.segment(entry)))
                    pick.reads.append(entry)
                    pick.number |= name in outputs and self.is_number(entry)
                    continue
                return f"`{name}` is used as a whole, and holds more than a row for every sample"
        picked.picks = sorted(by_text.values(), key=lambda p: self.tree.start(p.reads[0]))
        problem = self._about_numbers(picked)
        if problem is None and picked.picks:
            problem = self._name_them(picked)
            self._measure(picked, [n for n in batch if n not in picked.holders])
        return problem or picked

    def entry_of_call(self, call: ast.Call) -> ast.expr | None:
        """The entry that is read of what a call of the model returns: `model(**batch).logits`."""
        parent = self.tree.parent(call)
        if isinstance(parent, ast.Attribute):
            called = self.tree.parent(parent)
            if parent.attr in _OF_TENSORS or (isinstance(called, ast.Call) and called.func is parent):
                return None
            return parent
        if (
            isinstance(parent, ast.Subscript)
            and parent.value is call
            and isinstance(parent.slice, ast.Constant)
        ):
            if isinstance(parent.slice.value, str) or self._speaks() or self.is_number(parent):
                return parent
        return None

    # -- which variables

    def _displayed(self, batch: list[str]) -> Iterator[str]:
        """Dictionaries of the batch's parts: `inputs = {"input_ids": batch[0], "labels": batch[3]}`."""
        for stmt in (n for s in self.statements[: self.last + 1] for n in walk(s)):
            if isinstance(stmt, ast.Assign) and isinstance(stmt.value, (ast.Dict, ast.DictComp)):
                made = names_in(stmt.value) & {*batch, *target_names(self.loop.target)}
                if made and isinstance(stmt.targets[0], ast.Name):
                    yield stmt.targets[0].id

    def _is_mapping(self, name: str) -> bool:
        for read in self._names.get(name, ()):
            parent = self.tree.parent(read)
            if isinstance(parent, ast.keyword) and parent.arg is None:
                return True
            if isinstance(parent, ast.Attribute) and parent.attr in _OF_MAPPINGS:
                return True
            if isinstance(parent, ast.Subscript) and parent.value is read:
                if isinstance(parent.slice, ast.Constant) and isinstance(parent.slice.value, str):
                    return True
        return False

    def _has_attributes(self, name: str) -> bool:
        """Whether attributes are read that tensors do not have: `outputs.logits`."""
        for read in self._names.get(name, ()):
            parent = self.tree.parent(read)
            if isinstance(parent, ast.Attribute) and parent.attr not in _OF_TENSORS:
                called = self.tree.parent(parent)
                if not (isinstance(called, ast.Call) and called.func is parent):
                    return True
        return False

    def _indices(self, name: str) -> set[int]:
        return {
            parent.slice.value
            for read in self._names.get(name, ())
            if isinstance(parent := self.tree.parent(read), ast.Subscript)
            and parent.value is read
            and isinstance(parent.slice, ast.Constant)
            and isinstance(parent.slice.value, int)
        }

    def _is_output_object(self, name: str) -> bool:
        if self._is_mapping(name) or self._has_attributes(name):
            return True
        indices = self._indices(name)
        if len(indices) != 1:
            return bool(indices)
        known = self._speaks()
        entries = [e for read in self._after(name) if (e := self._entry(read)) is not None]
        return known or any(self.is_number(entry) for entry in entries)

    def _speaks(self) -> bool:
        """Whether the model takes arguments of language models, which return an object or a tuple."""
        return any(kw.arg is None or kw.arg in _OF_LANGUAGE for c in self.forwards for kw in c.keywords)

    def _is_batch_object(self, name: str) -> bool:
        if self._is_mapping(name) or self._has_attributes(name):
            return True
        indices = self._indices(name)
        return bool(indices) and (len(indices) > 1 or self._is_list(name))

    def _is_list(self, name: str) -> bool:
        """`batch = tuple(t.to(device) for t in batch)`, `x, mask, y = batch`."""
        for read in self._names.get(name, ()):
            parent = self.tree.parent(read)
            if isinstance(parent, ast.comprehension) and parent.iter is read:
                return True
            if isinstance(parent, ast.Assign) and isinstance(parent.targets[0], (ast.Tuple, ast.List)):
                return True
        return False

    # -- what is read of them

    def _after(self, name: str) -> list[ast.Name]:
        """The reads of a variable after the last call of the model."""
        end = self.tree.end(self.statements[self.last])
        return [n for n in self._names.get(name, ()) if self.tree.start(n) > end]

    def _entry(self, read: ast.Name) -> ast.expr | None:
        """The entry that is read there: `outputs.logits`, `batch["labels"]`, `outputs[0]`."""
        parent = self.tree.parent(read)
        if isinstance(parent, ast.Attribute) and parent.value is read and isinstance(parent.ctx, ast.Load):
            called = self.tree.parent(parent)
            return None if isinstance(called, ast.Call) and called.func is parent else parent
        if isinstance(parent, ast.Subscript) and parent.value is read and isinstance(parent.ctx, ast.Load):
            return parent if isinstance(parent.slice, ast.Constant) else None
        return None

    def is_number(self, entry: ast.expr) -> bool:
        """Whether an entry of the output is its loss: by its name, or because one number is taken of it."""
        stated = entry.attr if isinstance(entry, ast.Attribute) else ""
        if isinstance(entry, ast.Subscript) and isinstance(entry.slice, ast.Constant):
            stated = entry.slice.value if isinstance(entry.slice.value, str) else ""
        if stated:
            return bool(_LOSS.search(stated))
        node: ast.AST = entry
        parent = self.tree.parent(node)
        while isinstance(parent, (ast.Attribute, ast.Call)) and not (
            isinstance(parent, ast.Call) and parent.func is not node
        ):
            if isinstance(parent, ast.Attribute) and parent.attr == "item":
                return True
            node, parent = parent, self.tree.parent(parent)
        if isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Name):
            return bool(_LOSS.search(parent.targets[0].id))
        return False

    # -- numbers of the local batch

    def _about_numbers(self, picked: Picked) -> str | None:
        """Why the means of the local batches cannot be averaged over processes; None: they can."""
        reads: list[ast.expr] = [r for p in picked.picks if p.number for r in p.reads]
        named = set[str]()
        for read in reads:
            stmt = self.tree.statement(read)
            if stmt not in self.statements or self._repeats(read, stmt):
                return f"`{text_of(read)}` is a number that the model makes of the local batch"
            if isinstance(stmt, ast.Assign):
                named |= {n for t in stmt.targets for n in target_names(t) if _LOSS.search(n)}
        if not reads and not named:
            return None
        if self._sums_up():
            return "the model's loss is a sum over the local batch"
        reads += [
            n for name in named for n in self._after(name) if not isinstance(self.tree.parent(n), ast.Assign)
        ]
        for read in reads:
            if self._is_weighted(read):
                return f"`{text_of(read)}` is weighted with the size of the local batch"
            stmt = self.tree.statement(read)
            added = stmt.target if isinstance(stmt, ast.AugAssign) else None
            by = samples_divisor(self.script, self.loop, added) if added is not None else None
            if added is not None and by is not None:
                return f"`{text_of(added)}` adds up the means of batches and is divided by {by}"
            if isinstance(stmt, ast.AugAssign) and shown_undivided(
                self.script, self.loop, text_of(stmt.target)
            ):
                return f"`{text_of(stmt.target)}` adds up the means of batches, and larger batches are fewer"
        return None

    def _is_weighted(self, read: ast.expr) -> bool:
        node: ast.AST = read
        for parent in self.tree.ancestors(read):
            if isinstance(parent, ast.stmt):
                return False
            if isinstance(parent, ast.BinOp) and isinstance(parent.op, (ast.Mult, ast.Pow)):
                other = parent.right if parent.left is node else parent.left
                if not isinstance(other, ast.Constant):
                    return True
            node = parent
        return False

    def _sums_up(self) -> bool:
        """Whether some loss of the script is a sum, which a loss that the model returns may be, too."""
        return any(
            is_constant(call_keyword(call, "reduction"), "sum")
            or is_constant(call_keyword(call, "size_average"), False)
            for call in self.script.calls()
        )

    def _repeats(self, read: ast.expr, stmt: ast.stmt) -> bool:
        """Whether a read is in a part of a statement that can run several times, or not at all."""
        for ancestor in self.tree.ancestors(read):
            if ancestor is stmt:
                return not isinstance(stmt, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr))
            if isinstance(
                ancestor, (ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp, ast.Lambda, ast.IfExp)
            ):
                return True
            if isinstance(ancestor, ast.BoolOp):
                return True
        return False

    # -- names

    def _name_them(self, picked: Picked) -> str | None:
        """Assign what is read several times or in inner blocks to a separate variable."""
        scope = self.script.scope_of(self.loop)
        taken: set[str] = set()
        for pick in picked.picks:
            if pick.number:
                continue
            if any(self._asks_item(read) for read in pick.reads):
                return f"`{pick.text}` is a number that the model makes of the local batch"
            stmt = self.tree.statement(pick.reads[0])
            if (
                len(pick.reads) == 1
                and isinstance(stmt, ast.Assign)
                and stmt in self.statements
                and (stmt.value is pick.reads[0] or isinstance(stmt.value, ast.Tuple))
            ):
                continue  # `logits = outputs.logits`
            if any(self.tree.in_fstring(read) for read in pick.reads):
                return f"`{pick.text}` is one process's own where it is shown"
            root = _root_of(pick.reads[0])
            for name in (root, f"all_{root}", f"gathered_{root}"):
                if scope.resolve(name) is None and name not in taken and not hasattr(builtins, name):
                    pick.name = name
                    break
            else:
                return f"`{pick.text}` is made from the local batch"
            taken.add(pick.name)
        return None

    def _measure(self, picked: Picked, others: list[str]) -> None:
        """Take sizes of what is gathered anyway: inputs need not be for theirs."""
        for pick in picked.picks:
            if pick.number or not pick.name or not all(self._asks_size(read) for read in pick.reads):
                continue
            same = [
                p.name for p in picked.picks if p is not pick and p.name and not p.measured and not p.number
            ]
            found = next(iter([*others, *same]), None)
            if found is not None:
                pick.name, pick.measured = found, True

    def _asks_size(self, read: ast.expr) -> bool:
        """`len(x)`, `x.size(0)`, `x.shape[0]`."""
        parent = self.tree.parent(read)
        if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name):
            return parent.func.id == "len"
        if not isinstance(parent, ast.Attribute):
            return False
        outer = self.tree.parent(parent)
        if isinstance(outer, ast.Call) and parent.attr == "size":
            return len(outer.args) == 1 and is_constant(outer.args[0], 0)
        return isinstance(outer, ast.Subscript) and parent.attr == "shape" and is_constant(outer.slice, 0)

    def first_alone(self, names: list[str]) -> str | None:
        """How the first sample is written, where a metric reads that one of a variable: `output.cpu().data[0]`."""
        for name in names:
            for read in self._after(name):
                stmt = self.tree.statement(read)
                node: ast.AST = read
                parent = self.tree.parent(read)
                while isinstance(parent, (ast.Attribute, ast.Call)) and not (
                    isinstance(parent, ast.Call) and parent.func is not node
                ):
                    if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute):
                        squeezed = parent.func.attr == "squeeze" and len(parent.args) == 1
                        if squeezed and is_constant(parent.args[0], 0) and stmt in self.statements:
                            return text_of(parent)
                        if parent.func.attr in ("size", "max", "min", "topk", "sort", "nonzero"):
                            break
                    if isinstance(parent, ast.Attribute) and parent.attr == "shape":
                        break
                    node, parent = parent, self.tree.parent(parent)
                if (
                    isinstance(parent, ast.Subscript)
                    and parent.value is node
                    and is_constant(parent.slice, 0)
                ):
                    if isinstance(stmt, (ast.Assign, ast.AugAssign, ast.Expr)) and stmt in self.statements:
                        return text_of(parent)
        return None

    def _asks_item(self, read: ast.expr) -> bool:
        parent = self.tree.parent(read)
        return isinstance(parent, ast.Attribute) and parent.attr == "item"


def _root_of(entry: ast.expr) -> str:
    """A name for an entry: `logits` of `outputs.logits`, `labels` of `batch["labels"]`, `output_0` of `outputs[0]`."""
    if isinstance(entry, ast.Attribute):
        return entry.attr
    assert isinstance(entry, ast.Subscript)
    assert isinstance(entry.slice, ast.Constant)
    stated = str(entry.slice.value)
    if stated.isidentifier() and not keyword.iskeyword(stated):
        return stated
    return re.sub(r"\W+", "_", f"{text_of(entry.value)}_{stated}").strip("_")
