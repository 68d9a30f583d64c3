"""Lists of what was recorded of batches, and whether their sum is divided by a number that counts those of all.

sum(errors) / len(errors)      local to each process: the means over processes stay what they are
sum(errors) / steps            with `steps = len(dataset) // batch_size`: N times as many as the list is long
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from accelify.analysis.metrics.averages import divisors
from accelify.analysis.metrics.figures import BatchLoop, Place, end_of, plain
from accelify.analysis.metrics.set_numbers import is_set
from accelify.analysis.metrics.undivided import is_shown
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import dotted, names_in, target_names, text_of, walk

# What a list is made before it is summed.
_MADE = frozenset(
    "numpy.array numpy.asarray torch.tensor torch.as_tensor torch.stack torch.Tensor torch.FloatTensor".split()
)
_SUMS = frozenset({"builtins.sum", "numpy.sum", "torch.sum", "math.fsum"})
_NUMBERS = frozenset({"float", "round"})


@dataclass
class Sums:
    """How a list is read: the sums that are divided by the batches, or samples, of all processes, and the other reads.

    Reads that are the same for a list of sums over the processes and a list of means are in neither.
    """

    by_all: list[ast.expr] = field(default_factory=list)
    others: list[ast.expr] = field(default_factory=list)


class RecordedSums:
    """Finds how the lists that a loop fills are read after it.

    Args:
        script: its model.
        loop: over the batches.
    """

    def __init__(self, script: ScriptModel, loop: BatchLoop) -> None:
        self.script, self.tree, self.loop = script, script.tree, loop
        # A number that ends the loop is a number of its rounds, once that has been fixed.
        self.led_by = names_in(loop.test if isinstance(loop, ast.While) else loop.iter)

    def of(self, place: Place) -> Sums:
        """The reads of a list, or of any in a dictionary; none where nothing after the loop is divided so."""
        sums = Sums()
        if self._divides_by_all:
            for read in self._reads(place):
                self._look_at(read, sums)
        return sums

    @cached_property
    def _inside(self) -> set[int]:
        return {id(n) for n in walk(self.loop)}

    @cached_property
    def _divides_by_all(self) -> bool:
        """Whether anything after the loop is divided by a count over all processes."""
        end = end_of(self.tree, self.loop)
        return any(
            self._is_all(node.value if isinstance(node, ast.AugAssign) else node.right)
            for node in self.script.divisions.get(self.script.scope_of(self.loop), ())
            if self.tree.start(node) > end
        )

    def _is_all(self, divisor: ast.expr) -> bool:
        return bool(is_set(self.script, divisor)) and not (
            isinstance(divisor, ast.Name) and divisor.id in self.led_by
        )

    def _reads(self, place: Place) -> Iterator[ast.expr]:
        """What reads the list, under the name that a loop over its dictionary gives it too."""
        wanted = place.text.replace("'", '"')
        for root in self._of_root(place.root):
            if place.text == place.root and not place.whole:
                yield root
                continue
            parent = self.tree.parent(root)
            if isinstance(parent, ast.Subscript) and parent.value is root:
                if (
                    place.whole
                    or not isinstance(parent.slice, ast.Constant)
                    or (text_of(parent).replace("'", '"') == wanted)
                ):
                    yield parent
                continue
            listed = list(self._in_values(root))
            yield from listed or [root]

    def _of_root(self, root: str) -> list[ast.expr]:
        """The reads of a variable outside of the loop, up to where it is made again."""
        scope = self.script.scope_of(self.loop)
        if "." in root:
            return [
                n
                for n in self.tree.nodes(ast.Attribute)
                if n.attr == root.split(".")[-1] and isinstance(n.ctx, ast.Load) and id(n) not in self._inside
                if dotted(n) == root and self.script.scope_of(n).owner_class is scope.owner_class
            ]
        owner = scope.resolve(root)
        reads = self.script.reads(root, owner) if owner is not None else []
        around = {id(self.loop), *(id(n) for n in self.tree.ancestors(self.loop))}
        end = end_of(self.tree, self.loop)
        anew = [
            stmt
            for stmt in self.tree.assigns(root)
            if self.script.scope_of(stmt) is scope and root not in names_in(stmt.value)
        ]
        limits = [
            self.tree.start(stmt)
            for stmt in anew
            if self.tree.start(stmt) > end
            if any(id(s) in around for s in self.tree.block_of(stmt)[2])
        ]
        limit = min(limits, default=self.tree.size)
        # What is before the loop reads what its last run has left, where no other loop fills the name.
        made = [self.tree.start(stmt) for stmt in anew if self.tree.start(stmt) < end]
        begin = max(made, default=-1) if len(anew) > 1 else -1
        return [n for n in reads if id(n) not in self._inside and begin < self.tree.start(n) < limit]

    def _in_values(self, root: ast.expr) -> Iterator[ast.expr]:
        """`values` in `for name, values in found.items()`."""
        attribute = self.tree.parent(root)
        call = self.tree.parent(attribute) if attribute is not None else None
        if not isinstance(attribute, ast.Attribute) or not isinstance(call, ast.Call) or call.args:
            return
        holder = self.tree.parent(call)
        if not isinstance(holder, (ast.For, ast.comprehension)) or holder.iter is not call:
            return
        target: ast.expr | None = holder.target if attribute.attr == "values" else None
        if (
            attribute.attr == "items"
            and isinstance(holder.target, ast.Tuple)
            and len(holder.target.elts) == 2
        ):
            target = holder.target.elts[1]
        around = holder if isinstance(holder, ast.For) else self.tree.parent(holder)
        if isinstance(target, ast.Name) and around is not None:
            for node in walk(around):
                if isinstance(node, ast.Name) and node.id == target.id and isinstance(node.ctx, ast.Load):
                    yield node

    def _look_at(self, read: ast.expr, sums: Sums) -> None:
        parent = self.tree.parent(read)
        if isinstance(parent, ast.Call) and dotted(parent.func) == "len":
            return
        summed = self._summed(read)
        if summed is None:
            sums.others.append(read)
            return
        parent = self.tree.parent(summed)
        while True:
            if (
                isinstance(parent, ast.Call)
                and dotted(parent.func) in _NUMBERS
                and parent.args[:1] == [summed]
            ):
                summed = parent
            elif isinstance(parent, ast.Attribute) and parent.attr == "item":
                call = self.tree.parent(parent)
                if not isinstance(call, ast.Call):
                    break
                summed = call
            elif isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Mult):
                if not isinstance(parent.left if parent.right is summed else parent.right, ast.Constant):
                    break
                summed = parent
            else:
                break
            parent = self.tree.parent(summed)
        if isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Div) and parent.left is summed:
            (sums.by_all if self._is_all(parent.right) else sums.others).append(summed)
            return
        if isinstance(parent, ast.Assign) and len(parent.targets) == 1:
            name = dotted(parent.targets[0])
            by = list(divisors(self.script, self.loop, name)) if name is not None else []
            whole = bool(by) and all(self._is_all(d) for d in by)
            (sums.by_all if whole else sums.others).append(summed)
        elif not is_shown(self.script, summed):
            sums.others.append(summed)

    def _summed(self, node: ast.expr) -> ast.expr | None:
        """The sum that a list is read for: `sum(kept)`, `np.array(kept).sum()`, `sum(one for one in kept)`."""
        parent = self.tree.parent(node)
        if isinstance(parent, ast.comprehension) and parent.iter is node:
            made = self.tree.parent(parent)
            if not isinstance(made, (ast.GeneratorExp, ast.ListComp)) or len(made.generators) > 1:
                return None
            each = plain(made.elt)
            if parent.ifs or not isinstance(each, ast.Name) or [each.id] != list(target_names(parent.target)):
                return None
            return self._summed(made)
        if isinstance(parent, ast.Attribute) and parent.attr == "sum":
            call = self.tree.parent(parent)
            alone = isinstance(call, ast.Call) and call.func is parent and not call.args and not call.keywords
            return call if alone and isinstance(call, ast.Call) else None
        if not isinstance(parent, ast.Call) or parent.args[:1] != [node] or len(parent.args) > 1:
            return None
        known = "builtins.sum" if dotted(parent.func) == "sum" else self.script.qualname(parent.func)
        if known in _MADE:
            return self._summed(parent)
        return parent if known in _SUMS and not parent.keywords else None
