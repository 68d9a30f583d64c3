"""Evaluating calls of what Python has built in: of its functions, and of the methods of lists and dictionaries."""

from __future__ import annotations

import ast

from accelify.analysis import values as v
from accelify.analysis.interpretation.expressions import Expressions
from accelify.analysis.interpretation.torch_calls import TENSOR_KINDS, is_of, kinds_of, of_kind
from accelify.analysis.program import Module
from accelify.analysis.scopes import Scope
from accelify.analysis.values import Entity, Function, Mapping, Sequence, Values


class BuiltinCalls(Expressions):
    """What such calls return to the interpreter, and what they fill."""

    def _container_method(
        self, node: ast.Call, base: Mapping | Sequence, name: str, arguments: list[Values]
    ) -> Values:
        self.reads.container(base)
        if isinstance(base, Sequence):
            if name in ("append", "add", "insert", "extend"):
                base.filled.add(node)
            if name in ("append", "add", "insert") and arguments:
                self.add(base.rest, arguments[-1])
            elif name == "extend" and arguments:
                for value in tuple(arguments[0]):
                    if isinstance(value, Sequence):
                        self.reads.container(value)
                        self.add(base.rest, value.any())
                    elif is_of(value, v.PARAMETERS):
                        self.add(base.rest, {value})
            if name in ("__iter__", "copy"):
                return {base}
            return base.any() if name in ("pop", "next", "__next__") else set()
        if name == "values":
            made = self._container(node, Sequence)
            self.add(made.rest, base.get(object()))
            return {made}
        if name == "items":
            made = self._container(node, Sequence)
            pair = self.entities.setdefault((node, "pair"), Sequence([set(), set()]))
            assert isinstance(pair, Sequence)
            self.add(pair.elements[1], base.get(object()))
            self.add(made.rest, {pair})
            return {made}
        if name in ("get", "pop"):
            key = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else object()
            return base.get(key)
        return set()

    def _builtin(
        self, module: Module, scope: Scope, node: ast.Call, name: str, arguments: list[Values]
    ) -> Values:
        first = arguments[0] if arguments else set()
        if name == "enumerate":
            pair = self.entities.setdefault((node, "pair"), Sequence([set(), set()]))
            assert isinstance(pair, Sequence)
            for value in first:
                self.add(pair.elements[1], self.element_values(module, node, value))
            made = self._container(node, Sequence)
            self.add(made.rest, {pair})
            # What is enumerated is still known as a loop over the loader.
            self.add(made.elements[0] if made.elements else _grow(made), set())
            return {made}
        if name == "zip":
            pair = self.entities.setdefault((node, "pair"), Sequence([set() for _ in arguments]))
            assert isinstance(pair, Sequence)
            for index, values in enumerate(arguments):
                for value in tuple(values):
                    if index < len(pair.elements):
                        self.add(pair.elements[index], self.element_values(module, node, value))
            made = self._container(node, Sequence)
            self.add(made.rest, {pair})
            return {made}
        if name in ("iter", "reversed") and kinds_of(first) & {v.LOADER, v.ITERATOR, v.UNKNOWN}:
            iterator = self.entity(node, "iterator", v.ITERATOR, module)
            self.link(iterator, "iterated", first)
            return {iterator}
        if name == "next":
            found: Values = set()
            for value in first:
                cls = value.cls if isinstance(value, Entity) and value.kind == v.INSTANCE else None
                own = cls.method("__next__") if cls is not None else None
                if own is not None:
                    drawn = Function(own[1], own[0].module, value)
                    found |= self.call_function(module, scope, node, drawn, [], {})
                else:
                    found |= self.element_values(module, node, value)
            return found
        if name in ("list", "tuple", "sorted", "reversed", "iter"):
            return first
        if name in ("map", "filter") and len(arguments) > 1:
            if name == "filter":
                return arguments[1]
            made = self._container(node, Sequence)
            self.add(made.gone_through, arguments[1])
            for value in arguments[1]:
                self.add(made.rest, self.element_values(module, node, value))
            return {made}
        if name == "getattr" and len(node.args) > 1:
            target = node.args[1]
            if isinstance(target, ast.Constant) and isinstance(target.value, str):
                return {w for base in first for w in self.attribute(base, target.value, module)}
            return {self.entity(node, "result", v.UNKNOWN, module)}
        if name in ("sum", "max", "min", "abs"):
            flat: Values = set()
            for value in first:
                self.reads.container(value)
                flat |= value.any() if isinstance(value, Sequence) else {value}
            return self.tensor_from(module, node, flat)
        if name == "super":
            return set()
        return set()

    def _dict(
        self, module: Module, node: ast.Call, arguments: list[Values], keywords: dict[str | None, Values]
    ) -> Values:
        """A dictionary of what `dict(x=x.cuda())` names, and the tensors in `dict(batch)`, `dict((k, v) for ...)`, or
        the parameters in `dict(model.named_parameters())`."""
        mapping = self.entities.setdefault((node, "mapping"), Mapping())
        assert isinstance(mapping, Mapping)
        for value in arguments[0] if arguments else ():
            for element in self.element_values(module, node, value):
                pair = isinstance(element, Sequence) and len(element.elements) == 2
                contained = element.elements[1] if isinstance(element, Sequence) and pair else {element}
                self.add(mapping.rest, tensors_of(contained) | of_kind([contained], v.PARAMETERS))
        for key, values in keywords.items():
            if key is not None:
                self.add(mapping.entries.setdefault(key, set()), values)
            else:
                self.add(mapping.rest, tensors_of(values))
        return {mapping}


def tensors_of(contained: Values) -> Values:
    return {w for w in contained if isinstance(w, Entity) and w.kind in TENSOR_KINDS}


def _grow(sequence: Sequence) -> Values:
    return sequence.rest


# The function for each kind of expression; the others have no known value.
