"""Calls of objects: models, prepared ones too, and objects of classes that can be called."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from accelify.domains.placement import Kind, Placement
from accelify.heap.locations import meet_model
from accelify.heap.values import Instance, Value

if TYPE_CHECKING:
    from accelify.heap.interpreter import Interpreter


class ObjectCalls:
    """Makes calls of objects."""

    def __init__(self, engine: Interpreter) -> None:
        self.engine = engine
        self.run = engine.run
        # Whether a model is being gone through.
        self._in_model = False

    def call(
        self, ref: Instance, args: Sequence[Value], keywords: Mapping[str, Value], node: ast.AST
    ) -> Value:
        if self.run.checks and ref.kind == "module" and not ref.prepared:
            return self._unprepared_called(ref, args, keywords, node)
        return self._called(ref, args, keywords, node)

    def _unprepared_called(
        self, ref: Instance, args: Sequence[Value], keywords: Mapping[str, Value], node: ast.AST
    ) -> Value:
        if self._in_model:
            return self._called(ref, args, keywords, node)
        self.run.meet("forward", node, self.run.segment(node), detail="unprepared")
        self._in_model = True
        try:
            return self._called(ref, args, keywords, node)
        finally:
            self._in_model = False

    def _called(
        self, ref: Instance, args: Sequence[Value], keywords: Mapping[str, Value], node: ast.AST
    ) -> Value:
        if ref.kind == "module":
            inner = next(iter(ref.wrapped.of(Instance)), None) if ref.wrapped is not None else None
            meet_model(self.run, node, ref, inner, [*args, *keywords.values()])
        if ref.prepared and ref.wrapped is not None:
            self.run.depends()
            if ref.kind == "module" and (self.run.guards or self.run.checks):
                self.run.meet("forward", node, self.run.segment(getattr(node, "func", node)))
            if ref.kind == "object" and ref.cls is None:
                return self.engine.calls.libraries.unknown_calls.method(
                    Value(refs=(ref,)), ref, "__call__", args, keywords, node
                )
            before, self._in_model = self._in_model, self._in_model or ref.kind == "module"
            try:
                return self.engine.calls.call(ref.wrapped, args, keywords, node)
            finally:
                self._in_model = before
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
