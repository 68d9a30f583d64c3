"""Figures that a training loop makes of its batches: what adds them up, and how the parts of processes go together."""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

from accelify.analysis import values as v
from accelify.analysis.losses.reduction_kinds import MEAN, SUM
from accelify.analysis.losses.reductions import LossReductions
from accelify.analysis.metrics.counts import first_of_shape, shape_of, size_of
from accelify.analysis.script import ScriptModel
from accelify.analysis.statements.assignments import assigned_once
from accelify.analysis.statements.enumerated import is_enumerated
from accelify.analysis.syntax import Tree, dotted, is_constant, names_in, target_names, text_of, walk

BatchLoop = ast.For | ast.AsyncFor | ast.While
_TABLES = frozenset({"numpy.bincount", "torch.bincount", "torch.histc", "sklearn.metrics.confusion_matrix"})
# What of sklearn.metrics is one number for a batch.
_SCORES = re.compile(r"^sklearn\.metrics\.\w+_(score|error|loss)$")
_COUNTING = frozenset({"sum", "nelement", "numel"})
# Shares of a batch by a size that is set, and what they leave of a whole.
SHARE, LEFT = "share", "left"
_FRESH = frozenset(
    "list dict deque defaultdict OrderedDict Counter zeros Tensor FloatTensor tensor empty".split()
)


class Place(NamedTuple):
    """The place of a figure: a variable, an attribute of `self` or an entry of a dictionary.

    `text` is how it is written, `root` the variable that holds it. `whole`: a dictionary, of which some entry is meant.
    """

    text: str
    root: str
    whole: bool = False


def place_of(script: ScriptModel, node: ast.expr) -> Place | None:
    """The place that a target represents; None for what is none of these."""
    if isinstance(node, ast.Name):
        return Place(node.id, node.id)
    if isinstance(node, ast.Attribute):
        own = script.scope_of(node).self_name()
        if isinstance(node.value, ast.Name) and node.value.id == own:
            return Place(text_of(node), text_of(node))
        return None
    if isinstance(node, ast.Subscript):
        base = place_of(script, node.value)
        if base is None or isinstance(node.value, ast.Subscript):
            return None
        if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
            return Place(script.tree.segment(node), base.root)
        if isinstance(node.slice, ast.Name):
            return Place(base.text, base.root, whole=True)
    return None


_OF_LOOPS = frozenset({ast.Call, ast.Assign, ast.For, ast.AsyncFor})


