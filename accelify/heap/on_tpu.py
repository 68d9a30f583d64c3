"""What XLA does not go with, in a script that speaks of TPUs: numbers that are fetched in each step, batches of other
shapes, parameters that are moved once the optimizer has them.

Each is an event of the kind "misuse", whose detail is the demand "tpu".
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from functools import lru_cache

from accelify.domains.placement import Kind
from accelify.heap.containers import array_of
from accelify.heap.divisors import made_of
from accelify.heap.locations import text_of
from accelify.heap.model_parameters import STEPPED
from accelify.heap.run import Run
from accelify.heap.values import Function, Instance, Value

_FETCHES = frozenset({"item", "tolist"})
_NUMBERS = frozenset({"builtins.float", "builtins.int", "builtins.bool"})
# What makes the rows of a batch as long as the longest of them.
_PADS = re.compile(r"padding\s*=\s*(?:True|['\"]longest)|\bpad_sequence\(")
# Methods and functions that give truth values.
_TRUTHS = frozenset("bool eq ge gt isfinite isinf isnan le logical_and logical_not logical_or lt ne".split())
# What is computed of a batch: of this rank's, or of all ranks' that were put together.
_OF_ROUNDS = frozenset({Kind.ROUND, Kind.WIDE})
_LOOPS = (ast.For, ast.While)
_SPEAKS = re.compile(r"^[^#\n]*(?:\btorch_xla\b|\bDistributedType\.(?:XLA|TPU)\b)", re.M)


def of_method(run: Run, receiver: Value, name: str, node: ast.AST) -> None:
    """A call of a method of a library's object.

    Args:
        run: the abstract run.
        receiver: the object.
        name: of the method.
        node: the call.
    """
    if name in _FETCHES:
        _fetches(run, receiver, node)
    elif name in ("to", "cuda"):
        if any(run.read(ref, STEPPED) is not None for ref in receiver.of(Instance)):
            text = "gives the model other parameters on a TPU than the optimizer has; move it before that is made"
            _meet(run, node, text)


def _is_in_each_round(run: Run, node: ast.AST) -> bool:
    """Whether something is done in each round of the innermost loop around it, and not in every n-th alone."""
    if not _speaks(run.module.text) or run.module.tree is None:
        return False
    loops = [
        one for one in ast.walk(run.module.tree) if isinstance(one, _LOOPS) and node in set(ast.walk(one))
    ]
    inside = list(ast.walk(loops[-1])) if loops else []
    if not run.in_shared_loop() and any(isinstance(one, _LOOPS) for one in inside[1:]):
        return False  # once an epoch, after the loop over the batches
    tests = [one.test for one in inside if isinstance(one, ast.If) and node in set(ast.walk(one))]
    return not any(isinstance(part, ast.Mod) for test in tests for part in ast.walk(test))


def of_call(run: Run, name: str, args: Sequence[Value], node: ast.AST) -> None:
    """A call of a library's function by its canonical name."""
    if name in _NUMBERS and args:
        _fetches(run, args[0], node)


def _fetches(run: Run, value: Value, node: ast.AST) -> None:
    """A number that is taken from the device."""
    if run.loops and array_of(value).kind in _OF_ROUNDS and _is_in_each_round(run, node):
        _waits(run, node)


def _waits(run: Run, node: ast.AST) -> None:
    tree = run.module.tree or ast.Module([], [])
    tests = [one.test for one in ast.walk(tree) if isinstance(one, ast.If | ast.While)]
    decides = any(part is node for test in tests for part in ast.walk(test))
    way = (
        "ask in every so many steps alone"
        if decides
        else "add tensors up, and take the number after the loop"
    )
    _meet(run, node, f"waits for the TPU in each step; {way}")


def of_padding(run: Run, collates: Sequence[Value], node: ast.AST) -> None:
    """A loader whose batches are as long as their longest sample.

    Args:
        run: the abstract run.
        collates: what may put its batches together.
        node: where it is made.
    """
    texts = [text_of(ref) for value in collates for ref in value.of(Function)]
    for value in collates if _speaks(run.module.text) else ():
        if len(value.refs) == 1:  # of several an option chooses
            texts += [
                text for ref in value.of(Instance) for text in _made_by(run, ref.type.rpartition(".")[2])
            ]
    if any(_PADS.search(text) and "max_length" not in text for text in texts):
        _meet(
            run, node, "has batches of many lengths, for each of which XLA compiles anew; pad them all to one"
        )


def _made_by(run: Run, word: str) -> list[str]:
    """The one call of the module that makes an object of a library's collator."""
    calls = [one for one in ast.walk(run.module.tree or ast.Module([], [])) if isinstance(one, ast.Call)]
    made = [one for one in calls if "Collator" in word and ast.unparse(one.func).rpartition(".")[2] == word]
    return [ast.unparse(one) for one in made] if len(made) == 1 else []


def of_index(run: Run, base: Value, at: ast.expr, node: ast.AST) -> None:
    """Rows of a batch that are chosen by what is true of them: as many as it is true of.

    Args:
        run: the abstract run.
        base: what they are taken of.
        at: what chooses.
        node: the whole.
    """
    if array_of(base).kind is not Kind.ROUND or not _speaks(run.module.text) or not run.loops:
        return
    around = run.calls[-1][0] if run.calls else run.module.tree
    made = made_of(around, at.id, at.lineno) if isinstance(at, ast.Name) and around is not None else [at]
    if any(map(_is_truth, made)):
        text = "has another shape in each step, for which XLA compiles anew; use torch.where, or weights of 0"
        _meet(run, node, text)


def _is_truth(made: ast.expr) -> bool:
    """Whether an expression gives truth values, one for each element."""
    if isinstance(made, ast.BinOp):
        return isinstance(made.op, ast.BitAnd | ast.BitOr) and _is_truth(made.left)
    if isinstance(made, ast.UnaryOp):
        return isinstance(made.op, ast.Invert)
    called = made.func if isinstance(made, ast.Call) else None
    return isinstance(made, ast.Compare) or getattr(called, "attr", "") in _TRUTHS


def _meet(run: Run, node: ast.AST, text: str) -> None:
    if _speaks(run.module.text):
        run.meet("misuse", node, f"`{run.segment(node)}` {text}", detail="tpu")


@lru_cache(maxsize=64)
def _speaks(text: str) -> bool:
    return _SPEAKS.search(text) is not None
