"""Faults in figures and in gradients: what is put together, over what, and with which operation."""

from __future__ import annotations

import ast

from tests.obligations.asking import (
    ALL_BATCH,
    IN_TRAINING,
    LOOPS,
    NOT_SHARED,
    ONE_BATCH,
    OWN_BATCH,
    OWN_RATE,
    TWICE_MEAN,
    Found,
    quotient,
    same_everywhere,
)
from tests.obligations.scripts import FUNCTIONS, GATHERS, Edit, Script, stored, word, words


def _taken_out(script: Script, call: ast.Call) -> list[Edit]:
    """A call that gives its argument, left out."""
    stmt = script.statement(call)
    whole = isinstance(stmt, ast.Assign) and stmt.value is call
    if whole and ast.dump(stmt.targets[0]).replace("Store", "Load") == ast.dump(call.args[0]):  # type: ignore[attr-defined]
        return [script.delete(stmt)]
    return [script.replace(call, script.segment(call.args[0]))]


def reduce_left_out(script: Script) -> Found:
    for call in script.calls("reduce"):
        why = _of_one_batch(script, call)
        yield script.mutant(
            "reduce left out", call, _taken_out(script, call), *words(call.args[0]), equivalent=why
        )


def reduce_of_one_left_out(script: Script) -> Found:
    """Of several values that are reduced at once, all but one."""
    yield from _of_one(script, "reduce of one left out", "reduce")


def gather_of_one_left_out(script: Script) -> Found:
    """Of several values that are gathered at once, all but one."""
    yield from _of_one(script, "gather of one left out", *GATHERS)


def _of_one(script: Script, kind: str, *methods: str) -> Found:
    for call in script.calls(*methods):
        stmt = script.statement(call)
        if not (
            isinstance(stmt, ast.Assign) and stmt.value is call and isinstance(stmt.targets[0], ast.Tuple)
        ):
            continue
        if not isinstance(call.args[0], ast.Tuple):
            continue
        targets = stmt.targets[0].elts
        rest = "".join(
            f", {script.segment(k.value) if k.arg is None else f'{k.arg}={script.segment(k.value)}'}"
            for k in call.keywords
        )
        for number, (target, one) in enumerate(zip(targets, call.args[0].elts, strict=True)):
            values = [
                script.segment(e)
                if i == number
                else f"{script.segment(call.func)}({script.segment(e)}{rest})"
                for i, e in enumerate(call.args[0].elts)
            ]
            yield script.mutant(
                kind, call, [script.replace(call, f"({', '.join(values)})")], *words(target), *words(one)
            )


def gather_left_out(script: Script) -> Found:
    for call in script.calls(*GATHERS):
        yield script.mutant("gather left out", call, _taken_out(script, call), *words(call.args[0]))


def sum_and_mean_swapped(script: Script) -> Found:
    for call in script.calls("reduce"):
        for keyword in call.keywords:
            if keyword.arg == "reduction" and isinstance(keyword.value, ast.Constant):
                other = "sum" if keyword.value.value == "mean" else "mean"
                kind = f"reduced by {other} in place of {keyword.value.value}"
                names = stored(script.statement(call))
                edit = script.replace(keyword.value, repr(other))
                why = _of_one_batch(script, call) or quotient(script, call)
                yield script.mutant(kind, call, [edit], *names, equivalent=why)


def reduced_twice(script: Script) -> Found:
    for call in script.calls("reduce"):
        text = script.segment(call)
        mean = "mean" in text
        edit = script.replace(call.args[0], text)
        why = TWICE_MEAN if mean else _of_one_batch(script, call) or quotient(script, call)
        yield script.mutant("reduced twice", call, [edit], *stored(script.statement(call)), equivalent=why)


def gathered_twice(script: Script) -> Found:
    for call in script.calls(*GATHERS):
        edit = script.replace(call.args[0], script.segment(call))
        yield script.mutant("gathered twice", call, [edit], *stored(script.statement(call)))


def reduced_in_each_round(script: Script) -> Found:
    """A total that is put together again after every batch."""
    for call in script.calls("reduce"):
        stmt = script.statement(call)
        block = script.block(stmt)
        loops = [one for one in block[: block.index(stmt)] if isinstance(one, LOOPS)]
        if loops and isinstance(stmt, ast.Assign) and stmt.value is call:
            equivalent = TWICE_MEAN if "mean" in script.segment(call) else ""
            inner = script.after(loops[-1].body[-1], script.segment(stmt))
            yield script.mutant(
                "reduced in each round",
                call,
                [script.delete(stmt), inner],
                *stored(stmt),
                equivalent=equivalent,
            )


def divided_by_another_count(script: Script) -> Found:
    """Batches for samples and samples for batches."""
    for node in script.of(ast.Call):
        if word(node.func) != "len" or not node.args or not _divides(script, node):
            continue
        arg = node.args[0]
        if isinstance(arg, ast.Attribute) and arg.attr == "dataset":
            loader, text = arg.value, f"len({script.segment(arg.value)})"
        elif script.is_prepared(arg):
            loader, text = arg, f"len({script.segment(arg)}.dataset)"
        else:
            continue
        shared = script.is_prepared(loader)
        why = "" if shared and not script.golden.total else OWN_BATCH if shared else NOT_SHARED
        loop = script.around(node, *LOOPS)
        if (
            loop is not None
            and any(script.around(call, *LOOPS) is loop for call in script.calls("backward"))
            and script.around(node, ast.Expr)
        ):
            why = why or IN_TRAINING
        yield script.mutant("divided by another count", node, [script.replace(node, text)], equivalent=why)


