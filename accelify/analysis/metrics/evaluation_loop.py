"""A loop that evaluates, with what becomes of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from accelify.analysis import values as v
from accelify.analysis.data.gathered_entries import Picked
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import is_constant, names_in, target_names, walk
from accelify.analysis.values import Entity

NO_MODEL = "no call of a model was seen in it"
# Methods that put their argument into a list, a set or a dictionary.
_FILLING = frozenset({"append", "extend", "add", "update", "insert", "appendleft"})
# Methods and attributes of a tensor that give its numbers, in another place or form.
_SAME_NUMBERS = frozenset({"clone", "cpu", "data", "detach", "double", "float", "numpy"})


@dataclass(eq=False)
class EvaluationLoop:
    """A loop over a loader in which nothing is trained.

    Where `problem` is None the loader can be sharded if `gathered` (names of per-sample tensors) is gathered after the
    statement `after`, or the expressions `inline` are gathered where they are.
    """

    loop: ast.For | ast.AsyncFor
    loaders: set[Entity]
    after: ast.stmt | None = None
    gathered: list[str] = field(default_factory=list)
    inline: list[ast.expr] = field(default_factory=list)
    before: ast.stmt | None = None
    # Sizes of the batch that are taken again from what was gathered: name, and the expression that they are.
    sizes: list[tuple[str, ast.expr]] = field(default_factory=list)
    # Entries of objects that contain tensors, gathered after `after` or where they are read.
    picked: Picked = field(default_factory=Picked)
    problem: str | None = None
    # Nothing is stored beyond the loop (shapes printed, one batch shown): there is no metric in it.
    only_looks: bool = False
    # Several processes leave out an incomplete group of whole batches, where a loader drops its last batch.
    loses_batches: bool = False

    @property
    def gathered_nodes(self) -> list[ast.expr]:
        """The expressions that are gathered where they are."""
        return [*self.inline, *self.picked.nodes]

    @property
    def collects(self) -> bool:
        """Whether what it stores are results: without a model it may collect batches for later."""
        return self.problem != NO_MODEL

    @property
    def fetches_one(self) -> bool:
        """Whether it ends with its first batch, which is as large on every process as it was."""
        return self.problem == NO_MODEL and isinstance(self.loop.body[-1], ast.Break)


def flat(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of a loop, those under a plain `with` (no_grad, autocast) as if they were in the loop itself."""
    for stmt in body:
        if isinstance(stmt, (ast.With, ast.AsyncWith)):
            yield from flat(stmt.body)
        else:
            yield stmt


def counts_rounds(stmt: ast.AugAssign) -> bool:
    """`batches += 1`, which is the same before and after the model: it reads nothing of the batch."""
    return isinstance(stmt.target, ast.Name) and is_constant(stmt.value, 1)


def names_read_first(statements: list[ast.stmt]) -> set[str]:
    """Names read in a loop body before they are assigned there: what an iteration takes over from the one before."""
    assigned: set[str] = set()
    read: set[str] = set()
    for stmt in statements:
        loads = {n.id for n in walk(stmt) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        read |= loads - assigned
        assigned |= {n.id for n in walk(stmt) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return read


def names_of_batch(loop: ast.For | ast.AsyncFor) -> set[str]:
    """The names that a loop has for its batch, without the number of the round that `enumerate` gives."""
    made = set(target_names(loop.target))
    if isinstance(loop.iter, ast.Call) and isinstance(loop.iter.func, ast.Name):
        if loop.iter.func.id == "enumerate" and isinstance(loop.target, ast.Tuple):
            made -= set(target_names(loop.target.elts[0]))
    return made


def filled_from(statements: list[ast.stmt], made: set[str]) -> set[str]:
    """The names that hold something of others: they themselves, and lists that they or items of them are put in."""
    found, size, items = set(made), -1, set[str]()
    while size < len(found):
        size = len(found)
        for node in (n for stmt in statements for n in walk(stmt)):
            if isinstance(node, ast.For) and names_in(node.iter) & found:
                items.update(set(target_names(node.target)) - found)
                found |= items
            elif isinstance(node, ast.Assign) and names_in(node.value) & found:
                for target in node.targets:
                    base = target.value if isinstance(target, ast.Subscript) else target
                    found.update(target_names(base))
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                given = [*node.args, *[kw.value for kw in node.keywords]]
                if node.func.attr in _FILLING and any(names_in(one) & found for one in given):
                    found.update(target_names(node.func.value))
    # The names of items are bound again by whatever loop comes next.
    return found - items


def reduces(script: ScriptModel, value: ast.expr) -> bool:
    """Whether an expression takes a loss or a mean of the model's output at once, or turns it into a number."""
    for node in walk(value):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr in ("item", "mean", "tolist", "numpy"):
                return True
            if script.is_a(node.func, v.CRITERION):
                return True
            name = script.qualname(node.func) or ""
            if name.endswith(("_loss", "cross_entropy")):
                return True
    return False


def addend(value: ast.expr, sums: dict[str, str]) -> str | None:
    """Which of some names a sum is made of; of `2 * name` too."""
    queue = [value]
    while queue:
        part = queue.pop()
        if isinstance(part, ast.Name) and part.id in sums:
            return sums[part.id]
        if isinstance(part, ast.BinOp) and isinstance(part.op, (ast.Add, ast.Sub)):
            queue += [part.right, part.left]
        elif isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mult):
            queue += [part.right] if isinstance(part.left, ast.Constant) else []
    return None


def taken_as_number(node: ast.AST) -> ast.expr | None:
    """The tensor of `x.item()`, `float(x.detach().cpu())`, `x.data[0]`."""
    taken: ast.expr | None = None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "item":
        taken = node.func.value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "float":
        taken = node.args[0] if len(node.args) == 1 else None
    if (
        isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Attribute)
        and node.value.attr == "data"
    ):
        taken = node.value
    return unmoved(taken) if taken is not None else None


def unmoved(value: ast.expr) -> ast.expr:
    """What is written in front of methods that give the same numbers: `x` of `x.detach().cpu().data`."""
    while True:
        method = value.func if isinstance(value, ast.Call) else value
        if not isinstance(method, ast.Attribute) or method.attr not in _SAME_NUMBERS:
            return value
        value = method.value
