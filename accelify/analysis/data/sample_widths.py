"""Widths that a function computes from its samples: from the longest, or the shortest.

n = max(x.size(0) for x in samples)       samples.sort(key=len)        if len(x) > n:
rows = torch.zeros(len(samples), n)       n = len(samples[0])              n = len(x)

What is put together by such a width has another one in every batch. The number of samples is no width, nor is the size
of the first of them, where nobody has brought them into order.
"""

from __future__ import annotations

import ast
import re

from accelify.analysis.syntax import call_keyword, dotted, target_names, walk

_EXTREMES = frozenset({"max", "min", "amax", "amin", "nanmax"})
_LENGTHS = re.compile(r"(^|_)(len|lens|length|lengths)($|_)|lens$|lengths?$", re.I)
_DEEPEST = 3


def width_of_samples(body: ast.AST) -> ast.AST | None:
    """The node that computes the width of the longest, or shortest, of the samples that a function gets."""
    samples = _Samples(body)
    for node in walk(body):
        if isinstance(node, ast.Call) and (samples.is_extreme(node) or samples.are_ordered(node)):
            return node
        if isinstance(node, ast.If) and samples.keeps_the_longer(node):
            return node
    return None


class _Samples:
    """Which expressions of a function are the length of a sample."""

    def __init__(self, body: ast.AST) -> None:
        arguments = getattr(body, "args", None)
        # What holds all samples: its length is their number.
        self.every = {a.arg for a in arguments.args} if isinstance(arguments, ast.arguments) else set()
        self.made: dict[str, ast.expr] = {}
        for stmt in walk(body):
            if not isinstance(stmt, ast.Assign):
                continue
            for name in (n for t in stmt.targets for n in target_names(t)):
                self.made[name] = stmt.value
                if isinstance(stmt.value, ast.ListComp) or _puts_in_order(stmt.value):
                    self.every.add(name)

    def is_extreme(self, call: ast.Call) -> bool:
        """`max(len(x) for x in samples)`, `lengths.max()`."""
        if _last(call) not in _EXTREMES:
            return False
        if isinstance(call.func, ast.Name) and len(call.args) > 1:
            # n = max(n, len(x)); of two others, it is the length to which one sample is cut.
            names = {a.id for a in call.args if isinstance(a, ast.Name)}
            if not any(self.made.get(name) is call for name in names):
                return False
        return any(self._has_length(part, 0) for part in _taken(call))

    def are_ordered(self, call: ast.Call) -> bool:
        """`samples.sort(key=len)`, `sorted(samples, key=...)`, `max(samples, key=...)`, `lengths.sort()`."""
        if _last(call) in ("sort", "argsort") and call_keyword(call, "key") is None:
            return any(self._has_length(part, 0) for part in _taken(call))
        if _last(call) not in ("sort", "sorted", "max", "min") or call_keyword(call, "key") is None:
            return False
        return any(isinstance(part, ast.Name) and part.id in self.every for part in _taken(call))

    def keeps_the_longer(self, branch: ast.If) -> bool:
        """`if len(x) > n: n = len(x)`."""
        test = branch.test
        if not isinstance(test, ast.Compare) or len(test.ops) != 1:
            return False
        sides = [test.left, test.comparators[0]]
        names = {dotted(side) for side in sides} - {None}
        return any(
            isinstance(stmt, ast.Assign) and names & {dotted(t) for t in stmt.targets}
            for stmt in branch.body
            if any(self._has_length(side, 0) for side in sides)
        )

    def _has_length(self, node: ast.expr, depth: int) -> bool:
        return any(self._is_length(n, depth) for n in walk(node))

    def _is_length(self, node: ast.AST, depth: int) -> bool:
        if isinstance(node, ast.Call):
            if dotted(node.func) == "len" and len(node.args) == 1:
                return dotted(node.args[0]) not in self.every
            if dotted(node.func) == "map" and len(node.args) == 2:
                return dotted(node.args[0]) == "len"
            return isinstance(node.func, ast.Attribute) and node.func.attr == "size" and _is_dimension(node)
        if isinstance(node, ast.Subscript):
            return isinstance(node.value, ast.Attribute) and node.value.attr == "shape"
        if not isinstance(node, ast.Name) or node.id not in self.made or depth > _DEEPEST:
            return isinstance(node, ast.Name) and bool(_LENGTHS.search(node.id)) and node.id != "len"
        return bool(_LENGTHS.search(node.id)) or self._has_length(self.made[node.id], depth + 1)


def _last(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _taken(call: ast.Call) -> list[ast.expr]:
    return [*call.args, call.func.value] if isinstance(call.func, ast.Attribute) else call.args


def _is_dimension(call: ast.Call) -> bool:
    return len(call.args) <= 1 and all(
        isinstance(a, (ast.Constant, ast.UnaryOp, ast.Name)) for a in call.args
    )


def _puts_in_order(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and dotted(value.func) in ("sorted", "list", "zip", "tuple")