def _divides(script: Script, node: ast.AST) -> bool:
    parent = script.parents[node]
    if isinstance(parent, ast.AugAssign):
        return isinstance(parent.op, ast.Div)
    return isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Div) and parent.right is node


def weight_left_out(script: Script) -> Found:
    """`loss * len(batch)` without the factor, where rows were gathered: the mean of means is divided by samples."""
    for node in script.of(ast.BinOp):
        counts = isinstance(node.right, ast.Call) and (word(node.right.func) in ("len", "size"))
        loop = script.around(node, *LOOPS)
        if (
            not isinstance(node.op, ast.Mult)
            or not counts
            or loop is None
            or not isinstance(script.statement(node), ast.AugAssign)
        ):
            continue
        gathered = any(script.around(call, *LOOPS) is loop for call in script.calls(*GATHERS))
        why = (
            "" if gathered is not script.golden.total else "mean and sum lead to what one process shows alike"
        )
        yield script.mutant(
            "weight of a mean left out",
            node,
            [script.replace(node, script.segment(node.left))],
            *stored(script.statement(node)),
            equivalent=why,
        )


def reset_left_out(script: Script) -> Found:
    """A total that is set to zero before the epochs only, and summed over the processes after each."""
    for call in script.calls("reduce"):
        stmt = script.statement(call)
        loop = script.around(stmt, *LOOPS)
        if loop is None or not isinstance(stmt, ast.Assign):
            continue
        for first in script.block(stmt):
            if (
                isinstance(first, ast.Assign)
                and isinstance(first.value, ast.Constant)
                and set(stored(first)) & set(stored(stmt))
            ):
                equivalent = TWICE_MEAN if "mean" in script.segment(call) else ""
                edits = [script.delete(first), script.before(loop, script.segment(first))]
                yield script.mutant(
                    "reset of a total left out", first, edits, *stored(first), equivalent=equivalent
                )


def factor_left_out(script: Script) -> Found:
    """The number of processes as a factor or divisor."""
    for node in script.of(ast.BinOp):
        if isinstance(node.op, ast.Mult | ast.Div) and word(node.right) in ("num_processes", "world_size"):
            names = stored(script.statement(node))
            rate = isinstance(script.parents[node], ast.keyword) and script.golden.distributed
            edit = script.replace(node, script.segment(node.left))
            why = (
                OWN_RATE
                if rate
                else _of_one_batch(script, node)
                if "reduce" in _function_text(script, node)
                else ""
            )
            yield script.mutant("number of processes left out", node, [edit], *names, equivalent=why)


def _of_one_batch(script: Script, node: ast.AST) -> str:
    """Whether a figure is one that is not added up anywhere: the last batch's, as the summary line says."""
    names = set(words(script.statement(node)))
    grown = [stored(stmt) for stmt in script.of(ast.AugAssign)]
    filled = [
        [word(getattr(call.func, "value", None))]
        for call in script.of(ast.Call)
        if word(call.func) in ("append", "extend")
    ]
    return "" if names & {name for found in [*grown, *filled] for name in found} else ONE_BATCH


def _function_text(script: Script, node: ast.AST) -> str:
    function = script.around(node, *FUNCTIONS)
    return script.segment(function) if function is not None else ""


def backward_reduction_swapped(script: Script) -> Found:
    for call in script.calls("backward"):
        if script.golden.accelerate:
            continue
        text, loss = script.segment(call.func), script.segment(call.args[0])
        summed = any(k.arg == "reduction" for k in call.keywords)
        new, kind = (
            (f"{text}({loss})", "mean for sum")
            if summed
            else (f'{text}({loss}, reduction="sum")', "sum for mean")
        )
        yield script.mutant(f"gradients by {kind}", call, [script.replace(call, new)])


def plain_backward(script: Script) -> Found:
    for call in script.calls("backward"):
        yield script.mutant(
            "plain backward",
            call,
            [script.replace(call, f"{script.segment(call.args[0])}.backward()")],
            equivalent=same_everywhere(script, call),
        )


def accumulate_left_out(script: Script) -> Found:
    for call in script.calls("accumulate"):
        made = [other for other in script.of(ast.Call) if word(other.func) == "Accelerator"]
        edits = [script.replace(call, "contextlib.nullcontext()"), _import(script, "contextlib")]
        yield script.mutant("accumulation left out", call, edits, reach=made)


def _import(script: Script, name: str) -> Edit:
    first = next(
        stmt
        for stmt in script.tree.body
        if isinstance(stmt, ast.Import) or (isinstance(stmt, ast.ImportFrom) and stmt.module != "__future__")
    )
    return script.before(first, f"import {name}")


def shard_left_out(script: Script) -> Found:
    for call in script.calls("shard_batch"):
        yield script.mutant(
            "shard_batch left out", call, [script.delete(script.statement(call))], equivalent=ALL_BATCH
        )
