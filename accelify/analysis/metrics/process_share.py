"""Values that one process computes from its share of the data, and where they flow: followed from the batches on.

A value of the current batch is a sample; what a loop adds up or collects of such values is a total of one process's
share. What is gathered or reduced is the same everywhere and is not followed further.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from accelify.analysis import values as v
from accelify.analysis.data.whole_batches import tells_of_whole_batch
from accelify.analysis.metrics.attribute_owners import class_of_object, own_class
from accelify.analysis.metrics.keeping import Keeping
from accelify.analysis.metrics.run_by_loops import is_of_script, run_by
from accelify.analysis.metrics.share_of_statements import ShareOfStatements
from accelify.analysis.models.hooks import backward_hooks
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.statements.argument_places import argument_for, parameters_for
from accelify.analysis.statements.comprehensions import is_of_a_comprehension
from accelify.analysis.statements.enumerated import without_counter
from accelify.analysis.statements.none_tests import NoneTests, asks_for_key, asks_for_none
from accelify.analysis.statements.slots import (
    SAMPLE,
    TOTAL,
    Slot,
    SlotValue,
    is_anew,
    joined,
    place_for,
    place_in,
)
from accelify.analysis.syntax import target_names, walk

# Properties of a tensor or a container that do not depend on its values.
_FORM = frozenset(
    "shape size dim ndim device dtype ndimension is_cuda numel nelement requires_grad keys".split()
)
_FORM_CALLS = frozenset("len type isinstance range hasattr id callable super".split())
# Calls that show their arguments and give nothing of them back, by their last name.
_SHOWING = frozenset(
    "print info debug warning error critical log write writerow writerows writelines dump add_scalar add_scalars "
    "add_histogram scalar_summary add_text line savetxt save savez plot echo".split()
)
_BARS = frozenset("set_postfix set_postfix_str set_description set_description_str desc".split())
# Objects that are no figures, whatever their arguments are.
_TOOLS = (
    v.MODEL, v.OPTIMIZER, v.CRITERION, v.LOADER, v.SCALER, v.WRITER, v.PARAMETERS, v.DEVICE, v.DATASET, v.SCHEDULER,
)  # fmt: skip


class OwnShare(ShareOfStatements):
    """Follows the batches of a script's sharded loaders to the decisions that they reach.

    Args:
        script: its model.
        loops: those over sharded loaders.
        draws: the calls that draw a batch of a sharded loader, and yield it.
        counted: the expressions in which a model returns what it counted for its batches.
        settled: whether a slot is the same on every process where it is read.
        bindings: the statements that can have bound a name where it is read; None represents a parameter.
        gathered: expressions that are the same on every process.
        comprehensions: those over sharded loaders.
        whole: the loops over data that every process sees whole.
    """

    def __init__(
        self,
        script: ScriptModel,
        loops: Iterable[ast.For | ast.AsyncFor | ast.While],
        draws: Iterable[ast.Call],
        settled: Callable[[Slot, ast.expr], bool],
        bindings: Callable[[ast.Name], Iterable[ast.stmt | None]],
        gathered: Iterable[ast.expr] = (),
        comprehensions: Iterable[ast.comprehension] = (),
        counted: Iterable[ast.expr] = (),
        whole: Iterable[ast.For | ast.AsyncFor] = (),
    ) -> None:
        self.script, self.tree = script, script.tree
        self.loops, self.whole = set(loops), set(whole)
        self.settled, self.bindings, self.gathered = settled, bindings, set(gathered)
        self.contained: dict[Slot, SlotValue] = {}
        self.decisions: dict[ast.If | ast.While, SlotValue] = {}
        # The statements whose totals are read outside of the loop that makes them.
        self.leaving: set[ast.stmt] = set()
        # The statements that bind a variable to such a value (None: as a parameter), and those where that is unknown.
        self._bound: dict[Slot, set[ast.stmt | None]] = defaultdict(set)
        self._anywhere: set[Slot] = set()
        # The calls that pass such a value to a function, and what a function returns.
        self._handing: dict[Scope, set[ast.Call]] = defaultdict(set)
        self._returned: dict[Scope, dict[int | None, SlotValue]] = {}
        self._queue: list[Slot] = []
        self._keeping = Keeping(script)
        self._trainers: dict[ast.ClassDef, bool] = {}
        # What functions add to their arguments, the callers see, too.
        self._given_back: set[Slot] = set()
        self._filled: dict[Scope, set[Slot]] = defaultdict(set)
        # Tests whether such a value is None, which are decided once all decisions are known.
        self._nones: list[tuple[ast.expr, ast.expr, SlotValue]] = []
        self._seen: dict[ast.AST, SlotValue] = {}
        self._reads: dict[str, list[ast.Name]] | None = None
        self._attributes: dict[str, list[ast.Attribute]] | None = None
        self._inner = run_by(script, self.loops)
        drawn = list(draws)
        stepped = {loop for call in drawn for loop in script.enclosing_loops(call)[:1]}
        for loop in self.loops - stepped:
            self._begin(loop)
        for stated in [*drawn, *counted]:
            self._climb(stated, SlotValue(SAMPLE))
        self._follow_hooks()
        for part in comprehensions:
            # A figure of all that a process sees, made in one expression.
            total = SlotValue(TOTAL, frozenset({self.tree.statement(part)}))
            self._climb(self.tree.parent(part), total)  # type: ignore[arg-type]
        while self._queue or self._climb_none_tests():
            if self._queue:
                slot = self._queue.pop()
                self._follow(slot, self.contained[slot])

    # -- where it begins

    def _begin(self, loop: ast.For | ast.AsyncFor | ast.While) -> None:
        if isinstance(loop, ast.While):
            return
        self._assign(without_counter(self.script, loop), SlotValue(SAMPLE), loop)

    def _follow_hooks(self) -> None:
        """What hooks add up in the backward of the loops' batches, where no batch begins it again."""
        if not any(self.script.trains(loop) for loop in self.loops):
            return
        for scope in backward_hooks(self.script, lambda call: self._runs_in_a_loop(call)):
            made = [n for inner in self._inner for n in inner.nodes]
            self._inner.add(scope)
            for stmt in scope.of_type(ast.AugAssign):
                slot = None if isinstance(stmt.value, ast.Constant) else self.slot(stmt.target)
                if slot is not None and not any(is_anew(n, slot) for n in made):
                    self._accumulate(stmt.target, stmt, SlotValue(SAMPLE))

    def _runs_in_a_loop(self, call: ast.Call) -> bool:
        return (
            self.script.scope_of(call) in self._inner or self.loop_of(self.tree.statement(call)) is not None
        )

    def share_in(self, node: ast.expr) -> SlotValue | None:
        """What an expression, or a part of it, depends on; None where nothing of it is from the process's share."""
        found = [contained for n in walk(node) if (contained := self._seen.get(n)) is not None]
        return max(found, key=lambda contained: contained.level, default=None)

    def loop_of(self, stmt: ast.AST) -> ast.AST | None:
        """The sharded loop in which a statement is."""
        return next((a for a in self.tree.ancestors(stmt) if a in self.loops), None)

    # -- slots

    def slot(self, node: ast.expr) -> Slot | None:
        """The slot that an expression names; None for what is none."""
        if isinstance(node, ast.Name):
            scope = self.script.scope_of(node)
            owner = scope.resolve(node.id)
            return Slot(owner, node.id) if owner is not None and node.id != owner.self_name() else None
        if isinstance(node, ast.Attribute):
            own = own_class(self.script, node)
            if own is not None:
                return Slot(own, node.attr)
            base = self.slot(node.value)
            return (
                Slot(base.owner, base.root, f".{node.attr}") if base is not None and not base.entry else base
            )
        if isinstance(node, ast.Subscript):
            base = self.slot(node.value)
            if base is not None and not base.entry and isinstance(node.slice, ast.Constant):
                return Slot(base.owner, base.root, f"[{node.slice.value!r}]")
            return base
        return None

    def _put(
        self, slot: Slot | None, contained: SlotValue, bound: Iterable[ast.stmt | None] | None = None
    ) -> None:
        """Note what a slot holds from some statements on; None: from wherever it is."""
        if slot is None:
            return
        known, before = self.contained.get(slot), (len(self._bound[slot]), slot in self._anywhere)
        if bound is None:
            self._anywhere.add(slot)
        else:
            self._bound[slot].update(bound)
        contained = joined(known, contained)
        if contained != known or before != (len(self._bound[slot]), slot in self._anywhere):
            self.contained[slot] = contained
            self._queue.append(slot)

    def _reaches(self, slot: Slot, name: ast.expr) -> bool:
        """Whether a read of a variable can be of what the known statements assign."""
        if slot in self._anywhere or not isinstance(name, ast.Name):
            return True
        if self.script.scope_of(name) is not slot.owner:
            return True
        return bool(set(self.bindings(name)) & self._bound[slot])

    def _follow(self, slot: Slot, contained: SlotValue) -> None:
        for node in self._reads_of(slot):
            if isinstance(node, ast.Name) and is_of_a_comprehension(self.tree, node):
                continue
            shown: ast.expr = node
            parent = self.tree.parent(node)
            if slot.entry:
                if isinstance(parent, ast.Attribute) and parent.value is node:
                    if slot.entry[0] == "." and slot.entry[1:] != parent.attr:
                        continue
                    shown = parent
                elif isinstance(parent, ast.Subscript) and parent.value is node:
                    if isinstance(parent.slice, ast.Constant) and f"[{parent.slice.value!r}]" != slot.entry:
                        continue
                    shown = parent
                elif slot.entry[0] == "[" and asks_for_key(parent, node):
                    continue
            if isinstance(getattr(shown, "ctx", None), (ast.Store, ast.Del)) or not self._reaches(slot, node):
                continue
            if self.settled(slot, shown) or self._is_of_whole_batch(shown, contained):
                continue
            if slot.entry and shown is node and self._hand_entry(slot, node, contained):
                continue
            if contained.level == TOTAL:
                around = set(self.tree.ancestors(node))
                self.leaving |= {o for o in contained.origins - self.leaving if self.loop_of(o) not in around}
            self._climb(shown, contained)
        self._back_to_callers(slot, contained)

    def _reads_of(self, slot: Slot) -> list[ast.Name] | list[ast.Attribute]:
        if isinstance(slot.owner, ast.ClassDef):
            if self._attributes is None:
                self._attributes = defaultdict(list)
                for attribute in self.tree.nodes(ast.Attribute):
                    self._attributes[attribute.attr].append(attribute)
            return [
                n
                for n in self._attributes[slot.root]
                if isinstance(n.ctx, ast.Load)
                and (own_class(self.script, n) or class_of_object(self.script, n)) is slot.owner
            ]
        if self._reads is None:
            self._reads = defaultdict(list)
            for name in self.tree.nodes(ast.Name):
                if isinstance(name.ctx, ast.Load):
                    self._reads[name.id].append(name)
        return [n for n in self._reads[slot.root] if self.script.scope_of(n).resolve(slot.root) is slot.owner]

    def _hand_entry(self, slot: Slot, node: ast.expr, contained: SlotValue) -> bool:
        """Hand one entry on to the script's functions that take the whole: `step(model, totals)`."""
        child: ast.AST = node
        call = self.tree.parent(node)
        if isinstance(call, ast.keyword):
            child, call = call, self.tree.parent(call)
        if not isinstance(call, ast.Call) or child is call.func or self.script.models_of(call.func):
            return False
        callees = self.script.callees(call)
        if not callees or not all(is_of_script(self.script, c) and not self._is_unit(c) for c in callees):
            return False
        for callee in callees:
            for name in parameters_for(call, callee, child):
                self._put(Slot(callee, name, slot.entry), contained, (None,))
            self._note_handing(call, callee)
        return True

    def _note_handing(self, call: ast.Call, callee: Scope) -> None:
        if call not in self._handing[callee]:
            self._handing[callee].add(call)
            self._queue += self._filled[callee]
            for place, contained in self._returned.get(callee, {}).items():
                self._give_back(call, place, contained)

    def _give_back(self, call: ast.Call, place: int | None, contained: SlotValue) -> None:
        """What a function returns, or one of several values, flows on where it is called."""
        stmt = self.tree.parent(call)
        if isinstance(stmt, ast.Assign) and call not in self.gathered:
            apart = [place_for(target, None, place) for target in stmt.targets]
            if not any(one is target for one, target in zip(apart, stmt.targets, strict=True)):
                for target in apart:
                    self._assign(target, contained, stmt)
                return
        self._climb(call, contained)

    def _back_to_callers(self, slot: Slot, contained: SlotValue) -> None:
        """What a function adds to an object in its arguments, its callers see."""
        scope = slot.owner
        if not isinstance(scope, Scope) or scope.kind != "function" or contained.level < TOTAL:
            return
        names = [a.arg for a in scope.parameters()]
        changed = slot in self._given_back or any(self._changes(origin, slot) for origin in contained.origins)
        if slot.root not in names or not changed:
            return
        self._filled[scope].add(slot)
        # What comes from its arguments goes back to who gave them.
        own = None not in self._bound[slot] or slot in self._anywhere or self._loops_itself(scope)
        callers = self.script.callers(scope)
        for call in callers if own else [c for c in callers if c in self._handing[scope]]:
            given = argument_for(call, scope, slot.root)
            base = self.slot(given) if given is not None else None
            if base is not None:
                bound = set(self.bindings(given)) if isinstance(given, ast.Name) else None
                back = Slot(base.owner, base.root, base.entry or slot.entry)
                self._given_back.add(back)
                self._put(back, contained, bound or None)

    def _loops_itself(self, scope: Scope) -> bool:
        """Whether a function iterates over the data itself."""
        return any(self.script.scope_of(loop) is scope for loop in self.loops)

    # -- up from a read

    def _climb(self, node: ast.expr, contained: SlotValue) -> None:
        known = self._seen.get(node)
        if known is not None and known.level >= contained.level and contained.origins <= known.origins:
            return
        self._seen[node] = joined(known, contained)
        child: ast.AST = node
        parent = self.tree.parent(node)
        place: int | None = None
        while parent is not None:
            if child in self.gathered:
                return
            if isinstance(parent, ast.stmt):
                self._statement(parent, child, contained, place)
                return
            place = place_in(parent, child)
            if isinstance(parent, ast.Attribute) and (
                parent.attr in _FORM or self._is_as_made(parent, contained)
            ):
                return
            if isinstance(parent, ast.Compare) and asks_for_none(parent):
                self._nones.append((parent, child, contained))  # type: ignore[arg-type]
                return
            if isinstance(parent, ast.Subscript) and not isinstance(parent.ctx, ast.Load):
                if child is parent.slice:
                    self._accumulate(parent, self.tree.statement(parent), contained)
                return
            if isinstance(parent, ast.Call) and not self._passes(parent, child, contained):
                return
            if isinstance(parent, ast.comprehension):
                if child is parent.iter:
                    self._in_comprehension(parent, contained)
                return
            if isinstance(parent, (ast.Lambda, ast.arguments)):
                return
            if isinstance(parent, ast.NamedExpr):
                self._assign(parent.target, contained, None)
            child, parent = parent, self.tree.parent(parent)

    def _climb_none_tests(self) -> bool:
        """Follow the tests for None that can differ between processes; False where no more of them can."""
        if not self._nones:
            return False
        stated = NoneTests(self.script, self.loops, self.decisions, self.bindings)
        differing = [one for one in self._nones if not stated.is_alike(one[1])]
        self._nones = [one for one in self._nones if one not in differing]
        for compare, _, contained in differing:
            self._climb(compare, contained)
        return bool(differing)

    def _in_comprehension(self, part: ast.comprehension, contained: SlotValue) -> None:
        """What a comprehension iterates over is known by its name inside of it, and nowhere else."""
        names = set(target_names(part.target))
        for node in walk(self.tree.parent(part) or part):
            if isinstance(node, ast.Name) and node.id in names and isinstance(node.ctx, ast.Load):
                if not any(ancestor is part.iter for ancestor in (node, *self.tree.ancestors(node))):
                    self._climb(node, contained)

    def _passes(self, call: ast.Call, child: ast.AST, contained: SlotValue) -> bool:
        """Whether the result of a call depends on an argument; notes where the argument flows otherwise."""
        script, func = self.script, call.func
        callees = script.callees(call)
        if child is func:
            return not any(is_of_script(self.script, c) and self._belongs_to_trainer(c) for c in callees)
        if script.models_of(func) or script.is_a(func, v.CRITERION):
            return True
        last = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
        if isinstance(func, ast.Name) and last in _FORM_CALLS:
            return False
        if last in _BARS:
            return False
        receiver = func.value if isinstance(func, ast.Attribute) else func
        if last == "step" and script.is_a(receiver, v.SCHEDULER):
            return False
        if last in _SHOWING and not any(is_of_script(self.script, c) for c in callees):
            return False
        if script.is_a(receiver, *_TOOLS):
            return True
        units = [c for c in callees if self._is_unit(c)]
        if callees and not units:
            for callee in callees:
                for name in parameters_for(call, callee, child) if is_of_script(self.script, callee) else ():
                    self._put(Slot(callee, name), contained, (None,))
                self._note_handing(call, callee)
            if all(is_of_script(self.script, c) for c in callees):
                return False
        # A module is no object that stores its functions' arguments.
        unknown = script.qualname(func) is None and script.qualname(receiver) is None
        changes = isinstance(self.tree.parent(call), ast.Expr) and isinstance(func, ast.Attribute)
        if units:
            changes = any(map(self._keeping.keeps, units))
        if changes and unknown:
            self._accumulate(receiver, self.tree.statement(call), contained)
            if units and isinstance(receiver, ast.Name):
                for giver in self._givers(receiver):
                    self._accumulate(giver, self.tree.statement(call), contained)
        return True

    def _givers(self, name: ast.Name) -> Iterator[ast.expr]:
        """The objects that have made the value of a name, and store it: `losses = tracker.track("loss")`."""
        for stmt in self.bindings(name):
            call = stmt.value if isinstance(stmt, ast.Assign) else None
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
                made = [s for s in self.script.callees(call) if self._is_unit(s)]
                if any(map(self._keeping.keeps, made)):
                    yield call.func.value

    def _is_as_made(self, read: ast.Attribute, contained: SlotValue) -> bool:
        """Whether an attribute is none of those in which an object stores arguments from the loops' batches."""
        if contained.level < TOTAL or not all(isinstance(o, ast.Expr) for o in contained.origins):
            return False
        entities = self.script.entities(read.value)
        return bool(entities) and all(
            t.cls is not None
            and isinstance(t.site, ast.Call)
            and t.site not in self._seen
            and self.loop_of(t.site) is None
            and self._keeping.stays(t.cls, read.attr)
            for t in entities
        )

    def _is_unit(self, scope: Scope) -> bool:
        """Whether a method belongs to an object that stores figures, and is followed as a whole."""
        return scope.is_method and not self._belongs_to_trainer(scope) and not scope.name.endswith("__init__")

    def _belongs_to_trainer(self, scope: Scope) -> bool:
        """Whether a method's class trains or iterates over a sharded loader: its attributes are followed one by one."""
        owner = scope.owner_class
        if owner is None:
            return True
        if owner not in self._trainers:
            scopes = {self.script.scope_of(loop) for loop in self.loops} | self.script.training_scopes
            self._trainers[owner] = any(s.owner_class is owner for s in scopes)
        return self._trainers[owner]

    def _is_of_whole_batch(self, read: ast.expr, contained: SlotValue) -> bool:
        """Whether what is read of an object is of a batch that is the same on every process."""
        return contained.level == SAMPLE and tells_of_whole_batch(self.script, read, self.whole)