class Figures:
    """Answers what a value that a loop adds up or collects is made of.

    Args:
        script: its model.
        reductions: how its losses are reduced.
    """

    def __init__(self, script: ScriptModel, reductions: LossReductions) -> None:
        self.script = script
        self.tree = script.tree
        self.reductions = reductions
        self._of_batches: dict[BatchLoop, frozenset[str]] = {}

    def kind(self, value: ast.expr) -> str | None:
        """`sum` for what counts or adds over samples, `mean` for an average per batch, None for plain counters."""
        return self._kind(value, 0)

    def _kind(self, value: ast.expr, depth: int) -> str | None:
        if isinstance(value, ast.Constant):
            return None
        if self.is_part_of_mean(value):
            return "mean" if self._kind(value.left, depth + 1) is not None else None  # type: ignore[attr-defined]
        if self._is_score(plain(beside_a_number(plain(value)) or value)):
            return "mean"
        if any(self._counts(node) for node in walk(value)):
            if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Div) and not self.is_loss(value):
                # Hits of a batch over its size.
                whole = (
                    self._kind(value.left, depth + 1) == "sum" and self._kind(value.right, depth + 1) == "sum"
                )
                return "mean" if whole else None
            return self._of_shares(value, depth)
        if self.is_loss(value):
            if self._is_weighted(value):
                return "sum"
            loss = loss_inside(value)
            return "sum" if loss is not None and self.reductions.of(loss) == SUM else "mean"
        inner = plain(value)
        if isinstance(inner, ast.Name) and depth < 4:
            made = self.made_in_loop(inner)
            if made is None:
                return None
            part = self._part(inner, made)
            return self._kind(made, depth + 1) if part is None else self._of_parts(made, part, inner, depth)
        if isinstance(inner, ast.Call):
            last = inner.func.attr if isinstance(inner.func, ast.Attribute) else ""
            if last == "mean" and not inner.args:
                return "mean"
            if self.script.qualname(inner.func) in ("numpy.mean", "torch.mean") and len(inner.args) == 1:
                return "mean"
            return self._of_functions(inner)
        return None

    def _is_score(self, value: ast.expr) -> bool:
        """`accuracy_score(y, predicted)`: one number for a batch, where it is asked for no other."""
        if not isinstance(value, ast.Call) or not _SCORES.search(self.script.qualname(value.func) or ""):
            return False
        asked = ("average", "multioutput", "normalize")
        return not any(
            kw.arg in asked and is_constant(kw.value, None, False, "raw_values") for kw in value.keywords
        )

    def _of_shares(self, value: ast.expr, depth: int) -> str:
        """`1 - wrong.sum() / len(x)` and `100 * (hits.sum() / len(x))` are means as their shares are."""
        if self.is_loss(value):
            return "sum"
        inner = plain(value)
        other = beside_a_number(inner)
        if other is not None and self._kind(other, depth + 1) == "mean":
            return "mean"
        return "mean" if self.share_of_set_size(inner) == LEFT else "sum"

    def share_of_set_size(self, value: ast.expr) -> str | None:
        """`share` for `hits.sum() / size` with a size that no batch sets, `left` for `1 - wrong.sum() / size`.

        Where several processes have their parts of one batch, such shares add up, but not what they leave.
        """
        for _ in range(4):
            value = plain(value)
            made = self.made_in_loop(value) if isinstance(value, ast.Name) else None
            if made is None:
                break
            value = made
        other = beside_a_number(value)
        if other is not None and isinstance(value, ast.BinOp):
            share = self.share_of_set_size(other)
            return LEFT if share and not isinstance(value.op, ast.Mult) else share
        if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Div) or self.is_loss(value):
            return None
        sized = not any(self._counts(n) for n in walk(value.right)) and self.script.is_uniform(value.right)
        return SHARE if sized and self._adds_up(value.left) else None

    def _adds_up(self, value: ast.expr) -> bool:
        """`hits.sum().item()`, `torch.sum(hits)`, `100 * hits.sum()`: one number, which is added up over a batch."""
        inner = plain(value)
        inner = beside_a_number(inner, ast.Mult) or inner
        inner = plain(inner)
        if not isinstance(inner, ast.Call) or inner.keywords:
            return False
        last = inner.func.attr if isinstance(inner.func, ast.Attribute) else ""
        if last == "sum" and self.script.qualname(inner.func) is None:
            return not inner.args
        named = dotted(inner.func) == "sum" or self.script.qualname(inner.func) in ("torch.sum", "numpy.sum")
        return named and len(inner.args) == 1

    def is_part_of_mean(self, value: ast.expr) -> bool:
        """`loss / len(loader)`: the parts of all batches of one process add up to its mean."""
        return (
            isinstance(value, ast.BinOp)
            and isinstance(value.op, ast.Div)
            and isinstance(value.right, ast.Call)
            and dotted(value.right.func) == "len"
            and len(value.right.args) == 1
            and bool(self.script.entities(value.right.args[0], v.LOADER))
        )

    def _is_weighted(self, value: ast.expr) -> bool:
        """`loss.item() * n` with a number that each batch makes again: its tokens, whatever it is called."""
        if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Mult):
            return False
        sides = (value.left, value.right)
        return any(self.is_loss(side) for side in sides) and any(
            not self.is_loss(side) and not self.script.is_uniform(side) and not self._is_stored(side)
            for side in sides
        )

    def _is_stored(self, value: ast.expr) -> bool:
        """Whether a number was there before the loop around it, and is read off as it is: `weights["style"]`."""
        root = value
        while isinstance(root, ast.Subscript) and isinstance(root.slice, ast.Constant):
            root = root.value
        loops = self.script.enclosing_loops(value)
        if not isinstance(root, ast.Name) or not loops:
            return False
        filled = [
            node
            for node in self.tree.nodes(ast.Subscript)
            if isinstance(node.ctx, ast.Store) and text_of(node.value) == root.id
        ]
        stores = [*self.tree.writes(root.id), *filled]
        return not any(self.tree.is_within(store, loops) for store in stores)

    def _of_functions(self, value: ast.expr) -> str | None:
        """What the program's functions, and torch's losses, compute from a batch."""
        return {MEAN: "mean", SUM: "sum"}.get(self.reductions.of(value))

    def _part(self, name: ast.Name, made: ast.expr) -> int | None:
        """Which of the values that a call returns a name is; None where it is all of them."""
        stmt = self.tree.parent(made)
        for target in stmt.targets if isinstance(stmt, ast.Assign) and isinstance(made, ast.Call) else ():
            if isinstance(target, ast.Tuple):
                names = [e.id if isinstance(e, ast.Name) else "" for e in target.elts]
                return names.index(name.id) if name.id in names else None
        return None

    def _of_parts(self, call: ast.expr, index: int, name: ast.Name, depth: int) -> str | None:
        """What one of the values is that the program's functions return together, under a name."""
        assert isinstance(call, ast.Call)
        found: set[str | None] = set()
        for callee in self.script.callees(call):
            for stmt in callee.nodes:
                if isinstance(stmt, ast.Return) and isinstance(stmt.value, ast.Tuple):
                    value = stmt.value.elts[index] if index < len(stmt.value.elts) else None
                    made = assigned_once(callee, value) if value is not None else None
                    kind = self._kind(made, depth + 1) if made is not None else None
                    found.add(kind or (self._of_functions(made) if made is not None else None))
        if not found:
            return self._of_functions(name)  # a criterion's, or of another module
        return found.pop() if len(found) == 1 else None

    def made_in_loop(self, name: ast.Name) -> ast.expr | None:
        """What a name is assigned in the loops next around it, where that is once."""
        for loop in self.script.enclosing_loops(name)[:2]:
            found = [
                stmt.value
                for stmt in walk(loop)
                if isinstance(stmt, ast.Assign) and any(name.id in target_names(t) for t in stmt.targets)
            ]
            if len(found) == 1 and name.id not in names_in(found[0]):
                return found[0]
            if found:
                break
        return None

    def _counts(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Name):
            return self.is_batch_size(node)
        if isinstance(node, ast.Attribute):
            return node.attr in ("size", "shape", "numel")
        if not isinstance(node, ast.Call):
            return False
        if dotted(node.func) in ("len", "sum"):
            return True
        if isinstance(node.func, ast.Attribute) and node.func.attr in _COUNTING:
            return True
        return self.script.qualname(node.func) in ("torch.sum", "numpy.sum")

    def is_batch_size(self, name: ast.Name) -> bool:
        """Whether a name is the size of the current batch: `n = x.size(0)` in the loops around it."""
        values = [
            first_of_shape(stmt, name.id) or stmt.value
            for loop in self.script.enclosing_loops(name)
            for stmt in walk(loop)
            if isinstance(stmt, ast.Assign) and any(name.id in target_names(t) for t in stmt.targets)
        ]
        return bool(values) and all(size_of(value) is not None for value in values)

    def is_loss(self, value: ast.expr) -> bool:
        """Whether an expression reads a loss."""
        losses = {b.loss.id for b in self.script.backwards if isinstance(b.loss, ast.Name)}
        names = names_in(value)
        return bool(names & losses) or any("loss" in n.lower() for n in names)

    def of_the_batch(self, loop: BatchLoop) -> frozenset[str]:
        """The names in a loop that hold what is made of its batch, sizes aside."""
        known = self._of_batches.get(loop)
        if known is None:
            known = self._of_batches[loop] = frozenset(self._made_of_batch(loop))
        return known

    def _made_of_batch(self, loop: BatchLoop) -> set[str]:
        found: set[str] = set()
        nodes = [n for n in walk(loop) if type(n) in _OF_LOOPS]
        drawing = {id(n) for n in nodes if isinstance(n, ast.Call) and draws(n)}
        # Bars and counters have a `next` too, and a second stream does not change the loop's batch.
        if not isinstance(loop, ast.While) and (not drawing or self.script.iterated(loop.iter)):
            found = set(target_names(loop.target))
            if isinstance(loop.target, ast.Tuple) and is_enumerated(self.script, loop.iter):
                found -= set(target_names(loop.target.elts[0]))
        if drawing:
            for stmt in nodes:
                if isinstance(stmt, ast.Assign) and any(id(n) in drawing for n in walk(stmt.value)):
                    found |= {n for t in stmt.targets for n in target_names(t)}
        # A loss of samples that are made of noise, which differs between processes too.
        inside = set(nodes)
        losses = [b.loss for b in self.script.backwards if b.call in inside]
        found |= {loss.id for loss in losses if isinstance(loss, ast.Name)}
        for _ in range(3):
            before = len(found)
            for stmt in nodes:
                if isinstance(stmt, ast.Assign) and names_in(stmt.value) & found:
                    if size_of(stmt.value) is None and shape_of(stmt.value) is None:
                        found |= {n for t in stmt.targets for n in target_names(t)}
                elif isinstance(stmt, (ast.For, ast.AsyncFor)) and stmt is not loop:
                    if names_in(stmt.iter) & found and not _counts_off(stmt.iter):
                        found |= set(target_names(stmt.target))
            if len(found) == before:
                break
        return found

    def starts_over(self, loop: BatchLoop, place: Place) -> bool:
        """Whether a place is set to nothing before each run of the loop, in the same block or function."""
        return self.made_before(loop, place) is not None

    def made_before(self, loop: BatchLoop, place: Place) -> ast.stmt | None:
        """The statement before a loop, in its block or one around it, that makes the place again."""
        node: ast.AST = loop
        while True:
            block: list[ast.stmt] = self.tree.block_of(node)[2]
            for stmt in reversed(block[: next(i for i, s in enumerate(block) if s is node)]):
                for inner in walk(stmt):
                    if isinstance(inner, (ast.Name, ast.Attribute, ast.Subscript)):
                        if isinstance(inner.ctx, ast.Store) and self._is(inner, place):
                            return stmt
            parent = self.tree.parent(node)
            if not isinstance(parent, (ast.With, ast.Try, ast.If)):
                return None
            node = parent

    def _is(self, node: ast.expr, place: Place) -> bool:
        if isinstance(node, ast.Name):
            return node.id == place.root
        text = text_of(node)
        return text in (place.root, text_of(ast.parse(place.text, mode="eval").body))

    def is_read_after(self, loop: BatchLoop, place: Place) -> bool:
        """Whether a place is read once the loop is over; an attribute also by other methods."""
        end = end_of(self.tree, loop)
        if "." not in place.root:
            scope = self.script.scope_of(loop).resolve(place.root)
            if scope is None:
                return False
            return any(self.tree.start(n) > end for n in self.script.reads(place.root, scope))
        own = self.script.scope_of(loop).owner_class
        inside = {id(n) for n in walk(loop)}
        return any(
            isinstance(node.ctx, ast.Load)
            and id(node) not in inside
            and dotted(node) == place.root
            and self.script.scope_of(node).owner_class is own
            for node in self.tree.nodes(ast.Attribute)
        )

    def runs_everywhere(self, node: ast.AST, loop: ast.stmt) -> bool:
        """Whether every process reaches a node of a loop in the same rounds."""
        for ancestor in self.tree.ancestors(node):
            if ancestor is loop:
                return True
            if isinstance(ancestor, (ast.For, ast.AsyncFor, ast.While, ast.Try, ast.FunctionDef, ast.Lambda)):
                return False
            if isinstance(ancestor, ast.If) and not self.script.is_uniform(ancestor.test):
                return False
        return False


