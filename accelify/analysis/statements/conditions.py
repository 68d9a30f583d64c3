"""What the condition of a branch asks for."""

from __future__ import annotations

import ast
import re

from accelify.analysis.syntax import Tree, calls_in, text_of

# What counts the devices of a machine, and options that ask for several.
_DEVICE_COUNT = re.compile(r"gpu|device", re.IGNORECASE)
_SEVERAL_DEVICES = re.compile(r"(multi|data)_?(gpu|parallel|device)|parallel$", re.IGNORECASE)


# Calls that only read properties of the machine, an object or a text.
_LOOKS = (
    "is_available", "device_count", "len", "isinstance", "hasattr", "type",
    ".startswith", ".endswith", ".lower", ".upper",
)  # fmt: skip


def only_reads(test: ast.expr) -> bool:
    """Whether a condition does nothing but look: names, comparisons, questions about the machine."""
    return all(
        isinstance(n.func, (ast.Name, ast.Attribute)) and text_of(n.func).endswith(_LOOKS)
        for n in calls_in(test)
    )


def around_alone(tree: Tree, branch: ast.If) -> ast.If:
    """The branch around others in which nothing else is: `if type(ids) is list:` around `if len(ids) > 1:`."""
    outer = tree.parent(branch)
    while isinstance(outer, ast.If) and outer.body == [branch] and not outer.orelse:
        if tree.is_elif(outer) or not only_reads(outer.test):
            break
        branch, outer = outer, tree.parent(outer)
    return branch


def asks_for_several(test: ast.expr) -> bool:
    """`torch.cuda.device_count() > 1`, `args.multi_gpu`, or several such conditions."""
    if isinstance(test, ast.BoolOp):
        return isinstance(test.op, ast.And) and any(map(asks_for_several, test.values))
    if isinstance(test, ast.Compare):
        limit = test.comparators[0]
        more = isinstance(test.ops[0], ast.Gt) and isinstance(limit, ast.Constant) and limit.value == 1
        return more and bool(_DEVICE_COUNT.search(text_of(test.left)))
    return isinstance(test, (ast.Name, ast.Attribute)) and bool(_SEVERAL_DEVICES.search(text_of(test)))
