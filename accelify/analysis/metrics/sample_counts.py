"""Counts of the samples that a training loop has seen, by which something is decided: `seen += batch_size`.

if left <= 0: evaluate()           of `left -= len(x)`, that go down
epoch = seen // len(data_set)      from which a run goes on
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import NamedTuple

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.metrics.additions import addition
from accelify.analysis.metrics.counts import size_of
from accelify.analysis.metrics.figures import BatchLoop, Figures
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.statements.enumerated import counter_of
from accelify.analysis.syntax import Tree, dotted, is_constant, names_in, walk

_COMPARED = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq)
_ROUNDING = frozenset({"float", "int", "max", "min", "round"})
WEIGHT, SHARE = "weight", "share"
# How many names a count is followed through, and how far into functions.
_FARTHEST = 3


class SampleCount(NamedTuple):
    """A statement that counts samples, by what it adds for each batch.

    `nominal` is whether that is the configured size of a batch and not that of the current batch; `limits` are what the
    count is compared with; `is_total` is whether every other read of it means the samples of all processes as well.
    """

    stmt: ast.stmt
    name: str
    added: ast.expr
    nominal: bool
    limits: tuple[ast.expr, ...]
    is_total: bool = False


class SampleCounts:
    """Finds the counts of samples of loops over batches.

    Args:
        script: its model.
        figures: of its loops.
    """

    def __init__(self, script: ScriptModel, figures: Figures) -> None:
        self.script, self.figures = script, figures
        self._reads: dict[str, list[ast.Name]] | None = None

    def found(self, loops: list[BatchLoop]) -> Iterator[SampleCount]:
        """Those that go up once for each batch of some loops, and are compared with something that does not.

        Also those that go on from such a one: `total = epoch * len(data) + seen`.
        """
        counts = list(self._counts(loops))
        deciding = {count.name for count in counts if count.limits}
        for count in counts if deciding else ():
            if count.limits or any(
                names_in(stmt.value) & (deciding - {count.name})
                for stmt in self.script.tree.assigns(count.name)
            ):
                owner = self.script.scope_of(count.stmt).resolve(count.name)
                whole = owner is not None and self._means_all(count.name, owner, count.stmt)
                yield count._replace(is_total=whole)
        yield from self._of_attributes(loops)

    def _of_attributes(self, loops: list[BatchLoop]) -> Iterator[SampleCount]:
        """Counts that a class stores, `self.seen += len(x)`: other readers of them are not followed."""
        tree, script = self.script.tree, self.script
        for stmt in tree.nodes(ast.AugAssign):
            target, cls = stmt.target, script.scope_of(stmt).owner_class
            if not isinstance(target, ast.Attribute) or not isinstance(stmt.op, ast.Add) or cls is None:
                continue
            nominal = self._is_nominal(stmt.value)
            if not nominal and not self._is_own(stmt.value):
                continue
            loop = next(iter(script.enclosing_loops(stmt)), None)
            if loop is None or dotted(target.value) != script.scope_of(stmt).self_name():
                continue
            limits = [
                limit
                for read in tree.nodes(ast.Attribute)
                if read.attr == target.attr and isinstance(read.ctx, ast.Load)
                if script.scope_of(read).owner_class is cls
                if dotted(read.value) == script.scope_of(read).self_name()
                for limit in self._limits(read, loop)
            ]
            if limits and loop in loops:
                yield SampleCount(stmt, dotted(target) or "", stmt.value, nominal, tuple(limits))

    def _counts(self, loops: list[BatchLoop]) -> Iterator[SampleCount]:
        for stmt in self.script.tree.nodes(ast.AugAssign, ast.Assign):
            target, added = addition(stmt)
            down = isinstance(stmt, ast.AugAssign) and isinstance(stmt.op, ast.Sub)
            if down:
                target, added = stmt.target, stmt.value
            name = target.id if isinstance(target, ast.Name) else None
            if name is None or added is None:
                continue
            nominal = self._is_nominal(added)
            if not nominal and not self._is_own(added):
                continue
            loop = next((one for one in self.script.enclosing_loops(stmt) if one in loops), None)
            scope = self.script.scope_of(stmt)
            owner = scope.resolve(name)
            if loop is None or owner is None or self.script.enclosing_loops(stmt)[0] is not loop:
                continue
            reads = self._reads_of(name, owner)
            limits = [limit for read in reads for limit in self._limits(read, loop, down)]
            limits += [data for read in reads if (data := self._epochs_of(read)) is not None]
            if down and not any(map(_is_zero, limits)):
                continue
            yield SampleCount(stmt, name, added, nominal, tuple(limits))

    def _reads_of(self, name: str, owner: Scope) -> list[ast.Name]:
        """Every read of a variable of a scope."""
        if self._reads is None:
            self._reads = {}
            for node in self.script.tree.nodes(ast.Name):
                if isinstance(node.ctx, ast.Load):
                    self._reads.setdefault(node.id, []).append(node)
        return [n for n in self._reads.get(name, ()) if self.script.scope_of(n).resolve(name) is owner]

    def _is_nominal(self, added: ast.expr) -> bool:
        """`batch_size`, `args.batch_size`, where that is no name for the size of the current batch."""
        if isinstance(added, ast.Name):
            return bool(k.BATCH_SIZE_NAME.search(added.id)) and not self.figures.is_batch_size(added)
        return isinstance(added, ast.Attribute) and bool(k.BATCH_SIZE_NAME.search(added.attr))

    def _is_own(self, added: ast.expr) -> bool:
        """`x.size(0)`, `len(x)` of the batch, or a name for it."""
        if isinstance(added, ast.Name):
            return self.figures.is_batch_size(added)
        measured = size_of(added)
        return measured is not None and any(
            isinstance(n, ast.Name) and n.id == measured and self.script.is_a(n, "batch", "tensor")
            for n in walk(added)
        )

    def _epochs_of(self, read: ast.Name) -> ast.expr | None:
        """The `len(data_set)` of `epoch = seen // len(data_set)`, by which a run that goes on knows its epoch."""
        tree = self.script.tree
        share = tree.parent(read)
        if not isinstance(share, ast.BinOp) or not isinstance(share.op, ast.FloorDiv):
            return None
        total, stmt = share.right, tree.parent(share)
        if share.left is not read or not isinstance(stmt, ast.Assign) or not isinstance(total, ast.Call):
            return None
        counted = dotted(total.func) == "len" and len(total.args) == 1
        return total if counted and self.script.is_a(total.args[0], v.DATASET) else None

    def _limits(self, read: ast.expr, loop: BatchLoop, down: bool = False) -> Iterator[ast.expr]:
        """What a count is compared with in a test, unless that is a count of the loop's as well; one that goes down
        also with nothing left."""
        tree = self.script.tree
        compare = tree.parent(read)
        if isinstance(compare, ast.BinOp) and isinstance(compare.op, (ast.Add, ast.Sub)):
            compare = tree.parent(compare)  # `seen + batch_size > limit`
        if not isinstance(compare, ast.Compare) or len(compare.ops) != 1:
            return
        if not isinstance(compare.ops[0], _COMPARED):
            return
        other = compare.comparators[0] if read in walk(compare.left) else compare.left
        stmt = tree.statement(compare)
        if not isinstance(stmt, (ast.If, ast.While)) or all(n is not compare for n in walk(stmt.test)):
            return
        if (down or not is_constant(other, 0)) and not names_in(other) & {
            counter_of(self.script, loop),
            *_counted_in(loop),
        }:
            yield other

    def _means_all(self, name: str, owner: Scope, adding: ast.stmt) -> bool:
        """Whether a count can be that of all processes wherever it is read: nothing of one process is divided by it."""
        queue, seen = [(name, owner, 0)], set[tuple[str, Scope]]()
        tree = self.script.tree
        for one, scope, far in queue:  # which grows
            if (one, scope) in seen:
                continue
            seen.add((one, scope))
            for read in self._reads_of(one, scope):
                stmt = tree.statement(read)
                if stmt is adding:
                    continue
                use = _use(tree, read, self.script.is_uniform)
                if use == WEIGHT or isinstance(stmt, (ast.Return, ast.AugAssign)):
                    return False
                if any(isinstance(n, (ast.Yield, ast.Lambda)) for n in tree.ancestors(read)):
                    return False
                for call in (n for n in tree.ancestors(read) if isinstance(n, ast.Call)):
                    if not self._is_only_passed(call, read):
                        return False
                if isinstance(stmt, ast.Assign) and use != SHARE:
                    for target in stmt.targets:
                        home = self.script.scope_of(stmt).resolve(dotted(target) or "")
                        if not isinstance(target, ast.Name) or home is None or far >= _FARTHEST:
                            return False
                        queue.append((target.id, home, far + 1))
        return True

    def _is_only_passed(self, call: ast.Call, read: ast.Name) -> bool:
        """Whether no function of the program that a call runs divides or multiplies by that argument."""
        for callee in self.script.callees(call):
            names = callee.positional()[1 if callee.self_name() is not None else 0 :]
            given = {
                names[i] if i < len(names) else ""
                for i, argument in enumerate(call.args)
                if read in walk(argument)
            }
            given |= {kw.arg or "" for kw in call.keywords if read in walk(kw.value)}
            for node in callee.nodes:
                if isinstance(node, ast.Name) and node.id in given:
                    tree = self.script.interpreter.module_of(callee).tree
                    weighs = _use(tree, node, lambda _: False) == WEIGHT
                    if weighs or isinstance(tree.parent(node), ast.Return):
                        return False
        return True


def _is_zero(limit: ast.expr) -> bool:
    return is_constant(limit, 0)


def _counted_in(loop: BatchLoop) -> Iterator[str]:
    """What goes up in a loop: `step += 1`, `seen += len(x)`."""
    for node in walk(loop):
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
            name = dotted(node.target)
            if name is not None:
                yield name


def _use(tree: Tree, read: ast.expr, is_uniform: Callable[[ast.expr], bool]) -> str:
    """What a number is read for: "weight" where something of one process is multiplied with it, or divided by it;
    "share" where a part of something else is made of it, as in `seen / limit`, or it is tested; "" elsewhere."""
    node: ast.AST = read
    while (parent := tree.parent(node)) is not None:
        if isinstance(parent, ast.BinOp):
            other = parent.left if parent.right is node else parent.right
            divides = isinstance(parent.op, (ast.Div, ast.FloorDiv)) and other is parent.left
            if (divides or isinstance(parent.op, ast.Mult)) and not is_uniform(other):
                return WEIGHT
            if isinstance(parent.op, ast.Mod):
                return SHARE
            scales = isinstance(parent.op, (ast.Mult, ast.Div, ast.FloorDiv)) and not divides
            if scales and not isinstance(other, ast.Constant) and not _is_of_batches(other):
                return SHARE
        elif isinstance(parent, ast.Compare):
            return SHARE
        elif isinstance(parent, ast.Call):
            if dotted(parent.func) not in _ROUNDING:
                return ""
        elif not isinstance(parent, (ast.UnaryOp, ast.IfExp)):
            weighs = isinstance(parent, ast.AugAssign) and not isinstance(parent.op, (ast.Add, ast.Sub))
            return WEIGHT if weighs else ""
        node = parent
    return ""


def _is_of_batches(number: ast.expr) -> bool:
    """Whether the size of a batch is in a number: samples over it are batches, of one process or of all."""
    return any(k.BATCH_SIZE_NAME.search(name) for name in map(_name, walk(number)) if name)


def _name(node: ast.AST) -> str:
    return str(getattr(node, "attr", "") or getattr(node, "id", ""))
