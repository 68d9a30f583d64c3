"""Losses read as a tensor of one element, as in torch 0.3: since 0.5 a number has no index, and the read fails.

total += loss.data[0]    ->  total += loss.item()
total += loss.data.cpu().numpy()[0]  ->  the same
print(accuracy.data[0])      (a finding, where it is not seen whether that is one number)
figures = evaluate(model)    (a finding, where `evaluate` of a module that is not converted reads `loss.data[0]`)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from accelify.analysis.losses.scalar_losses import ScalarLosses
from accelify.analysis.modules.called_unconverted import come_to
from accelify.analysis.syntax import Node, is_constant, text_of
from accelify.findings import Severity
from accelify.transforms.base import Change, Context, Rule
from accelify.writer import edits as verbs

OLD_ITEM = Rule(
    "ACC124",
    "A loss is one number, which cannot be indexed.",
    Severity.ERROR,
    effort=1,
    done="wrote loss.item() for loss.data[0]",
)


_TAKING = frozenset({"cpu", "detach", "numpy"})
# What holds one number by its name.
_NUMBER = re.compile(r"loss|err|acc|cost|penalt|kld?|nll|entropy|elbo|correct", re.I)


def transform(context: Context) -> Iterator[Change]:
    """Yield the edits of losses that are read by `.data[0]`, and findings where others may be such."""
    yield from _elsewhere(context)
    tree = context.tree
    if not tree.mentions(".data[") and not tree.mentions("()["):
        return
    scalars = ScalarLosses(context.script)
    others: list[tuple[ast.Subscript, ast.expr]] = []
    fixed = False
    for node, contained in _reads(context.tree.nodes(ast.Subscript)):
        if not scalars.has(contained):
            others.append((node, contained))
            continue
        edit = verbs.replace(node, contained, ".item()", yielding=True)
        message = f"`{tree.segment(node)}` ends with an IndexError since torch 0.5: a loss has no elements"
        fixed = True
        yield context.change(OLD_ITEM, node, message, [edit])
    # A script that reads losses as torch 0.3 had them reads all its numbers so.
    if fixed:
        yield from _left(context, scalars, others)


def _left(
    context: Context, scalars: ScalarLosses, others: list[tuple[ast.Subscript, ast.expr]]
) -> Iterator[Change]:
    """Name what else may be one number, once in each function."""
    known: dict[tuple[object, str], list[ast.Subscript]] = {}
    for node, contained in others:
        if _may_be_number(context, scalars, node, contained):
            known.setdefault((context.script.scope_of(node), text_of(node)), []).append(node)
    for (_, text), nodes in known.items():
        lines = ", ".join(str(context.tree.line_of(n)) for n in nodes[1:])
        also = f" (also in line{'s' if len(nodes) > 2 else ''} {lines})" if lines else ""
        number = text_of(_contained(nodes[0].value))
        message = (
            f"`{text}` ends with an IndexError since torch 0.5 if `{number}` is one number, as named; "
            f"write `{number}.item()` then{also}"
        )
        yield context.change(OLD_ITEM, nodes[0], message, severity=Severity.WARNING)


def _elsewhere(context: Context) -> Iterator[Change]:
    """Report the losses that functions of modules which are not converted read so, at the call that reaches them."""
    for call, module, scope in come_to(context.script, b".data["):
        found = [node for node, contained in _reads(scope.nodes) if _is_named_loss(contained)]
        if found and module.path is not None:
            text, number = text_of(found[0]), text_of(_contained(found[0].value))
            message = (
                f"`{scope.name.rpartition('.')[2]}` reads `{text}` ({module.path.name}, line {found[0].lineno}), which "
                f"ends with an IndexError since torch 0.5 if `{number}` is one number, as named; write "
                f"`{number}.item()` there"
            )
            yield context.change(OLD_ITEM, call, message, severity=Severity.WARNING)


def _is_named_loss(contained: ast.expr) -> bool:
    return str(getattr(contained, "attr", getattr(contained, "id", ""))).lower().endswith("loss")


def _reads(nodes: Iterable[Node]) -> Iterator[tuple[ast.Subscript, ast.expr]]:
    """Each `x.data[0]` or `x.data.cpu().numpy()[0]` that is read, with its `x`."""
    for node in nodes:
        if isinstance(node, ast.Subscript) and is_constant(node.slice, 0) and isinstance(node.ctx, ast.Load):
            contained = _contained(node.value)
            if contained is not node.value:
                yield node, contained


def _contained(node: ast.expr) -> ast.expr:
    """The tensor whose value is taken to the host step by step."""
    while True:
        if isinstance(node, ast.Attribute) and node.attr == "data":
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.args:
            if node.func.attr not in _TAKING or node.keywords:
                return node
            node = node.func.value
        else:
            return node


def _may_be_number(context: Context, scalars: ScalarLosses, node: ast.Subscript, contained: ast.expr) -> bool:
    """Whether what is read is named like one number, used as one, and not seen to be several."""
    last = getattr(contained, "attr", getattr(contained, "id", ""))
    several = last.endswith("s") and not last.endswith("loss")
    if several or not _NUMBER.search(last):
        return False
    used = context.tree.parent(node)
    return not isinstance(used, (ast.Attribute, ast.Subscript)) and not scalars.has_many(contained)
