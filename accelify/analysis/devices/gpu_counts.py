"""Numbers of GPUs of the machine, and the products with them that other numbers are computed from."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from accelify.analysis import knowledge as k
from accelify.analysis.schedules.steps import sources
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import call_argument, call_keyword, dotted, is_constant, walk

COUNTS = frozenset({"torch.cuda.device_count"})
_FAR = 4
_NAMES_OF_OPTIONS = re.compile(
    r"^((n|nb|num|number_of|no_of)_?)?gpus?$|^gpus?_?(n|num|number|count)$|^(n|num)_?devices$", re.I
)


class Product(NamedTuple):
    """A product with a number of GPUs, and the variable by which a number is computed from it; None for itself."""

    node: ast.BinOp | ast.AugAssign
    read: ast.Name | ast.Attribute | None


class DeviceCounts:
    """What a script computes from the number of GPUs of the machine.

    Args:
        script: its model.
    """

    def __init__(self, script: ScriptModel) -> None:
        self.script = script

    @cached_property
    def device_lists(self) -> list[ast.expr]:
        """The lists of GPUs that DataParallel gets, where they have a name."""
        wraps = self.script.calls_to(k.PARALLEL_WRAPPERS)
        given = [call_argument(call, 1, "device_ids") for call in wraps]
        return [ids for ids in given if isinstance(ids, (ast.Name, ast.Attribute))]

    @cached_property
    def are_asked(self) -> bool:
        """Whether the script asks for a number of GPUs at all."""
        return bool(self.script.calls_to(COUNTS) or self.device_lists)

    def is_count(self, node: ast.expr, far: int = 0) -> bool:
        """Whether an expression is the number of GPUs: the call, a name of it, or that and at least one."""
        if isinstance(node, ast.Call):
            if dotted(node.func) == "max" and len(node.args) == 2:
                return any(self.is_count(a, far) for a in node.args) and any(
                    isinstance(a, ast.Constant) for a in node.args
                )
            if dotted(node.func) == "len" and len(node.args) == 1:
                return any(self._is_same(node.args[0], given) for given in self.device_lists)
            return self.script.qualname(node.func) in COUNTS
        if isinstance(node, ast.IfExp):
            return any(self.is_count(a, far) for a in (node.body, node.orelse))
        if isinstance(node, (ast.Name, ast.Attribute)) and far < _FAR:
            given = [s for s in sources(self.script, node) if not isinstance(s, ast.Constant)]
            return bool(given) and all(self.is_count(s, far + 1) for s in given)
        return False

    def factor(self, node: ast.AST) -> ast.expr | None:
        """The number of GPUs by which something else is multiplied, in place or not; None where it is not."""
        if not isinstance(node, (ast.BinOp, ast.AugAssign)) or not isinstance(node.op, ast.Mult):
            return None
        if isinstance(node, ast.AugAssign):
            return node.value if self.is_count(node.value) else None
        counts = [side for side in (node.left, node.right) if self.is_count(side)]
        return counts[0] if len(counts) == 1 else None

    def stated(self, number: ast.expr) -> tuple[ast.BinOp, str] | None:
        """The product with a number of GPUs for a number, where an option or setting is known to be one by name."""
        makes = [number]
        if isinstance(number, (ast.Name, ast.Attribute)):
            makes += sources(self.script, number)
        for node in (inner for made in makes for inner in walk(made)):
            if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult) or self.factor(node):
                continue
            for side in (node.left, node.right):
                name = dotted(side) if isinstance(side, (ast.Name, ast.Attribute)) else None
                if name is not None and _NAMES_OF_OPTIONS.search(name.rpartition(".")[2]):
                    return node, name
        return None

    def products(self, number: ast.expr) -> Iterator[Product]:
        """The products with a number of GPUs that a number is computed from."""
        queue: list[tuple[ast.expr, ast.Name | ast.Attribute | None, int]] = [(number, None, 0)]
        seen = set[ast.expr]()
        while queue:
            node, read, far = queue.pop()
            if node in seen:
                continue
            seen.add(node)
            for inner in walk(node):
                if isinstance(inner, ast.BinOp):
                    if self.factor(inner) is not None:
                        yield Product(inner, read)
                elif isinstance(inner, (ast.Name, ast.Attribute)) and far < _FAR:
                    queue += [(value, inner, far + 1) for value in sources(self.script, inner)]
                    yield from (Product(stmt, inner) for stmt in self._times(inner))

    def given(self, call: ast.Call, index: int, name: str) -> Iterator[ast.expr]:
        """The values of a call's argument: passed directly, or in a dictionary, as in `DataLoader(data, **given)`."""
        value = call_argument(call, index, name)
        if value is not None:
            yield value
            return
        for given in [kw.value for kw in call.keywords if kw.arg is None]:
            yield from entries(given, name)
            if not isinstance(given, (ast.Name, ast.Attribute)):
                continue
            for source in sources(self.script, given):
                yield from entries(source, name)
            for stmt in self.script.tree.nodes(ast.Assign):
                target = stmt.targets[0]
                if isinstance(target, ast.Subscript) and is_constant(target.slice, name):
                    if self._is_same(target.value, given):
                        yield stmt.value

    def _times(self, read: ast.Name | ast.Attribute) -> Iterator[ast.AugAssign]:
        scope, name = self.script.scope_of(read), dotted(read)
        for stmt in self.script.tree.nodes(ast.AugAssign):
            if dotted(stmt.target) == name is not None and self.script.scope_of(stmt) is scope:
                if self.factor(stmt) is not None:
                    yield stmt

    def _is_same(self, node: ast.expr, given: ast.expr) -> bool:
        """Whether two expressions name one variable or attribute."""
        name, script = dotted(node), self.script
        if name is None or name != dotted(given):
            return False
        root = name.partition(".")[0]
        return script.scope_of(node).resolve(root) is script.scope_of(given).resolve(root)


def entries(given: ast.expr, name: str) -> Iterator[ast.expr]:
    """The entry of a name in a dictionary that is written out.

    Args:
        given: an expression.
        name: the key.
    """
    if isinstance(given, ast.Dict):
        yield from (
            value for key, value in zip(given.keys, given.values, strict=True) if is_constant(key, name)
        )
    elif isinstance(given, ast.Call) and dotted(given.func) == "dict":
        entry = call_keyword(given, name)
        yield from [entry] if entry is not None else []
