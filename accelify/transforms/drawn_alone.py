"""Random numbers in what only the main process does: drawn by all, or its stream is ahead of the others' from there on.

writer = SummaryWriter(f"runs/{random.random()}")    ->  drawn = f"runs/{random.random()}"
                                                         writer = (
                                                             SummaryWriter(drawn)
                                                             if accelerator.is_main_process else None
                                                         )
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence

from accelify.analysis.files.effects import RANDOM
from accelify.analysis.syntax import names_in, walk
from accelify.transforms.base import Change, Context, Rule
from accelify.writer import edits as verbs
from accelify.writer.edits import Edit, InsertBefore, PutUnder, Replace

DRAWN = Rule(
    "ACC215",
    "Random numbers that one process draws alone put its stream ahead of the others'.",
    effort=3,
    done="drew random numbers on every process alike",
)
_GUARD = re.compile(r"if [\w.]+\.is_(local_)?main_process:$")
_CHOICE = re.compile(r" if [\w.]+\.is_(local_)?main_process else None$")
# Names of the modules that draw nothing.
_NO_DRAW = frozenset(
    """seed manual_seed manual_seed_all Random SystemRandom RandomState default_rng Generator getstate setstate
    get_state set_state""".split()
)
_PLAIN = frozenset(
    "builtins.len builtins.int builtins.range builtins.str builtins.list builtins.min builtins.max".split()
)


def transform(context: Context, changes: Sequence[Change]) -> Iterator[Change]:
    """Yield a line before what is left to the main process, for each draw that is sure to be made there.

    Args:
        context: with all that is known.
        changes: what the other transforms yield.
    """
    edits = [edit for change in changes for edit in change.edits]
    alone = [nodes for edit in edits if (nodes := _left_alone(context, edit))]
    edited = {verbs.node_of(edit) for edit in edits} if alone else set()
    count = 0
    for nodes in alone:
        stored = {
            n.id
            for one in nodes
            for n in walk(one)
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
        first = nodes[0] if isinstance(nodes[0], ast.stmt) else context.tree.statement(nodes[0])
        lines: list[str] = []
        replaced: list[Edit] = []
        for drawn in _drawn(context, nodes):
            text = context.tree.segment(drawn)
            if names_in(drawn) & stored or "\n" in text or edited & set(walk(drawn)):
                continue
            count += 1
            while context.tree.mentions(name := "drawn" if count == 1 else f"drawn_{count}"):
                count += 1
            lines.append(f"{name} = {text}")
            replaced.append(verbs.replace(drawn, name))
        if lines:
            message = "the main process would draw random numbers alone, and then others than all the rest"
            yield context.change(
                DRAWN, nodes[0], message, [InsertBefore(first, tuple(lines), order=-50), *replaced]
            )


def _left_alone(context: Context, edit: Edit) -> list[ast.AST]:
    """What an edit leaves to the main process."""
    if isinstance(edit, PutUnder) and _GUARD.match(edit.header) and not edit.otherwise:
        block = context.tree.block_of(edit.first)[2]
        return list(block[block.index(edit.first) : block.index(edit.last) + 1])
    if isinstance(edit, Replace) and len(edit.pieces) == 2 and edit.pieces[0] is edit.node:
        done = isinstance(context.tree.parent(edit.node), ast.stmt)
        return [edit.node] if done and _CHOICE.match(str(edit.pieces[1])) else []
    return []


def _drawn(context: Context, nodes: Iterable[ast.AST]) -> Iterator[ast.expr]:
    """The draws that are made whenever some nodes run; of one in an f-string all of that text."""
    for node in nodes:
        if isinstance(node, ast.Call) and _draws(context, node):
            if all(_is_plain(context, n) for n in walk(node) if isinstance(n, ast.Call)):
                yield node
        elif isinstance(node, ast.JoinedStr):
            calls = [n for n in walk(node) if isinstance(n, ast.Call)]
            if any(_draws(context, n) for n in calls) and all(_is_plain(context, n) for n in calls):
                yield node
        else:
            yield from _drawn(context, _surely_run(node))


def _surely_run(node: ast.AST) -> list[ast.AST]:
    """The parts of a node that run whenever it does, once each."""
    match node:
        case (
            ast.Expr(value=value)
            | ast.Assign(value=value)
            | ast.AugAssign(value=value)
            | ast.keyword(value=value)
        ):
            return [value]
        case ast.AnnAssign(value=ast.expr() as value) | ast.Attribute(value=value) | ast.Starred(value=value):
            return [value]
        case ast.Subscript(value=value, slice=index):
            return [value, index]
        case ast.Call(func=func, args=args, keywords=keywords):
            return [func, *args, *keywords]
        case ast.BinOp(left=left, right=right):
            return [left, right]
        case ast.UnaryOp(operand=value):
            return [value]
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
            return list(parts)
        case ast.Dict(keys=keys, values=values):
            return [*(key for key in keys if key is not None), *values]
        case ast.BoolOp(values=values):
            return [values[0]]
        case ast.If(test=test) | ast.IfExp(test=test):
            return [test]
        case ast.For(iter=iterated):
            return [iterated]
        case ast.With(items=items, body=body):
            return [*(item.context_expr for item in items), *body]
    return []


def _draws(context: Context, call: ast.Call) -> bool:
    name = context.script.qualname(call.func) or ""
    return name.startswith(RANDOM) and name.rpartition(".")[2] not in _NO_DRAW


def _is_plain(context: Context, call: ast.Call) -> bool:
    """Whether a call does nothing but draw or count."""
    return _draws(context, call) or context.script.qualname(call.func) in _PLAIN
