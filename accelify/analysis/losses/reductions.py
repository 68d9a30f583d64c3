"""Whether a loss is averaged or summed over the samples of a batch.

The update on several processes is the original's only if that is known: gradients are averaged over ranks, which is
right for an averaged loss and N times too small for a summed one.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.interpretation.torch_calls import reduction_of
from accelify.analysis.losses.batch_degrees import BatchDegrees
from accelify.analysis.losses.contained_losses import ContainedLosses, SlotValue
from accelify.analysis.losses.penalties import is_penalty
from accelify.analysis.losses.reduction_kinds import (
    MEAN,
    MIXED,
    NEUTRAL,
    PENALTY,
    SUM,
    UNCLEAR,
    either,
    together,
)
from accelify.analysis.losses.running_sums import adds_samples
from accelify.analysis.losses.sum_calls import (
    BATCH_SIZE,
    CLASSES,
    CURVES,
    PASSING,
    Place,
    divides_by,
    is_averaged,
    keeps_samples,
    lies_at_hand,
    stands_beside,
    sums_samples,
)
from accelify.analysis.losses.zero_terms import is_nothing
from accelify.analysis.metrics.counts import size_given
from accelify.analysis.models.alternatives import classes_of, run_by
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.statements.branches import constants_of, constants_of_object, returned
from accelify.analysis.statements.reaching_assignments import made_of
from accelify.analysis.statements.returned_parts import parts_of
from accelify.analysis.syntax import dotted, is_constant, walk
from accelify.analysis.values import Entity, Function, Imported

_DEEPEST = 16
_FARTHEST_FACTOR = 6


@dataclass(eq=False)
class Averaging:
    """What a loss, or its weights, are divided by, and the calls that average it, with the scopes they are in."""

    divisors: dict[ast.expr, Scope] = field(default_factory=dict)
    weights: dict[ast.expr, Scope] = field(default_factory=dict)
    averages: dict[ast.Call, Scope] = field(default_factory=dict)


class LossReductions:
    """Answers how a loss is reduced, by following its expression through assignments and functions."""

    def __init__(self, script: ScriptModel, batch_size: str = "per-process") -> None:
        self.script = script
        # A sum over the configured batch size is the average of a process's batch where each process takes a
        # whole one, and a share of the sum where the batch is split.
        self._configured = SUM if batch_size == "total" else MEAN
        self._answers: dict[ast.expr, str] = {}
        self._averaging: dict[ast.expr, Averaging] = {}
        self._here = Averaging()
        self._active: set[object] = set()
        # What a name is up to the assignment that is looked at, for the reads in it.
        self._so_far: dict[ast.expr, str] = {}
        self._stores: dict[tuple[Scope, str], list[int]] = {}
        self._degrees = BatchDegrees(script, lambda node, *place: self._functions(node, Place(*place)))
        self._contained = ContainedLosses(script, lambda node, *place: self._functions(node, Place(*place)))

    def of(self, loss: ast.expr) -> str:
        """`mean`, `sum`, `mixed` (both in one sum), `neutral` (no batch in it) or `unclear`."""
        if loss not in self._answers:
            self._here = self._averaging[loss] = Averaging()
            place = Place(self.script.module_of(loss), self.script.scope_of(loss))
            self._answers[loss] = self._of(loss, place, 0)
        return self._answers[loss]

    def averaging(self, loss: ast.expr) -> Averaging:
        """By what a loss is averaged."""
        self.of(loss)
        return self._averaging[loss]

    def _of(self, node: ast.expr, place: Place, depth: int) -> str:
        if depth > _DEEPEST or node in self._active:
            return self._so_far.get(node, NEUTRAL)
        if node in self._so_far:
            return self._so_far[node]
        self._active.add(node)
        try:
            return self._look(node, place, depth + 1)
        finally:
            self._active.discard(node)

    def _look(self, node: ast.expr, place: Place, depth: int) -> str:
        if isinstance(node, ast.Constant) or is_nothing(node):
            return NEUTRAL
        if isinstance(node, ast.Name):
            return self._variable(node, place, depth)
        if isinstance(node, ast.UnaryOp):
            return self._of(node.operand, place, depth)
        if isinstance(node, ast.IfExp):
            return either(self._of(node.body, place, depth), self._of(node.orelse, place, depth))
        if isinstance(node, ast.BinOp):
            return self._operation(node, place, depth)
        if isinstance(node, ast.Call):
            return (
                PENALTY
                if is_penalty(self.script, node, place.module, place.scope)
                else self._call(node, place, depth)
            )
        if isinstance(node, ast.NamedExpr):
            return self._of(node.value, place, depth)
        if isinstance(node, ast.Subscript) and (
            under := self._contained.under(node, place.module, place.scope)
        ):
            return self._any(under, either, depth)
        contained = node.value if isinstance(node, ast.Subscript) and is_constant(node.slice, 0) else node
        if isinstance(contained, ast.Attribute) and contained.attr == "data":
            # `loss.data.item()`, and `loss.data[0]` of the first releases: the loss itself.
            return self._of(contained.value, place, depth)
        return self._attribute(node, place, depth) if isinstance(node, ast.Attribute) else UNCLEAR

    def _attribute(self, node: ast.Attribute, place: Place, depth: int) -> str:
        """`self.loss`, where the function assigns it by a plain assignment."""
        name, tree = dotted(node), place.module.tree
        given = [
            stmt
            for stmt in place.scope.of_type(ast.Assign, ast.AugAssign, ast.AnnAssign)
            if name in [dotted(t) for t in (stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target])]
        ]
        if len(given) > 1 and tree.parent(node) is not None:
            # Of several, the last one before it, where that is sure to be made.
            before = [stmt for stmt in given if tree.is_after(node, stmt)]
            last = tree.last(before)
            given = [last] if last is not None and stands_beside(tree, last, node) else []
        one = given[0] if len(given) == 1 else None
        plain = isinstance(one, ast.Assign) and dotted(one.targets[0]) == name
        return (
            self._of(one.value, place, depth) if name and plain and isinstance(one, ast.Assign) else UNCLEAR
        )

    def _variable(self, node: ast.Name, place: Place, depth: int) -> str:
        name = node.id
        owner = place.scope.resolve(name)
        if owner is None:
            return UNCLEAR
        if self._contained.is_of_comprehension(node, place.module):
            return self._element(node, place, depth)
        answer, home, divided, bound = NEUTRAL, Place(place.module, owner), False, False
        for stmt, always in self._assignments(node, place, owner).items():
            # What an assignment adds to the same name was looked at before it.
            own = [n for n in walk(stmt) if isinstance(n, ast.Name) and n.id == name] if bound else []
            self._so_far.update(dict.fromkeys(own, answer))
            one = self._assigned_by(stmt, name, home, depth)
            for read in own:
                del self._so_far[read]
            bound = bound or one is not None
            if one == "divided":
                divided = True
            elif one is not None:
                anew = always and isinstance(stmt, ast.Assign) and one not in (NEUTRAL, UNCLEAR)
                added = isinstance(stmt, ast.AugAssign) and PENALTY in (answer, one)
                answer = one if anew else together(answer, one) if added else either(answer, one)
        if divided and answer == SUM:
            return MEAN
        if not bound and owner.takes(name):
            return UNCLEAR
        return answer if bound else self._element(node, place, depth)

    def _element(self, name: ast.Name, place: Place, depth: int) -> str:
        """How losses are reduced that a loop iterates over under a name; neutral for a name of something else."""
        through = self._contained.gone_through(name, place.module)
        contained = self._contained.of(through, place.module, place.scope) if through is not None else []
        return self._any(contained, either, depth) if contained else NEUTRAL

    def _any(self, contained: Sequence[SlotValue], join: Callable[[str, str], str], depth: int) -> str:
        """How what a container holds is reduced: either of it, or all of it together."""
        answers = [self._of(one, Place(module, scope), depth) for one, module, scope in contained]
        return functools.reduce(join, answers, NEUTRAL)

    def _assigned_by(self, stmt: ast.stmt, name: str, place: Place, depth: int) -> str | None:
        """How what an assignment gives to a name is reduced; None where that is not followed."""
        if isinstance(stmt, ast.Assign):
            answer: str | None = None
            for target in stmt.targets:
                one: str | None = None
                if isinstance(target, ast.Name) and target.id == name:
                    divided = divides_by(stmt.value, name)
                    if divided and isinstance(stmt.value, ast.BinOp):
                        self._here.divisors[stmt.value.right] = place.scope
                    one = "divided" if divided else self._of(stmt.value, place, depth)
                elif isinstance(target, (ast.Tuple, ast.List)):
                    for index, element in enumerate(target.elts):
                        if isinstance(element, ast.Name) and element.id == name:
                            one = self._unpacked(stmt.value, index, place, depth)
                answer = one if answer is None else answer
            return answer
        if isinstance(stmt, ast.AugAssign) and isinstance(stmt.target, ast.Name) and stmt.target.id == name:
            if isinstance(stmt.op, (ast.Add, ast.Sub)):
                if place.module in self.script.modules and adds_samples(self.script, stmt):
                    return SUM
                return self._of(stmt.value, place, depth)
            if isinstance(stmt.op, ast.Div) and not isinstance(stmt.value, ast.Constant):
                self._here.divisors[stmt.value] = place.scope
                return "divided"
        return None

    def _assignments(self, node: ast.Name, place: Place, owner: Scope) -> dict[ast.stmt, bool]:
        """The assignments of a scope that a name's value is made of where it is read, those sure to be made as True.

        The cells of a notebook bind one name again and again: of a module's statements, the nearest that does.
        """
        tree, body = place.module.tree, owner.node.body
        every = [(index, one) for index, stmt in enumerate(body) for one in tree.assigned_in(stmt, node.id)]
        anywhere = dict.fromkeys((stmt for _, stmt in every), False)
        if place.scope is not owner or isinstance(owner.node, ast.Lambda) or tree.parent(node) is None:
            return anywhere
        reaching = made_of(tree, node)
        if owner.kind != "module":
            taken = owner.takes(node.id)
            return reaching if reaching or taken else anywhere
        own = next((a for a in [node, *tree.ancestors(node)] if isinstance(tree.parent(a), ast.Module)), None)
        last = next((i for i, stmt in enumerate(body) if stmt is own), -1)
        near: set[int] = set()
        for index in reversed(self._storing(place, owner, node.id)):
            if index <= last:
                near.add(index)
                if not isinstance(body[index], ast.AugAssign):
                    nearest = dict.fromkeys((stmt for at, stmt in every if at in near), False)
                    return {s: sure for s, sure in reaching.items() if s in nearest} or nearest
        return anywhere

    def _storing(self, place: Place, module: Scope, name: str) -> list[int]:
        """The indices of the statements of a module's body that bind a name, in order."""
        key = module, name
        if key not in self._stores:
            tree, places = place.module.tree, {stmt: i for i, stmt in enumerate(module.node.body)}
            found: set[int] = set()
            for node in tree.writes(name):
                if isinstance(node.ctx, ast.Store) and place.module.scopes.of(node) is module:
                    around = next((a for a in tree.ancestors(node) if a in places), None)
                    found |= {places[around]} if around is not None else set()
            self._stores[key] = sorted(found)
        return self._stores[key]

    def _unpacked(self, value: ast.expr, index: int, place: Place, depth: int) -> str:
        if isinstance(value, (ast.Tuple, ast.List)) and index < len(value.elts):
            return self._of(value.elts[index], place, depth)
        if isinstance(value, ast.Call):
            answer = NEUTRAL
            for function, results in self._functions(value, place):
                for result in results:
                    inner = Place(function.module, function.scope)
                    for part in parts_of(result, function.module.tree, function.scope)[index : index + 1]:
                        if part is not None:
                            answer = either(answer, self._of(part, inner, depth))
            return UNCLEAR if answer == NEUTRAL else answer
        return UNCLEAR

    def _operation(self, node: ast.BinOp, place: Place, depth: int) -> str:
        left = self._of(node.left, place, depth)
        if isinstance(node.op, ast.Div):
            if left == SUM:
                self._here.divisors[node.right] = place.scope
            return self._divided(left, node.right, place)
        right = self._of(node.right, place, depth)
        if isinstance(node.op, (ast.Add, ast.Sub)):
            return together(left, right)
        for one, factor in ((left, node.right), (right, node.left)):
            # x.sum() * (1 / n)
            divisor = self._divisor(factor)
            if divisor is not None:
                return self._divided(one, divisor, place)
        return (
            left
            if right in (NEUTRAL, UNCLEAR)
            else right
            if left in (NEUTRAL, UNCLEAR)
            else either(left, right)
        )

    def _divisor(self, factor: ast.expr, far: int = 0) -> ast.expr | None:
        """The `n` of a factor `1 / n`, or of `beta * (1 / n)`."""
        if far > _FARTHEST_FACTOR:
            return None  # `mask = mask * other` is made of itself
        factor = self._reciprocal(factor)
        if not isinstance(factor, ast.BinOp):
            return None
        if isinstance(factor.op, ast.Div):
            return factor.right if isinstance(factor.left, ast.Constant) else None
        if isinstance(factor.op, ast.Mult):
            return self._divisor(factor.left, far + 1) or self._divisor(factor.right, far + 1)
        return None

    def _reciprocal(self, node: ast.expr) -> ast.expr:
        """What a name was assigned, when that was once `1 / n`."""
        if not isinstance(node, ast.Name):
            return node
        values = [
            stmt.value
            for stmt in self.script.tree.nodes(ast.Assign)
            if any(isinstance(t, ast.Name) and t.id == node.id for t in stmt.targets)
        ]
        return values[0] if len(values) == 1 else node

    def _divided(self, reduction: str, divisor: ast.expr, place: Place) -> str:
        """A sum over a count is an average: over the current batch, or over the configured batch size."""
        if reduction != SUM or isinstance(divisor, ast.Constant) or CLASSES.search(dotted(divisor) or ""):
            return reduction
        if self._is_own_batch_size(divisor, place):
            return MEAN
        names = [
            n.id if isinstance(n, ast.Name) else n.attr
            for n in walk(divisor)
            if isinstance(n, (ast.Name, ast.Attribute))
        ]
        return self._configured if any(BATCH_SIZE.search(n) for n in names) else MEAN

    def _is_own_batch_size(self, node: ast.expr, place: Place) -> bool:
        """Whether a divisor is the size of the current batch (and not one written into the configuration)."""
        for inner in walk(node):
            if isinstance(inner, ast.Attribute) and inner.attr in ("shape", "size"):
                return True
            if isinstance(inner, ast.Call) and dotted(inner.func) == "len":
                return True
            if isinstance(inner, ast.Name) and BATCH_SIZE.search(inner.id):
                trees = {place.module.tree, self.script.tree}
                stmts = [tree.statement(write) for tree in trees for write in tree.writes(inner.id)]
                made = [size_given(stmt, inner.id) for stmt in stmts if isinstance(stmt, ast.Assign)]
                return any(self._is_own_batch_size(one, place) for one in made if one not in (None, node))
        return False

    def _call(self, node: ast.Call, place: Place, depth: int) -> str:
        if dotted(node.func) == "sum" and node.args and place.scope.resolve("sum") is None:
            added = self._contained.of(node.args[0], place.module, place.scope)
            return self._any(added, together, depth) if added else UNCLEAR
        contained = self.script.interpreter.evaluate(place.module, place.scope, node.func)
        answers = [
            self._library_call(value.name, node, place, depth)
            for value in contained
            if isinstance(value, Imported)
        ]
        criteria = [value for value in contained if isinstance(value, Entity) and value.kind == v.CRITERION]
        reduced = [
            self._criterion(criterion, depth)
            for criterion in lies_at_hand(self.script, node, place, criteria)
        ]
        if MEAN in reduced:
            self._here.averages[node] = place.scope
        answers += reduced
        known = [answer for answer in answers if answer is not None]
        # An option may choose between a loss of torch's and a module of the program.
        others = not known or any(
            isinstance(w, Entity) and w.kind in (v.MODEL, v.INSTANCE) for w in contained
        )
        functions = self._functions(node, place) if others else []
        if known and not functions:
            return functools.reduce(either, sorted(known))
        if functions:
            answer = functools.reduce(either, sorted(known), NEUTRAL)
            for function, results in functions:
                for result in results:
                    answer = either(answer, self._of(result, Place(function.module, function.scope), depth))
            return UNCLEAR if answer == NEUTRAL else answer
        if isinstance(node.func, ast.Attribute):
            name = node.func.attr
            whole = not node.args and not any(kw.arg in ("dim", "axis") for kw in node.keywords)
            if whole and name in ("mean", "sum"):
                # Of a loss that is one number already they change nothing.
                stacked = self._stacked(node.func.value, place, depth)
                inner = stacked or self._of(node.func.value, place, depth)
                if inner in (MEAN, SUM) or stacked is not None:
                    return inner
            if name == "mean":
                self._here.averages[node] = place.scope
                # Over the positions of each sample: how the samples are put together comes later.
                return self._of(node.func.value, place, depth) if keeps_samples(node) else MEAN
            summed = whole or sums_samples(node.args, node.keywords)
            if name == "sum" and summed:
                averaged = is_averaged(node.func.value, place)
                return UNCLEAR if averaged else self._summed(node.func.value, place)
            if name in PASSING:
                return self._of(node.func.value, place, depth)
            if name == "scale" and node.args:
                return self._of(node.args[0], place, depth)
            if name in CURVES:
                # The root of a mean is none, but what it averages counts.
                for inside in (node.func.value, *node.args):
                    self._of(inside, place, depth)
        return UNCLEAR

    def _library_call(self, name: str, node: ast.Call, place: Place, depth: int) -> str | None:
        if k.is_loss_function(name):
            self._here.averages[node] = place.scope
            reduction = reduction_of(node)
            if reduction == SUM:
                return self._summed(self._degrees.weight_of(node, name), place)
            return UNCLEAR if reduction == "none" else reduction or MEAN
        if name == "torch.mean":
            self._here.averages[node] = place.scope
            if node.args:
                self._of(node.args[0], place, depth)  # what the averaged parts are divided by
            # `loss = torch.mean(loss)` changes nothing of a loss that is one number already.
            before = self._so_far.get(node.args[0]) if node.args else None
            return before if before in (SUM, MIXED) else MEAN
        if name == "torch.sum":
            whole = len(node.args) == 1 and not node.keywords
            whole |= sums_samples(node.args[1:], node.keywords)
            stacked = self._stacked(node.args[0], place, depth) if whole else None
            if stacked is not None:
                return stacked
            summed = whole and not is_averaged(node.args[0], place)
            return self._summed(node.args[0], place) if summed else UNCLEAR
        if name in k.VARIABLE or name in (
            "builtins.float",
            "builtins.int",
            "torch.abs",
            "torch.neg",
            "torch.squeeze",
        ):
            return self._of(node.args[0], place, depth) if node.args else None
        return None

    def _summed(self, node: ast.expr | None, place: Place) -> str:
        """A sum of what is divided by a count of the batch, or has such a weight, is a mean of it."""
        by = self._degrees.averaging(node, place.module, place.scope) if node is not None else {}
        self._here.weights.update(by)
        return MEAN if by else SUM

    def _stacked(self, node: ast.expr, place: Place, depth: int) -> str | None:
        """How losses are reduced that are put into one tensor: `torch.stack([a, b])`; None where it is none of losses.

        Those that a dictionary holds are losses by their names, but not known where it is filled later.
        """
        parts, named = self._contained.stacked(node, place.module, place.scope)
        answers = {self._of(part, place, depth) for part in parts}
        if len(answers) == 1 and answers <= {MEAN, SUM}:
            return answers.pop()
        return UNCLEAR if named else None

    def _criterion(self, criterion: Entity, depth: int) -> str:
        answer = NEUTRAL
        for cls in classes_of(criterion):
            forward = cls.method("forward")
            if forward is None:
                answer = either(answer, MEAN)
                continue
            constants = constants_of_object(cls, criterion.site)
            for result in returned(forward[1].node.body, constants):
                answer = either(answer, self._of(result, Place(forward[0].module, forward[1]), depth))
        if criterion.cls is not None:
            return UNCLEAR if answer == NEUTRAL else answer
        if (
            isinstance(criterion.site, ast.Call)
            and criterion.qualname
            and k.is_loss_class(criterion.qualname)
        ):
            if criterion.module is not None:
                self._here.averages[criterion.site] = criterion.module.scopes.of(criterion.site)
            reduction = reduction_of(criterion.site)
            if reduction == SUM and criterion.module is not None:
                home = Place(criterion.module, criterion.module.scopes.of(criterion.site))
                return self._summed(self._degrees.weight_of(criterion.site, criterion.qualname), home)
            return UNCLEAR if reduction == "none" else reduction or MEAN
        return UNCLEAR

    def _functions(self, node: ast.Call, place: Place) -> list[tuple[Function, list[ast.expr]]]:
        """The functions of the program that a call can run, and what each of them can return then."""
        found = []
        called = self.script.interpreter.evaluate(place.module, place.scope, node.func)
        for value in called or self._contained.parts_called(node, place.module, place.scope):
            for function, cls in run_by(value):
                constants = constants_of(function.scope, node)
                if cls is not None and isinstance(value, Entity):
                    constants |= constants_of_object(cls, value.site)
                found.append((function, list(returned(function.scope.node.body, constants))))
        return found