def beside_a_number(value: ast.expr, *operators: type[ast.operator]) -> ast.expr | None:
    """What a number is added to, multiplied by or taken from: `x` of `1 - x` and of `x * 100`."""
    if not isinstance(value, ast.BinOp):
        return None
    if not isinstance(value.op, operators or (ast.Add, ast.Sub, ast.Mult)):
        return None
    for number, other in ((value.left, value.right), (value.right, value.left)):
        if isinstance(number, ast.Constant) and isinstance(number.value, (int, float)):
            return other
    return None


def plain(value: ast.expr) -> ast.expr:
    """What is made a number in `x.item()`, `x.data[0]`, `float(x)`, `x.cpu().numpy()`."""
    while True:
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
            if value.func.attr not in ("item", "cpu", "numpy", "detach", "float", "double", "tolist", "data"):
                return value
            value = value.func.value
        elif isinstance(value, ast.Call) and dotted(value.func) in ("float", "int") and len(value.args) == 1:
            value = value.args[0]
        elif isinstance(value, ast.Subscript) and isinstance(value.value, ast.Attribute):
            value = value.value
        elif not isinstance(value, ast.Attribute) or value.attr != "data":
            return value
        else:
            value = value.value


def _counts_off(iterated: ast.expr) -> bool:
    """`range(len(batch))`: numbers that say nothing of a batch but its size."""
    return isinstance(iterated, ast.Call) and dotted(iterated.func) in ("range", "trange")


