"""Calls: of functions, classes and methods of the project, and of library functions by their rows."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from accelify.domains.placement import Kind, is_figure, own
from accelify.domains.replacing import replace
from accelify.heap import misuse, on_tpu, single_numbers
from accelify.heap.accelerator import accelerate_call, accelerator_method, is_accelerate
from accelify.heap.appending import appended
from accelify.heap.budgets import Budgets
from accelify.heap.builtin_calls import BUILTINS, FACTORY, container_method
from accelify.heap.configured import configured
from accelify.heap.containers import array_of, element, empty
from accelify.heap.derived import begun, library_base, made_by, of_library
from accelify.heap.early_exits import take_back
from accelify.heap.fields import has_others, is_unknown
from accelify.heap.frames import Frame
from accelify.heap.joining import join
from accelify.heap.library_calls import LibraryCalls
from accelify.heap.library_state import REPLACED
from accelify.heap.locations import moved_within
from accelify.heap.models import method_of_parts
from accelify.heap.object_calls import ObjectCalls
from accelify.heap.parameters import SPREAD, bind_parameters, fitting
from accelify.heap.process_groups import argument_of, distributed_call, divided, rank_of_environment
from accelify.heap.state import made_again
from accelify.heap.steps import stepped
from accelify.heap.turns import FIRST
from accelify.heap.values import (
    ENDED,
    FIRST_FLAG,
    NONE,
    ONCE,
    UNSET,
    Bound,
    Class,
    Container,
    Function,
    Guard,
    Instance,
    Iterable,
    Library,
    Ref,
    Scope,
    Super,
    Value,
)
from accelify.heap.wrapper_attributes import without_wrapped

if TYPE_CHECKING:
    from accelify.heap.interpreter import Interpreter

_DEEPEST = 24
_MOST_OF_ONE = 2
# At how many places objects of one class of models are distinguished.
_MOST_OBJECTS = 10


class Calls:
    """Makes calls."""

    def __init__(self, engine: Interpreter) -> None:
        self.engine = engine
        self.run = engine.run
        self.libraries = LibraryCalls(engine)
        self.objects = ObjectCalls(engine)
        self.memory = engine.memory
        self.budgets = Budgets(engine.run)
        # The places at which objects of each class of models are made.
        self._places: dict[Class, set[tuple[ast.AST, ...]]] = {}

    # From the syntax

    def call_node(self, node: ast.Call, scope: Ref) -> Value:
        """What a call gives."""
        if isinstance(node.func, ast.Name) and node.func.id == "super" and len(node.args) in (0, 2):
            return self._super(node.args, scope)
        called = self.engine.evaluate(node.func, scope)
        args = self.engine.expressions.all(node.args, scope)
        keywords: dict[str, Value] = {}
        for keyword in node.keywords:
            value = self.engine.evaluate(keyword.value, scope)
            if keyword.arg is not None:
                keywords[keyword.arg] = value
            else:
                keywords.update(self._spread(value, node))
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("add_", "sub_") and args:
            base = self.engine.evaluate(node.func.value, scope)
            if not base.refs:
                op = ast.Add() if node.func.attr == "add_" else ast.Sub()
                value = self.engine.expressions.operate(node, op, base, args[0])
                self.engine.statements.bind_again(node.func.value, value, scope)
                return value
        result = appended(self.engine, node, args, self.call(called, args, keywords, node), scope)
        mutated = {**moved_within(called, args), **self.libraries.mutated.pop(node, {})}
        self._write_back(called, node, mutated, scope)
        return result

    def _write_back(self, called: Value, node: ast.Call, made: Mapping[int | str, Value], scope: Ref) -> None:
        """Write what a call made of its arguments in place to where they came from; -1 is the receiver."""
        for number, value in made.items():
            if isinstance(number, str):
                if (given := argument_of(self.run, called, number, node)) is not None:
                    self.engine.choices.note(given, scope, value)
            elif number < 0 and isinstance(node.func, ast.Attribute):
                self.engine.statements.bind_again(node.func.value, value, scope)
            elif 0 <= number < len(node.args):
                self.engine.statements.bind_again(node.args[number], value, scope)

    def _spread(self, value: Value, node: ast.AST) -> dict[str, Value]:
        found: dict[str, Value] = {}
        for ref in value.of(Container):
            for name, inner in ref.looked_into().items():
                if name.startswith("['"):
                    found[name[2:-2]] = inner
        if not value.of(Container) or any(map(has_others, value.of(Container))):
            found[SPREAD] = element(self.run, value, node)
        return found

    def _super(self, args: Sequence[ast.expr], scope: Ref) -> Value:
        if args:
            cls, of = [self.engine.evaluate(arg, scope) for arg in args]
            return Value(refs=(Super(of, next(iter(cls.of(Class)), None)),))
        place: Ref | None = scope
        while isinstance(place, Scope):
            if self.run.store.pieces:
                self.run.store.note(place, "#self")
            receiver = place.fields.get("#self")
            if receiver is not None:
                body = place.outer
                return Value(refs=(Super(receiver, body.cls if isinstance(body, Scope) else None),))
            place = place.outer
        return Value()

    # By what is called

    def call(
        self, called: Value, args: Sequence[Value], keywords: Mapping[str, Value], node: ast.AST
    ) -> Value:
        """What a call of a value gives, for whatever it may be."""
        if called.type == ONCE:
            with self.run.under(Guard("main", self.run.reason(node, "only the main process"))):
                found = self._call_refs(called, args, keywords, node)
        else:
            found = self._call_refs(called, args, keywords, node)
        if found is not None:
            return found
        return self.libraries.unknown_calls.function(called, [called, *args], keywords, node)

    def _call_refs(
        self, called: Value, args: Sequence[Value], keywords: Mapping[str, Value], node: ast.AST
    ) -> Value | None:
        found: Value | None = None
        for ref in fitting(self.run, without_wrapped(called.refs), len(args), keywords, node):
            result = self._call_ref(ref, called, args, keywords, node)
            found = result if found is None else self._either(found, result, node)
        return found

    def _either(self, one: Value, other: Value, node: ast.AST) -> Value | None:
        """What one of several functions gives, whichever it is: a sum where one of them gives a sum of the batch."""
        both = join(one, other)
        places = (one.place, other.place)
        if both is None or not all(map(is_figure, places)) or {one.samples for one in places} != {0, 1}:
            return both
        summed = max(one, other, key=lambda value: value.place.samples or 0)
        text = f"`{self.run.segment(node)}` calls one of several functions, of which this one gives a sum"
        return both.placed(replace(both.place, samples=1), self.run.reason(node, text, summed))

    def _call_ref(
        self, ref: Ref, called: Value, args: Sequence[Value], keywords: Mapping[str, Value], node: ast.AST
    ) -> Value:
        if isinstance(ref, Function):
            met = len(self.run.events)
            made = self.call_function(ref, args, keywords, node)
            if called.type == REPLACED:
                # It is the call that prints, by another function in the place of the library's.
                module, via = self.run.module, tuple(self.run.via())
                self.run.events[met:] = [
                    replace(one, module=module, node=node, via=via) for one in self.run.events[met:]
                ]
            return made
        if isinstance(ref, Class):
            return self._instance(ref, args, keywords, node)
        if isinstance(ref, Library):
            return self._library(ref, args, keywords, node)
        if isinstance(ref, Bound):
            return self._bound(ref, args, keywords, node)
        if isinstance(ref, Instance):
            return self.objects.call(ref, args, keywords, node)
        return self.libraries.unknown_calls.function(called, args, keywords, node)

    def _library(
        self, ref: Library, args: Sequence[Value], keywords: Mapping[str, Value], node: ast.AST
    ) -> Value:
        word = is_accelerate(ref.name)
        if word:
            self.run.at_model = self.run.at_model or ref.name.startswith("accelerate.")
            made = accelerate_call(self.run, word, args, keywords, node)
            if made is not None:
                return made
        single_numbers.of_call(self.run, ref.name, args[0] if args else None, node)
        if self.run.checks:
            known = self.run.knowledge.canonical(ref.name)
            on_tpu.of_call(self.run, known, args, node)
            made = distributed_call(self.engine, known, args, keywords, node)
            made = made or configured(self.engine, known, args, keywords, node)
            if made is not None:
                return made
        special = BUILTINS.get(ref.name)
        if special is not None:
            made = special(self.engine, args, keywords, node)
            if made is not None:
                return made
        made = self.libraries.call(ref.name, args, keywords, node)
        return divided(self.run, made, keywords, node) if self.run.checks else made

    def _bound(
        self, ref: Bound, args: Sequence[Value], keywords: Mapping[str, Value], node: ast.AST
    ) -> Value:
        if isinstance(ref.method, Function):
            made_again(self.run, ref.method.name, ref.receiver, node)
            self._steps(ref.method, ref.receiver.of(Instance), node)
            return self.call_function(ref.method, [ref.receiver, *args], keywords, node)
        receiver = ref.receiver
        for inner in receiver.refs:
            if isinstance(inner, Instance) and inner.kind == "accelerator":
                if ref.method == "print":
                    args = self.engine.expressions.shown(args, node)
                made = accelerator_method(self.run, inner, ref.method, args, keywords, node)
                if made is not None:
                    return made
            if isinstance(inner, Container):
                made = container_method(self.engine, receiver, inner, ref.method, args, keywords, node)
                if made is not None:
                    return made
            if isinstance(inner, Class) and self.run.checks:
                made = made_by(self.engine, inner, ref.method, args, keywords, node)
                if made is not None:
                    return made
            if isinstance(inner, Super):
                return self._of_super(inner, ref.method, args, keywords, node)
            if isinstance(inner, Instance) and inner.kind == "module" and ref.method == "forward":
                return self.objects.call(inner, args, keywords, node)
            if isinstance(inner, Instance):
                made = self.special(inner, ref.method, args, node, keywords)
                made = made or method_of_parts(self.engine, inner, ref.method, args, keywords, node)
                if made is not None:
                    return made
        return self.libraries.method(receiver, ref.method, args, keywords, node)

    def _of_super(
        self, parent: Super, name: str, args: Sequence[Value], keywords: Mapping[str, Value], node: ast.AST
    ) -> Value:
        receiver = parent.receiver
        for ref in receiver.refs:
            cls = ref.cls if isinstance(ref, Instance) else ref if isinstance(ref, Class) else None
            bases = cls.line_up() if cls is not None else []
            after = bases.index(parent.cls) + 1 if parent.cls in bases else 1
            for base in bases[after:]:
                if isinstance(base, Class):
                    value = self.run.read(base, name)
                    if value is not None and value.of(Function):
                        return self.call_function(value.of(Function)[0], [receiver, *args], keywords, node)
        made = of_library(self.run, receiver, name, args, keywords, node)
        if made is None and name != "__init__":
            made = self.libraries.method(receiver, name, args, keywords, node)
        return made or NONE

    def special(
        self,
        ref: Ref,
        name: str,
        args: Sequence[Value],
        node: ast.AST,
        keywords: Mapping[str, Value] | None = None,
    ) -> Value | None:
        """A call of a method that a class of the project defines, None where it defines none."""
        if isinstance(ref, Library) and self.run.checks:
            return rank_of_environment(self.engine, ref, args, node)
        if not isinstance(ref, Instance):
            return None
        if is_unknown(ref) and name in ("__getitem__", "__setitem__") and isinstance(args[0].const, str):
            # A table, such as one of options: what the script writes under a name it reads there.
            slot = f"[{args[0].const!r}]"
            if name == "__getitem__":
                return self.run.read(ref, slot)
            self.run.store.set(ref, slot, args[1].plain())
        if ref.cls is None:
            return None
        function = self.engine.attributes.method(ref, name)
        if function is None:
            return None
        self._steps(function, [ref], node)
        return self.call_function(function, [Value(refs=(ref,)), *args], keywords or {}, node)

    def _steps(self, method: Function, of: Sequence[Instance], node: ast.AST) -> None:
        """A step of an optimizer whose class is the script's."""
        for one in of if method.name == "step" else ():
            if one.kind == "optimizer":
                stepped(self.engine, one, (), {}, node)

    # Objects

    def _instance(
        self, cls: Class, args: Sequence[Value], keywords: Mapping[str, Value], node: ast.AST
    ) -> Value:
        base, kind = library_base(self.run, cls)
        if kind == "module" and self._are_many(cls, node):
            # One object stands for all others of the class, and one call for all that make one.
            node = cls.node
            args, keywords = list(map(_widened, args)), {name: _widened(v) for name, v in keywords.items()}
        ref = self.run.allocate((node, cls), lambda: Instance(cls, base, kind))
        self.run.place(ref, self.run.shared_loops())
        if not self.run.checks:
            misuse.of_object(self.run, cls, node)
        made = Value(refs=(ref,))
        begun(self.run, ref, keywords, node)
        for one in cls.line_up():
            if isinstance(one, Class):
                init = self.run.read(one, "__init__")
                if init is not None and init.of(Function):
                    self.call_function(init.of(Function)[0], [made, *args], keywords, node)
                    break
        else:
            begun(self.run, ref, keywords, node, args)
            self.run.calls.append((cls.node, node))
            self._without_init(ref, cls, args, keywords)
            self.run.calls.pop()
        return divided(self.run, made, keywords, node) if self.run.checks and kind == "loader" else made

    def _are_many(self, cls: Class, node: ast.AST) -> bool:
        """Whether objects of a class are made at more places than are distinguished."""
        places = self._places.setdefault(cls, set())
        place = node, *[call for _, call in self.run.calls[-2:]]
        if place in places:
            return False
        if len(places) < _MOST_OBJECTS:
            places.add(place)
            return False
        return True

    def _without_init(
        self, ref: Instance, cls: Class, args: Sequence[Value], keywords: Mapping[str, Value]
    ) -> None:
        """A data class, a named tuple, or a class of a library's: its fields are the arguments."""
        found = {
            stmt.target.id: stmt
            for stmt in cls.node.body
            if isinstance(stmt, ast.AnnAssign) and isinstance(stmt.target, ast.Name)
        }
        for name, stmt in found.items():
            for one in (self.run.read(cls, name) or NONE).of(Bound):
                if one.method == FACTORY:
                    self.run.store.set(ref, name, self.call(one.receiver, [], {}, stmt))
        names = list(found)
        if (spread := keywords.get(SPREAD)) is not None:
            for name in names:
                self.run.store.set(ref, name, join(self.run.read(cls, name), spread))
        for name, value in [*zip(names, args, strict=False), *keywords.items()]:
            self.run.store.set(ref, name, value)

    # Functions of the project

    def keep_defaults(self, function: Function, args: ast.arguments, scope: Ref) -> None:
        """Evaluate the defaults of parameters, where the function is defined."""
        positional = [*args.posonlyargs, *args.args]
        for arg, default in zip(reversed(positional), reversed(args.defaults), strict=False):
            function.defaults[arg.arg] = self.engine.evaluate(default, scope)
        for arg, default_or_none in zip(args.kwonlyargs, args.kw_defaults, strict=True):
            if default_or_none is not None:
                function.defaults[arg.arg] = self.engine.evaluate(default_or_none, scope)

    def call_function(
        self, function: Function, args: Sequence[Value], keywords: Mapping[str, Value], node: ast.AST
    ) -> Value:
        """Go through a function of the project with these arguments."""
        depth = sum(1 for called, _ in self.run.calls if called is function.node)
        of_model = bool(args) and any(ref.kind == "module" for ref in args[0].of(Instance))
        parts = [value for value in [*args, *keywords.values()] if not array_of(value).is_same]
        alone = array_of(parts[0]) if depth and len(parts) == 1 and not of_model else None
        if alone is not None and (alone.rows or alone.kind is Kind.SAME):
            # What it makes of each part, such as a batch's tensors on a device.
            self.run.assume(f"`{function.name}` makes of each part what it makes of the whole", node)
            return parts[0].placed(array_of(parts[0]))
        if depth >= _MOST_OF_ONE or len(self.run.calls) >= _DEEPEST:
            text = (
                f"`{function.name}` calls itself"
                if depth >= _MOST_OF_ONE
                else "calls lie too deep in each other"
            )
            if depth < _MOST_OF_ONE or not of_model:
                # Of a model that holds others of its class, the first was gone through.
                self.run.leave_unread(text, node)
            cut = next((n for n, (called, _) in enumerate(self.run.calls) if called is function.node), 0)
            self.run.leave_pieces(cut if depth >= _MOST_OF_ONE else 0)
            return Value(own(), self.run.reason(node, text, *args)) if parts else Value()
        if self.budgets.is_called_often(function):
            # One call stands for all others: wherever it is made, whatever numbers and texts it gets.
            node = function.node
            args, keywords = list(map(_widened, args)), {name: _widened(v) for name, v in keywords.items()}
        key = self.memory.call(function, args, keywords)
        known = self.memory.of_call(key, node)
        if known is not None:
            return cast(Value, known.result)
        copied = self.budgets.copied(function)
        if (used := self.budgets.used_up(function, copied, [*args, *keywords.values()])) is not None:
            self.run.leave_unread(used, node)
            self.run.leave_pieces(0)
            return Value()
        if parts and self.budgets.only_computes(function, copied):
            return self.libraries.unknown_calls.computed(function.name, of_model, args, keywords, node)
        self.memory.begin()
        result = self.budgets.spent_on(self._gone_through, function, copied, args, keywords, node)
        self.memory.end_call(key, node, result)
        return result

    def _gone_through(
        self, function: Function, args: Sequence[Value], keywords: Mapping[str, Value], node: ast.AST
    ) -> Value:
        self.run.reached.add(function.node)
        scope = Scope(function.module, function.outer)
        bind_parameters(self.run, function, args, keywords, scope)
        statements = self.engine.statements
        frame = Frame(len(self.run.guards), len(statements.rounds))
        statements.frames.append(frame)
        self.run.calls.append((function.node, node))
        self.run.modules.append(function.module)
        once = self._decorated(function, node)
        try:
            with self.run.under(once):
                if isinstance(function.node, ast.Lambda):
                    return self.engine.evaluate(function.node.body, scope).plain()
                flow = statements.block(function.node.body, scope)
                self.engine.choices.leave_alone(frame)
                take_back(self.run.store, frame.left)
        finally:
            self.run.modules.pop()
            self.run.calls.pop()
            statements.frames.pop()
        if frame.yielded is not None or function.is_generator:
            return Value(refs=(frame.rounds_given(),), type=FIRST_FLAG if frame.first else "")
        if not (flow.reached or frame.returned or isinstance(function.node.body[-1], ast.Raise)):
            return Value(type=ENDED)
        return frame.result(flow.reached, self.run.checks)

    def _decorated(self, function: Function, node: ast.AST) -> Guard | None:
        once = any(value.type == ONCE or _is_once(value) for value in function.decorators)
        return Guard("main", self.run.reason(node, "only the main process")) if once else None

    def give(self, value: Value, node: ast.AST, over: Iterable | None = None) -> None:
        """A generator gives a value; `over` is what it gives one after the other by a single `yield from`."""
        if self.engine.statements.frames:
            self.run.leave_pieces(len(self.run.calls) - 1)
            frame = self.engine.statements.frames[-1]
            frame.yielded = value.plain() if frame.yielded is None else join(frame.yielded, value.plain())
            # As a context manager: `with` goes into it where it gives its value.
            frame.first = frame.first or any(one.kind == FIRST for one in self.run.guards[frame.guards :])
            self.run.depends()
            frame.note_rounds([over, *self.run.loops])
            for guard in self.run.guards[frame.guards :] if self.run.checks else ():
                if guard.parts_ranks:
                    frame.uneven.setdefault((guard.why.path, guard.why.line), {})[node] = guard.why

    # Others

    def entered(self, value: Value, node: ast.AST) -> Value:
        """What `with value as name` gives for the name."""
        for ref in value.of(Instance):
            given = self.special(ref, "__enter__", [], node)
            if given is not None:
                return given
        return value

    def exited(self, value: Value, node: ast.AST) -> None:
        """The end of `with value`."""
        for ref in value.of(Instance):
            self.special(ref, "__exit__", [NONE, NONE, NONE], node)

    def emptied(self, value: Value) -> None:
        """All elements of a container are taken out."""
        for ref in value.of(Container):
            empty(self.run, ref)


def _widened(value: Value) -> Value:
    """A value of which no number and no text is known."""
    plain = value.const is UNSET or value.const is None or isinstance(value.const, bool)
    return value if plain else replace(value, const=UNSET)


def _is_once(value: Value) -> bool:
    names = [
        ref.method if isinstance(ref, Bound) else is_accelerate(getattr(ref, "name", ""))
        for ref in value.refs
    ]
    return any(name in ("on_main_process", "on_local_main_process") for name in names)
