"""Calls of objects: models, prepared ones too, and objects of classes that can be called."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from accelify.domains.placement import Kind, Placement
from accelify.domains.reasons import Reason
from accelify.heap.containers import tuple_of
from accelify.heap.frozen import is_frozen
from accelify.heap.locations import meet_model
from accelify.heap.model_parameters import STEPPED
from accelify.heap.models import ALONE, HOOKS, PRE_HOOKS, SENDS, has_parameters
from accelify.heap.moved import is_used
from accelify.heap.state import MODE_OF_ONE, mode_met, statistics_made
from accelify.heap.values import NONE, UNSET, Instance, Ref, Value, constant

if TYPE_CHECKING:
    from accelify.heap.interpreter import Interpreter


class ObjectCalls:
    """Makes calls of objects."""

    def __init__(self, engine: Interpreter) -> None:
        self.engine = engine
        self.run = engine.run
        # The hooks that are being called.
        self._hooks: list[Ref] = []
        # Whether a model is being gone through.
        self._in_model = False
        # By the number of a loop: whether a backward stands in it.
        self._training: dict[int, bool] = {}

    def call(
        self, ref: Instance, args: Sequence[Value], keywords: Mapping[str, Value], node: ast.AST
    ) -> Value:
        if ref.kind != "module":
            return self._called(ref, args, keywords, node)
        go = self._unprepared_called if self.run.checks and not ref.prepared else self._called
        with self.engine.calls.budgets.limited(ref.cls) as cut:
            made = go(ref, args, keywords, node)
        if cut:
            name = self.run.segment(getattr(node, "func", node))
            made = self.engine.calls.libraries.unknown_calls.model(name, args, keywords, node)
        self._hooked(ref, args, made, node)
        return made

    def _hooked(self, ref: Instance, args: Sequence[Value], made: Value, node: ast.AST) -> None:
        """The functions that a model calls with what it gets and gives, at each of its calls."""
        for name, last in ((PRE_HOOKS, ()), (HOOKS, (made,))):
            for hook in (self.run.read(ref, name) or NONE).refs:
                if hook not in self._hooks:
                    self._hooks.append(hook)
                    given = [Value(refs=(ref,)), tuple_of(self.run, args), *last]
                    self.engine.calls.call(Value(refs=(hook,)), given, {}, node)
                    self._hooks.pop()

    def _unprepared_called(
        self, ref: Instance, args: Sequence[Value], keywords: Mapping[str, Value], node: ast.AST
    ) -> Value:
        if self._in_model or not has_parameters(self.run, ref):
            return self._called(ref, args, keywords, node)
        whole = self.run.read(ref, "#prepared")
        passed = [whole] if whole is not None else []
        # Parts of a sharded model put their gradients together by themselves.
        if not (passed and self.run.in_place) and not is_frozen(self.run, ref):
            trained = whole is None and self.run.read(ref, STEPPED) is not None
            detail = "stepped" if trained else "unprepared"
            self.run.meet("forward", node, self.run.segment(node), passed, detail=detail)
        self._in_model = True
        try:
            return self._called(ref, args, keywords, node)
        finally:
            self._in_model = False

    def _called(
        self, ref: Instance, args: Sequence[Value], keywords: Mapping[str, Value], node: ast.AST
    ) -> Value:
        is_used(self.run, ref, node)
        if ref.kind == "module":
            inner = next(iter(ref.wrapped.of(Instance)), None) if ref.wrapped is not None else None
            meet_model(self.run, node, ref, inner, [*args, *keywords.values()])
            if not self._in_model:
                statistics_made(self.run, inner or ref, [*args, *keywords.values()], node)
        if ref.prepared and ref.wrapped is not None:
            self.run.depends()
            if ref.kind == "module":
                mode_met(self.run, ref, node)
            frozen = any(is_frozen(self.run, one) for one in ref.wrapped.of(Instance))
            if ref.kind == "module" and (self.run.guards or self.run.checks) and not frozen:
                name, sends = self.run.segment(getattr(node, "func", node)), self.run.read(ref, SENDS)
                trains = self.run.read(next(iter(ref.wrapped.of(Instance)), ref), MODE_OF_ONE)
                is_alone = sends is not None and (not sends.const or (trains and trains.const is False))
                self.run.meet("forward", node, name, [ref.wrapped, *([constant(ALONE)] if is_alone else [])])
            if ref.kind == "object" and ref.cls is None:
                made = self.engine.calls.libraries.unknown_calls.method(
                    Value(refs=(ref,)), ref, "__call__", args, keywords, node
                )
                return self._of_batch(made, [*args, *keywords.values()], node)
            before, self._in_model = self._in_model, self._in_model or ref.kind == "module"
            try:
                made = self.engine.calls.call(ref.wrapped, args, keywords, node)
            finally:
                self._in_model = before
            return self._of_batch(made, [*args, *keywords.values()], node) if ref.kind == "module" else made
        for method in ("__call__", "forward"):
            function = self.engine.attributes.method(ref, method)
            if function is not None:
                result = self.engine.calls.call_function(
                    function, [Value(refs=(ref,)), *args], keywords, node
                )
                return (
                    self.by_rows(ref, result, [*args, *keywords.values()], node)
                    if ref.kind == "module"
                    else result
                )
        return self.engine.calls.libraries.object_called(ref, args, keywords, node)

    def _of_batch(self, made: Value, operands: Sequence[Value], node: ast.AST) -> Value:
        """What a wrapped model gives in training of a batch of which nothing is known: each rank has its own."""
        run = self.run
        plain = (
            made.place.is_same
            and all(map(_is_unknown, made.refs))
            and run.checks
            and run.at_model
            and run.loops
        )
        unknown = plain and any(one.place.is_same and not one.type and one.const is UNSET for one in operands)
        if not unknown or run.loops[-1].whole is not None or not self._trains(run.loops[-1].number):
            return made
        place = Placement(Kind.ROUND, samples=None)
        batch = Value(place, Reason("this rank's batch, of which nothing is known", *run.loops[-1].place))
        return Value(place, run.reason(node, f"`{run.segment(node)}`", batch), type=made.type)

    def _trains(self, loop: int) -> bool:
        """Whether a backward stands in the loop of this number, in the module that is gone through."""
        if loop not in self._training:
            tree = self.run.module.tree
            body = [
                part
                for stmt in (ast.walk(tree) if tree is not None else ())
                if isinstance(stmt, ast.For) and id(stmt.iter) == loop
                for part in ast.walk(stmt)
            ]
            self._training[loop] = any(
                getattr(part, "attr", getattr(part, "id", "")) == "backward" for part in body
            )
        return self._training[loop]

    def by_rows(self, ref: Instance, result: Value, operands: Sequence[Value], node: ast.AST) -> Value:
        """A model's result that is not known to be right: assumed to be made row by row."""
        source = next(
            (value for value in operands if value.place.kind in (Kind.SHARD, Kind.WIDE, Kind.ROUND)), None
        )
        if source is None or result.place.kind is not Kind.OWN or result.refs:
            return result
        name = ref.cls.name if ref.cls is not None else ref.type
        self.run.assume(f"{name} works row by row", node)
        return Value(Placement(source.place.kind, source.place.degree, True), source.why, type="torch.Tensor")


def _is_unknown(ref: Ref) -> bool:
    """Whether it is an object of which nothing is known but what gave it."""
    return isinstance(ref, Instance) and ref.cls is None and ref.kind == "object" and not ref.prepared