def is_table(script: ScriptModel, value: ast.expr) -> bool:
    """`np.bincount(...)`, `confusion_matrix(...)`: counts of a batch, a number for each kind of sample."""
    return isinstance(value, ast.Call) and script.qualname(value.func) in _TABLES


def draws(call: ast.Call) -> bool:
    """`next(iterator)`, `iterator.next()`."""
    last = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return last in ("next", "__next__")


def end_of(tree: Tree, loop: BatchLoop) -> int:
    """Where the rounds of a loop end; its `else` comes after them."""
    return tree.end(loop.body[-1])


def is_afterwards(tree: Tree, node: ast.AST, loop: BatchLoop) -> bool:
    """Whether a node comes when the rounds of a loop have ended."""
    return tree.is_after(node, loop.body[-1])


def head_of(loop: BatchLoop) -> ast.expr:
    """What a finding about a loop points at."""
    return loop.test if isinstance(loop, ast.While) else loop.iter


def loss_inside(value: ast.expr) -> ast.Name | None:
    """The tensor of `loss.item()`, `loss.data[0]`, `float(loss)`."""
    node: ast.expr = value
    while True:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            node = node.func.value
        elif isinstance(node, ast.Call) and dotted(node.func) == "float" and node.args:
            node = node.args[0]
        elif (isinstance(node, ast.Attribute) and node.attr == "data") or isinstance(node, ast.Subscript):
            node = node.value
        elif isinstance(node, ast.BinOp):
            node = node.left
        else:
            return node if isinstance(node, ast.Name) else None


def is_fresh(value: ast.expr) -> bool:
    """Whether an expression makes something empty, or a number to add to."""
    if isinstance(value, (ast.List, ast.Dict, ast.Constant)):
        return True
    if isinstance(value, (ast.Tuple, ast.DictComp, ast.ListComp)):
        return True
    return isinstance(value, ast.Call) and (dotted(value.func) or "").rsplit(".", 1)[-1] in _FRESH
