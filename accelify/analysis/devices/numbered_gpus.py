"""GPUs that are named by a number where something is put on them: `x.to(0)`, `Iterator(data, device=args.gpu)`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cached_property

from accelify.analysis.program import Module
from accelify.analysis.script import ScriptModel
from accelify.analysis.statements.option_defaults import option_defaults
from accelify.analysis.syntax import Tree, call_keyword

_NAMED = re.compile("gpu|cuda|device", re.IGNORECASE)
_PUTTING = frozenset({"to", "cuda"})
# Where a module puts something on a GPU that such a number names.
_PLACE = re.compile(
    rb"(?:\.to\(|\.cuda\(|\bdevice\s*=)\s*(?:\d|[\w.]*\.\w*(?:gpu|cuda|device))", re.IGNORECASE
)


class NumberedDevices:
    """Distinguishes the number of a GPU from other devices, by how it is written or by an option's default."""

    def __init__(self, script: ScriptModel) -> None:
        self.script = script

    def stands_in(self, tree: Tree) -> bool:
        """Whether the source of a module has what may be such a place."""
        return tree.mentions(_PLACE)

    def of(self, call: ast.Call) -> ast.expr | None:
        """What a call names its GPU by, where that is a number."""
        return next((one for one in _given(call) if self.is_number(one)), None)

    def is_number(self, node: ast.expr) -> bool:
        """Whether an expression is a number that is written, or an option that is one by default."""
        if isinstance(node, ast.Constant):
            return type(node.value) is int and node.value >= 0
        if not isinstance(node, ast.Attribute) or not _NAMED.search(node.attr):
            return False
        return type(self._defaults.get(node.attr)) is int and node.attr not in self._stored

    @property
    def _modules(self) -> list[Module]:
        return list(dict.fromkeys(self.script.program.modules.values()))

    @cached_property
    def _defaults(self) -> dict[str, object]:
        return option_defaults(self._modules)

    @cached_property
    def _stored(self) -> set[str]:
        """Options that the program gives another value: a device in the place of the number."""
        return {
            node.attr
            for module in self._modules
            for node in module.tree.nodes(ast.Attribute)
            if isinstance(node.ctx, ast.Store) and _NAMED.search(node.attr)
        }


def _given(call: ast.Call) -> Iterator[ast.expr]:
    stated = call_keyword(call, "device")
    if stated is not None:
        yield stated
    if isinstance(call.func, ast.Attribute) and call.func.attr in _PUTTING:
        yield from call.args[:1]
