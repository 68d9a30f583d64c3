"""The abstract interpreter: its parts, and what they share."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from functools import reduce
from pathlib import Path

from accelify.domains.placement import OWN, SAME, TOGETHER, Kind
from accelify.heap.accelerator import processes
from accelify.heap.appending import begun, is_first
from accelify.heap.calls import Calls
from accelify.heap.choices import Choices, of_several
from accelify.heap.counts import CHOSEN, counts_batches
from accelify.heap.expressions import Expressions
from accelify.heap.flags import ASKED, asked, truth
from accelify.heap.iteration import Iteration
from accelify.heap.joining import join
from accelify.heap.loops import Loops
from accelify.heap.memory import Memory
from accelify.heap.modules import Modules
from accelify.heap.moved import MarksOf, go_by
from accelify.heap.names import Attributes, Names
from accelify.heap.process_groups import LAUNCHED_WITH, rank
from accelify.heap.run import Run
from accelify.heap.statements import Statements
from accelify.heap.values import (
    FOUND_FLAG,
    MAIN_FLAG,
    MISSING_FLAG,
    ONE_FLAG,
    OTHERS_FLAG,
    SOME_FLAG,
    TURN,
    Class,
    Flow,
    Function,
    Guard,
    Instance,
    Library,
    ModuleRef,
    Ref,
    Value,
)
from accelify.knowledge import Knowledge

# What a script does that runs in several processes.
_MEETING = frozenset({"accelerator", "joins", "collective"})
# By this name a converted function gets the Accelerator.
_ACCELERATOR = "accelerator"
_RANKS, _WORLD = frozenset({"rank", LAUNCHED_WITH}), "world_size"


class Interpreter:
    """Goes through a script and the modules that it reaches, with abstract values.

    Args:
        path: where the script lies; None for one that imports nothing of a project.
        knowledge: the tables of what library functions do.
        read: gives the text of a file in place of the disk's, None for a file that cannot be read.
        checks: meet uses of the Accelerator that are wrong by themselves, too.
        moves: where a conversion dropped moves to the device.
    """

    def __init__(
        self,
        path: Path | None,
        knowledge: Knowledge,
        read: Callable[[Path], str | None] | None = None,
        checks: bool = False,
        moves: MarksOf | None = None,
    ) -> None:
        self.run = Run(knowledge, checks=checks, path=path)
        self.moves = moves
        self.memory = Memory(self.run)
        self.modules = Modules(self, path, read)
        self.names = Names(self)
        self.attributes = Attributes(self)
        self.iteration = Iteration(self)
        self.expressions = Expressions(self)
        self.evaluate = self.expressions.evaluate
        self.statements = Statements(self)
        self.choices = Choices(self)
        self.loops = Loops(self)
        self.calls = Calls(self)

    def start(self, text: str) -> Run:
        """Go through the script as `python script.py` does; what was met stands in the run."""
        entry = self.modules.start(text)
        for call in self.calls.libraries.unknown_calls.later:
            call()
        met = {event.kind for event in self.run.events}
        # A script that meets others and does something by itself is no module: what it never calls, nobody does.
        runs = self.run.checks and met & _MEETING and any("." in kind for kind in met)
        if not ("backward" in met or runs):
            self._others(entry)
        self._not_reached(entry)
        self.run.events[:0] = self.run.imported
        return self.run

    def step(self, stmt: ast.stmt, scope: Ref) -> Flow:
        """Go through a statement, and what a conversion dropped beside it."""
        if stmt not in self.run.moved.marks:
            return self.statements.step(stmt, scope)
        go_by(self, self.run.moved.marks[stmt], scope, after=False)
        flow = self.statements.step(stmt, scope)
        go_by(self, self.run.moved.marks[stmt], scope, after=True)
        return flow

    def _not_reached(self, entry: ModuleRef) -> None:
        """Methods of the project's classes that were asked of objects of which nothing is known, and never reached."""
        modules = dict.fromkeys([entry, *self.modules.run_ones()] if self.run.asked else [])
        classes = [ref for module in modules for value in module.fields.values() for ref in value.of(Class)]
        for cls in dict.fromkeys(classes):
            for name, value in cls.fields.items():
                for method in value.of(Function) if name in self.run.asked else ():
                    module, node = self.run.asked[name]
                    if method.node not in self.run.reached:
                        with self.modules.within(module):
                            self.run.leave_unread(f"`{name}` of what may be an object of {cls.name}", node)

    def _others(self, entry: ModuleRef) -> None:
        """Of a script that trains nowhere that was reached: its functions and classes that nothing called.

        A command line made of them (fire, hydra) calls them, or another script, with arguments that are not known.
        """
        found = [ref for value in list(entry.fields.values()) for ref in value.refs]
        made: dict[Class, Value] = {}
        with self.modules.within(entry):
            # What others call comes after them: they say on which processes it is done.
            called = _called(entry) if self.run.checks else frozenset()
            for names in (called, frozenset[str]()):
                for ref in found:
                    if isinstance(ref, Class) and ref.module is entry:
                        self._methods(ref, names, made)
                    elif isinstance(ref, Function) and ref.module is entry and ref.name not in names:
                        self._alone(ref)

    def _alone(self, function: Function) -> None:
        if function.node not in self.run.reached:
            self.run.meet("entry", function.node, function.name, detail="function")
            self.calls.call(Value(refs=(function,)), [], self._passed(function), function.node)

    def _passed(self, function: Function | None) -> dict[str, Value]:
        """What a function gets that another script calls: where it has a parameter for it, the Accelerator, and by the
        names that torch.distributed has for them the rank and how many processes there are."""
        if function is None:
            return {}
        names = {one.arg for one in ast.walk(function.node.args) if isinstance(one, ast.arg)}
        found = {name: rank(self.run, function.node) for name in names & _RANKS if self.run.checks}
        if _WORLD in names and self.run.checks:
            found[_WORLD] = processes(self.run, function.node)
        for name in _filled(function.node) & names if self.run.checks else ():
            made_of = (function.node, name)
            options = self.run.allocate(made_of, lambda: Instance(None, "argparse.Namespace"))
            found.setdefault(name, Value(refs=(options,)))
        if _ACCELERATOR in names:
            made = Value(refs=(Library("accelify.runtime.Accelerator"),))
            found[_ACCELERATOR] = self.calls.call(made, [], {}, function.node)
        return found

    def _methods(self, cls: Class, later: frozenset[str], made: dict[Class, Value]) -> None:
        """The methods of a class that nothing called, but for those of some names, of one object of it."""
        for value in list(cls.fields.values()):
            for method in value.of(Function):
                if method.node in self.run.reached or method.name.startswith("__") or method.name in later:
                    continue
                self.run.meet("entry", method.node, method.name)
                if cls not in made:
                    begin = self.attributes.method(Instance(cls), "__init__")
                    made[cls] = self.calls.call(Value(refs=(cls,)), [], self._passed(begin), cls.node)
                bound = self.attributes.read(made[cls], method.name, method.node)
                self.calls.call(bound, [], self._passed(method), method.node)

    def guard(self, test: Value, node: ast.AST, taken: bool = True) -> Guard | None:
        """What code stands under that a condition leads to, None where all ranks go the same way."""
        test = asked(self.run, node, test)
        if test.type in (MAIN_FLAG, OTHERS_FLAG):
            assert test.why is not None
            return Guard("main" if (test.type == MAIN_FLAG) == taken else "others", test.why)
        if test.type == ONE_FLAG and test.why is not None:
            return Guard("one" if taken else "divergent", test.why)
        if test.type == SOME_FLAG:
            return Guard("some" if taken else "others", test.why) if test.why is not None else None
        if test.type == (MISSING_FLAG if taken else FOUND_FLAG):
            self.run.depends()
            if any(guard.kind == "first" for guard in self.run.guards):
                reason = self.run.reason(node, "what the main process leaves is there for the others")
                return Guard("missing", reason)
        if test.type in ASKED and taken and self.run.checks and self.run.loops:
            self.run.meet("polls", node, self.run.segment(node))
        if self.run.in_shared_loop() and (counted := self.counted(test, node)) is not None:
            return counted
        if test.place.is_uniform or self._is_of_even_batches(test):
            self.run.agreed.setdefault(node, self.run.module.path)
            return None
        self.run.agreed[node] = ""
        self.run.depends()
        if any(guard.kind == "main" for guard in self.run.guards):
            return None
        text = f"`{self.run.segment(node)}` {CHOSEN}"
        return Guard("divergent", self.run.reason(node, text, test), test.place)

    def _is_of_even_batches(self, test: Value) -> bool:
        """Whether a condition goes by how many rows batches have of a loader whose sampler gives each rank as many: the
        last one is as short on all ranks, or `prepare` fills it up."""
        counts = test.place.even or test.place.needs == TOGETHER
        if not self.run.checks or not counts or test.place.degree != 0 or not counts_batches(test.why):
            return False  # of what is chosen by what a batch has
        if self.run.accelerated and any("even_batches" in one.text for one in self.run.modules):
            return False
        self.run.depends()
        return next((loop.even for loop in reversed(self.run.loops) if loop.shared), False)

    def counted(self, test: Value, node: ast.AST) -> Guard | None:
        """What comes of a condition that goes by a count of the rounds of each process; None for another one."""
        if test.place.kind is not Kind.SAME or test.place.degree == 0 or test.type == TURN:
            return None
        # What the first round alone does is done as often as in the original.
        first = isinstance(node, ast.Compare) and any(
            isinstance(one, ast.Constant) and one.value in (0, 1) for one in node.comparators
        )
        why = self.run.reason(node, f"`{self.run.segment(node)}`", test)
        return Guard("counted", why, SAME if first else OWN)

    def choose(
        self, node: ast.IfExp, one: Callable[[], Value], other: Callable[[], Value], scope: Ref
    ) -> Value:
        """A conditional expression."""
        test = self.evaluate(node.test, scope)
        if (known := truth(test)) is not None:
            return one() if known else other()
        guard, asked = self.guard(test, node.test), self.choices.asked(node.test, scope)
        met = [len(self.run.events)]
        with self.run.under(guard), self.choices.taking(asked, True):
            left = self.choices.begun(node.test, scope, True, one)
        with self.run.under(self.guard(test, node.test, taken=False)), self.choices.taking(asked, False):
            met.append(len(self.run.events))
            right = self.choices.begun(node.test, scope, False, other)
        if guard is None and (several := of_several(self.run, [*met, len(self.run.events)])) is not None:
            self.choices.hold(node.test, scope, not several)
            return right if several else left
        ends = begun(left, right) if is_first(node.test, test) else (left, right)
        found = join(*ends, guard, in_order=True)
        assert found is not None
        return found

    def together(self, values: Sequence[Value]) -> Value:
        """A value that is one of several."""
        return reduce(lambda left, right: join(left, right) or left, values)


def _filled(function: ast.AST) -> set[str]:
    """The names of what a function writes attributes to and of which it uses nothing but attributes: options."""
    attributes = [one for one in ast.walk(function) if isinstance(one, ast.Attribute)]
    bases = {one.value for one in attributes}
    written = {
        one.value.id
        for one in attributes
        if isinstance(one.ctx, ast.Store) and isinstance(one.value, ast.Name)
    }
    others = {one.id for one in ast.walk(function) if isinstance(one, ast.Name) and one not in bases}
    return written - others - {"self", "cls"}


def _called(module: ModuleRef) -> frozenset[str]:
    """The names of what a module calls."""
    calls = (one.func for one in (ast.walk(module.tree) if module.tree else ()) if isinstance(one, ast.Call))
    return frozenset(getattr(one, "attr", getattr(one, "id", "")) for one in calls)
