"""Evaluating plain expressions abstractly: constants, containers, conditions, sums and comprehensions."""

from __future__ import annotations

import ast

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.data.indirect_loaders import gone_through
from accelify.analysis.devices.composed_device_texts import is_numbered_gpu
from accelify.analysis.interpretation.state import State
from accelify.analysis.interpretation.torch_calls import is_of, kinds_of
from accelify.analysis.program import Module
from accelify.analysis.scopes import Scope
from accelify.analysis.values import Entity, Mapping, Sequence, Values


class Expressions(State):
    """What the interpreter makes of the expressions that are neither names, attributes, subscripts nor calls."""

    def _constant(self, module: Module, scope: Scope, node: ast.Constant) -> Values:
        if isinstance(node.value, str) and k.DEVICE_TEXT.match(node.value):
            return {self.entity(node, "device", v.DEVICE, module)}
        return set()

    def _either(self, module: Module, scope: Scope, node: ast.IfExp) -> Values:
        self.evaluate(module, scope, node.test)
        return self.evaluate(module, scope, node.body) | self.evaluate(module, scope, node.orelse)

    def _condition(self, module: Module, scope: Scope, node: ast.BoolOp) -> Values:
        found: Values = set()
        for value in node.values:
            found |= self.evaluate(module, scope, value)
        flags = {w for w in found if isinstance(w, Entity) and w.kind == v.FLAG}
        return {self.entity(node, "flag", v.FLAG, module)} if flags else found

    def _unary(self, module: Module, scope: Scope, node: ast.UnaryOp) -> Values:
        found = self.evaluate(module, scope, node.operand)
        if isinstance(node.op, ast.Not):
            return {self.entity(node, "flag", v.FLAG, module)} if kinds_of(found) & {v.FLAG} else set()
        return self.tensor_from(module, node, found)

    def _binary(self, module: Module, scope: Scope, node: ast.BinOp) -> Values:
        left, right = self.evaluate(module, scope, node.left), self.evaluate(module, scope, node.right)
        both = left | right
        if isinstance(node.op, ast.Mult) and isinstance(node.left, ast.List):
            # `[None] * 3`, which is filled later.
            repeated = self._container(node, Sequence)
            for value in left:
                self.add(repeated.rest, value.any() if isinstance(value, Sequence) else set())
            return {repeated}
        if is_numbered_gpu(node):
            return {self.entity(node, "device", v.DEVICE, module)}
        if isinstance(node.op, ast.Add) and _are_lists(both):
            return both
        return self.tensor_from(module, node, both)

    def grown(self, module: Module, scope: Scope, node: ast.AugAssign) -> Values:
        """What a name holds besides after `name += value`, where a list grows by it."""
        more = self.evaluate(module, scope, node.value)
        return more if isinstance(node.op, ast.Add) and _are_lists(more) else set()

    def _joined(self, module: Module, scope: Scope, node: ast.JoinedStr) -> Values:
        return {self.entity(node, "device", v.DEVICE, module)} if is_numbered_gpu(node) else set()

    def _comprehended(
        self, module: Module, scope: Scope, node: ast.ListComp | ast.GeneratorExp | ast.SetComp
    ) -> Values:
        made = self._container(node, Sequence)
        self.add(made.rest, self.evaluate(module, scope, node.elt))
        for part in gone_through(node.generators[0].target, node.generators[0].iter, node.elt):
            self.add(made.gone_through, self.evaluate(module, scope, part))
        return {made}

    def _comprehended_mapping(self, module: Module, scope: Scope, node: ast.DictComp) -> Values:
        mapping = self.entities.setdefault((node, "mapping"), Mapping())
        assert isinstance(mapping, Mapping)
        self.add(mapping.rest, self.evaluate(module, scope, node.value))
        return {mapping}

    def _inner(self, module: Module, scope: Scope, node: ast.Starred | ast.Await | ast.NamedExpr) -> Values:
        return self.evaluate(module, scope, node.value)

    def _container(self, node: ast.AST, kind: type[Sequence]) -> Sequence:
        found = self.entities.setdefault((node, "sequence"), kind())
        assert isinstance(found, Sequence)
        return found

    def _sequence(self, module: Module, scope: Scope, node: ast.Tuple | ast.List) -> Values:
        made = self._container(node, Sequence)
        for index, element in enumerate(node.elts):
            values = self.evaluate(module, scope, element)
            if isinstance(element, ast.Starred):
                for value in tuple(values):
                    self.add(made.rest, self.element_values(module, element, value))
                values = set()
            while len(made.elements) <= index:
                made.elements.append(set())
            self.add(made.elements[index], values)
        return {made}

    def _mapping(self, module: Module, scope: Scope, node: ast.Dict) -> Values:
        made = self.entities.setdefault((node, "mapping"), Mapping())
        assert isinstance(made, Mapping)
        for key, value in zip(node.keys, node.values, strict=True):
            values = self.evaluate(module, scope, value)
            if isinstance(key, ast.Constant):
                self.add(made.entries.setdefault(key.value, set()), values)
            else:
                self.add(made.rest, values)
        return {made}


def _are_lists(values: Values) -> bool:
    """Whether values can be lists, those of a model's parameters among them."""
    return any(isinstance(w, Sequence) or is_of(w, v.PARAMETERS) for w in values)
