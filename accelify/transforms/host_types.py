"""Tests for the CPU's tensor types, of tensors that prepare puts on the device.

isinstance(x, torch.LongTensor)       ->  isinstance(x, (torch.LongTensor, torch.cuda.LongTensor))
x.type() == "torch.FloatTensor"       ->  x.type() in ("torch.FloatTensor", "torch.cuda.FloatTensor")
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from accelify.analysis.devices.tensor_makers import DEVICE, HOST
from accelify.findings import Severity
from accelify.transforms.base import Change, Context, Rule
from accelify.writer import edits as verbs
from accelify.writer.edits import Edit

HOST_TYPE = Rule(
    "ACC121",
    "A batch that prepare puts on the device is tested for a tensor type of the CPU, which it no longer has.",
    Severity.ERROR,
    done="made tests of tensor types know types of the GPU",
)
_HOST_TYPE = re.compile(r"torch\.(\w+Tensor)")


def transform(context: Context) -> Iterator[Change]:
    """Yield the edits that make the tests accept the device's types, too."""
    tree = context.tree
    if context.plan.arguments.get("cpu") == "True":
        return
    if not (tree.mentions("isinstance") or tree.mentions(".type()")):
        return
    for call in context.script.calls():
        if isinstance(call.func, ast.Name) and call.func.id == "isinstance" and len(call.args) == 2:
            yield from _instance(context, call)
    for compare in context.tree.nodes(ast.Compare):
        if isinstance(compare.left, ast.Call) and isinstance(compare.left.func, ast.Attribute):
            yield from _named(context, compare, compare.left.func)


def _comes_to_the_device(context: Context, node: ast.expr) -> bool:
    before, after = context.locations
    return DEVICE in after.of(node) and before.of(node) == {HOST}


def _instance(context: Context, call: ast.Call) -> Iterator[Change]:
    """The GPU's types beside the CPU's of an `isinstance`."""
    if not _comes_to_the_device(context, call.args[0]):
        return
    given, qualname = call.args[1], context.script.qualname
    types = given.elts if isinstance(given, ast.Tuple) else [given]
    found = [_HOST_TYPE.fullmatch(qualname(one) or "") for one in types]
    names = {match[1] for match in found if match}
    known = {(qualname(one) or "").removeprefix("torch.cuda.") for one in types}
    added = "".join(f", torch.cuda.{name}" for name in sorted(names - known))
    if added:
        pieces = [piece for one in types for piece in (", ", one)][1:]
        yield _change(context, call.args[0], call, [verbs.replace(given, "(", *pieces, f"{added})")])


def _named(context: Context, compare: ast.Compare, asked: ast.Attribute) -> Iterator[Change]:
    """`x.type() == "torch.FloatTensor"`."""
    text = compare.comparators[0]
    if asked.attr != "type" or len(compare.ops) != 1 or not isinstance(compare.ops[0], (ast.Eq, ast.NotEq)):
        return
    match = _HOST_TYPE.fullmatch(text.value) if _is_text(text) else None  # type: ignore[attr-defined]
    assert isinstance(compare.left, ast.Call)
    if match is None or compare.left.args:
        return
    if not _comes_to_the_device(context, asked.value):
        return
    tree = context.tree
    quoted = tree.segment(text)
    other = quoted.replace("torch.", "torch.cuda.", 1)
    word = "in" if isinstance(compare.ops[0], ast.Eq) else "not in"
    edit = verbs.replace(compare, compare.left, f" {word} ({quoted}, {other})")
    yield _change(context, asked.value, compare, [edit])


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _change(context: Context, tensor: ast.expr, node: ast.expr, edits: list[Edit]) -> Change:
    message = f"`{context.tree.segment(tensor)}` is on the device, where its type is another one"
    return context.change(HOST_TYPE, node, message, edits, core=True)
