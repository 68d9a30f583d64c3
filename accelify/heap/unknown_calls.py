"""Calls of which nothing is known: a function of all that it gets; an object takes in what its methods get."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from accelify.domains.placement import WIDE_ROWS, Kind, Placement, function, own
from accelify.domains.replacing import replace
from accelify.heap.containers import array_of, element, elements, open_up, put
from accelify.heap.flags import FLAGS
from accelify.heap.frozen import may_grow
from accelify.heap.misuse import SAMPLERS, without_devices
from accelify.heap.models import MODEL
from accelify.heap.moved import are_passed
from accelify.heap.paths import file_of, is_path
from accelify.heap.values import (
    DEVICE,
    TENSOR,
    UNSET,
    Bound,
    Container,
    Function,
    Instance,
    Library,
    Value,
    constant,
)

if TYPE_CHECKING:
    from accelify.heap.interpreter import Interpreter

# What a function of an unknown module does that is called by such a word first.
_EFFECTS_BY_VERB = {
    **dict.fromkeys(("save", "write", "dump", "export"), "file.write"),
    "upload": "network.send",
    "download": "network.get",
}
# Of an argument: the file that is written, as in `out_file` and `save_path`.
_WRITTEN_TO = re.compile(r"(?:out(?:put)?|saved?|dump|export|write|results?)_?(?:file_?(?:path|name)?|path)")
# What runs a file that a path or a text names.
_RUNNING = frozenset(
    (
        "builtins.exec builtins.execfile builtins.__import__ runpy.run_path runpy.run_module imp.load_source "
        "importlib.import_module importlib.util.module_from_spec importlib.machinery.SourceFileLoader"
    ).split()
)
# What a function of an unknown module does that is called so.
_MOVES = frozenset(
    "to_cuda tocuda cuda to_gpu togpu gpu to_device todevice move_to_cuda move_to_gpu move_to_device batch_to_cuda "
    "batch_to_gpu batch_to_device tensor_to_cuda send_to_cuda send_to_gpu send_to_device put_on_gpu maybe_cuda "
    "to_cuda_if_available cuda_if_available maybe_to_cuda".split()
)
# That an object got something of a rank's for what it does with it, and not for what it gave.
_TAKES = "#takes"
Args = Sequence[Value]
Keywords = Mapping[str, Value]


class UnknownCalls:
    """Makes calls of what has no row in the knowledge."""

    def __init__(self, engine: Interpreter) -> None:
        self.engine = engine
        self.run = engine.run
        self._calling: list[ast.AST] = []
        # What is to be called when all else is done.
        self.later: list[Callable[[], None]] = []

    def callbacks(self, args: Args, keywords: Keywords, node: ast.AST) -> None:
        """Go through the functions of the project that a library is given: it may call them, with whatever it has.

        What `args=` holds is what they are called with, as for a thread.
        """
        given = keywords.get("args")
        known = elements(self.run, given) if given is not None else None
        for number, value in enumerate([*args, *keywords.values()]):
            if known is None and not number and getattr(getattr(node, "func", node), "attr", "") == "submit":
                known = list(args[1:])
            for ref in value.refs:
                method = ref.method if isinstance(ref, Bound) else ref
                if self.run.checks and isinstance(ref, Instance) and ref.kind == "object":
                    method = self.engine.attributes.method(ref, "__call__") or ref
                if isinstance(method, Function) and method.node in self._calling:
                    self.run.leave_pieces(0)
                elif isinstance(method, Function) and self.run.checks and _waits_for_items(method.node):
                    self.later.append(self._once_all_is_done(Value(refs=(ref,)), known or [], node))
                    self.run.leave_pieces(0)
                elif isinstance(method, Function):
                    self._calling.append(method.node)
                    self._may_call(Value(refs=(ref,)), known or [], node)
                    self._calling.pop()

    def _may_call(self, called: Value, args: Args, node: ast.AST) -> None:
        """A call that a library makes at some time or never: what it writes may be written, or not."""
        store = self.run.store
        if not self.run.checks:
            self.engine.calls.call(called, args, {}, node)
            return
        store.begin()
        self.engine.calls.call(called, args, {}, node)
        written = store.undo()
        store.write_all(store.merged({}, written, None))

    def _once_all_is_done(self, called: Value, args: Args, node: ast.AST) -> Callable[[], None]:
        """A call of what a thread does with items that others put into a queue, later."""
        run = self.run
        guards, modules, calls = [*run.guards], [*run.modules], [*run.calls]

        def call() -> None:
            before = run.guards, run.modules, run.calls
            run.guards, run.modules, run.calls = guards, modules, calls
            self.engine.calls.call(called, args, {}, node)
            run.guards, run.modules, run.calls = before

        return call

    def function(self, called: Value, args: Args, keywords: Keywords, node: ast.AST) -> Value:
        """A call of something of which nothing is known: a function of all that it gets."""
        self.callbacks([value for value in args if value is not called], keywords, node)
        operands = [value for value in self._operands(args, keywords) if value is not called]
        are_passed(self.run, operands, node)
        may_grow(self.run, operands)
        if self.run.checks:  # a loader of an unknown class has as many batches for each rank
            operands = [one for one in operands if not any(ref.type in SAMPLERS for ref in one.of(Instance))]
            if getattr(getattr(node, "func", node), "attr", "") in ("to", "cuda"):
                operands = []  # where something lies is no part of what it is
        places = [array_of(value) for value in operands]
        name = self._name(called, node)
        if name in _RUNNING:
            self.run.leave_unread(f"what `{self.run.segment(node)}` runs", node)
        self._writes(name, name, args, keywords, node)
        self._moved(name, args, keywords, node)
        place = function([*places, called.place])
        if place.is_same:
            self.run.assume(f"{name} gives the same on every rank", node)
            for value in operands:
                open_up(self.run, value)
            # It may be an object that takes in what its methods get.
            taking = self.run.allocate((node, name), lambda: Instance(None, name))
            self.run.place(taking, self.run.shared_loops())
            return Value(refs=(taking,))
        if {one for one in places if not one.is_same} == {WIDE_ROWS}:
            self.run.assume(f"{name} works row by row", node)
            place = WIDE_ROWS
        text = f"`{name}`, of which nothing is known"
        for value in operands:
            for ref in value.of(Container):
                put(self.run, ref, Value(place, self.run.reason(node, text, *operands)), filling="rounds")
        made = self.run.made(node, place, *operands, called, text=text)
        return (
            made
            if place.kind is not Kind.ROUND
            else Value(Placement(Kind.ROUND, place.degree, samples=None), made.why)
        )

    def _operands(self, args: Args, keywords: Keywords) -> list[Value]:
        """What a result is made of: a flag that says which process it is, under a name, says who shows it."""
        flags = FLAGS if self.run.checks else ()
        given = without_devices(keywords).values()
        return [*args, *(value for value in given if value.type not in flags)]

    def _writes(self, name: str, of: str, args: Args, keywords: Keywords, node: ast.AST) -> None:
        """What a function of an unknown module, or a method of one of its objects, does by its name and by the names of
        its arguments; any other one may use the files that it is handed."""
        if of.partition(".")[0] not in self.run.unknown_modules:
            return
        word = name.rpartition(".")[2]
        effect = _EFFECTS_BY_VERB.get(word.partition("_")[0]) if args or keywords else None
        paths = [value for value in [*args, *keywords.values()] if is_path(value)]
        to = [value for name, value in keywords.items() if _WRITTEN_TO.fullmatch(name) and file_of(value)]
        if effect is None and to and not word[:1].isupper():
            effect = "file.write"
        if effect is not None:
            # A name of which only its folder is known, such as that of each sample.
            names = [value for value in [*args, *keywords.values()] if "/" in value.text]
            path = next(iter([*to, *paths, *names]), None) if effect == "file.write" else None
            self.run.meet(effect, node, name, path=path)
            return
        for path in paths:
            self.run.meet("file.handed", node, name, path=path)

    def _moved(self, name: str, args: Args, keywords: Keywords, node: ast.AST) -> None:
        """A function of an unknown module that is called like a move, and gets a prepared batch without a device."""
        known = name.partition(".")[0] not in self.run.unknown_modules
        others = any(value.const is UNSET for value in [*args[1:], *keywords.values()])
        if known or others or not args or name.rpartition(".")[2].strip("_").lower() not in _MOVES:
            return
        parts = elements(self.run, args[0]) or args[:1]
        if any(part.where == DEVICE and not array_of(part).is_same for part in parts):
            text = (
                f"`{self.run.segment(node)}` may put every process's batch on the first GPU, and was not read; leave "
                "it out: prepare has moved the batch"
            )
            self.run.meet("misuse", node, text, detail="device")

    def method(
        self,
        receiver: Value,
        instance: Instance | None,
        name: str,
        args: Args,
        keywords: Keywords,
        node: ast.AST,
    ) -> Value:
        """An unknown method of an object: the object takes in what it gets, and may give it back."""
        self.callbacks(args, keywords, node)
        operands = self._operands(args, keywords)
        are_passed(self.run, operands, node)
        if instance is not None and instance.cls is None:
            self._writes(
                self._name(Value(refs=(Bound(receiver, name),)), node), instance.type, args, keywords, node
            )
        places = [array_of(value) for value in operands]
        marked = self.run.read(instance, MODEL) if instance is not None else None
        if (instance is None and not receiver.type) or (instance is not None and instance.cls is None):
            self.run.asked.setdefault(name, (self.run.module, node))
        if instance is not None and operands and (instance.kind == "module" or (marked and marked.const)):
            whole = self.run.read(instance, "#prepared") if self.run.checks and name != "__call__" else None
            if whole is not None and not instance.prepared and not self.run.in_place:
                self.run.meet("forward", node, self.run.segment(node), [whole], detail="unprepared")
            return self.model(self._name(Value(refs=(Bound(receiver, name),)), node), args, keywords, node)
        if instance is not None:
            bag = self.run.read(instance, "#bag")
            refs = bag.of(Container) if bag is not None else []
            taken = [value for value, place in zip(operands, places, strict=True) if not place.is_same]
            if taken and (name != "__call__" or node in _left_alone(self.run.module.tree)):
                self.run.store.set(instance, _TAKES, constant(True))
            if taken and not refs and instance.kind in ("object", "metric", "table"):
                self.run.depends()
                refs = [self.run.passing("bag", instance.loops)]
                self.run.store.set(instance, "#bag", Value(refs=(refs[0],)))
            for value in taken:
                for ref in refs[:1]:
                    put(self.run, ref, value.placed(array_of(value)), filling="rounds")
            if marked is not None and name == "__call__":
                return self.model(instance.type or self.run.segment(node), args, keywords, node)
            # What a layer of a model gives in the model's forward, it does not have from other batches, and what an
            # object gives that is called like a function, such as a loss, is taken for one of what it gets.
            called = name == "__call__" and instance.kind == "object"
            # So it is of one that never got anything but for what it gave of it, such as a tokenizer.
            plain = bool(operands) and called and self.run.read(instance, _TAKES) is None
            called = called and (plain or function(places).kind is Kind.ROUND)
            if refs and not called and not (marked is not None and self.run.is_called("forward")):
                return self._of_bag(instance, Value(refs=(refs[0],)), name, node)
        place = function([receiver.place, *places])
        if place.is_same:
            return Value(type=receiver.type if receiver.type == TENSOR else "")
        return self.run.made(node, place, receiver, *operands, text=f"`{self.run.segment(node)}`")

    def model(self, name: str, args: Args, keywords: Keywords, node: ast.AST) -> Value:
        """What a model gives of which nothing is known: something of each row; the same for the same."""
        operands = [*args, *keywords.values()]
        place = function(map(array_of, operands), rowwise=True)
        if place.is_same:
            return Value()
        self.run.assume(f"{name} works row by row", node)
        return self.run.made(node, place, *operands, type_=TENSOR)

    def computed(self, name: str, of_model: bool, args: Args, keywords: Keywords, node: ast.AST) -> Value:
        """What a function of the project gives that is not gone through once more; `of_model`: a model's method."""
        if of_model:
            return self.model(f"`{name}`", args[1:], keywords, node)
        self.run.assume(f"`{name}` only computes what it gives", node)
        operands = self._operands(args, keywords)
        return self.run.made(node, function(map(array_of, operands)), *operands)

    def bag_attribute(self, instance: Instance, name: str, node: ast.AST) -> Value | None:
        """An attribute of an object that took in what it got; None where it took in nothing."""
        bag = self.run.read(instance, "#bag")
        if bag is None or array_of(bag).is_same:
            return None
        found = self._of_bag(instance, bag, name, node)
        return replace(found, refs=(Bound(Value(refs=(instance,)), name),))

    def _of_bag(self, instance: Instance, bag: Value, name: str, node: ast.AST) -> Value:
        place = array_of(bag)
        if place.is_same:
            return Value()
        inner = element(self.run, bag, node)
        text = f"`{self.run.segment(node)}`, of what each process put in"
        if place.kind is Kind.ROUND:
            place = replace(place, samples=None)
        return Value(
            place if place.kind is not Kind.SHARD else own("gathered before"),
            self.run.reason(node, text, inner),
        )

    def _name(self, called: Value, node: ast.AST) -> str:
        for ref in called.refs:
            if isinstance(ref, Library):
                return ref.name
            if isinstance(ref, Bound) and isinstance(ref.method, str) and ref.method != "__call__":
                return ref.method
        return self.run.segment(getattr(node, "func", node))


@lru_cache(maxsize=64)
def _left_alone(tree: ast.Module | None) -> frozenset[ast.AST]:
    """The expressions of a module that are statements: nothing takes what they give."""
    nodes = ast.walk(tree) if tree is not None else ()
    return frozenset(one.value for one in nodes if isinstance(one, ast.Expr))


def _waits_for_items(node: ast.AST) -> bool:
    """Whether a function takes from a queue in a loop: `item = queue.get()`."""
    return any(
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in ("get", "get_nowait")
        and not call.args
        for loop in ast.walk(node)
        if isinstance(loop, ast.While)
        for call in ast.walk(loop)
    )
