"""Noise that NumPy draws for the current batch: each process draws different noise.

z = np.random.normal(0, 1, (x.shape[0], 100))    ->  z = accelerator.numpy_random.normal(0, 1, (x.shape[0], 100))

NumPy's numbers are the same on every process, so that what a script decides by them is equal on all. Noise that is the
same for the batches of all processes is N times the noise of one: its gradient is averaged over equal samples. Noise
that a function of a module draws which is not converted is a finding.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import partial

from accelify.analysis import knowledge as k
from accelify.analysis.metrics.counts import size_of
from accelify.analysis.statements.within_loops import runs_in
from accelify.analysis.syntax import call_argument, walk
from accelify.findings import Safety
from accelify.transforms.base import Change, Context, Rule, short
from accelify.writer import edits as verbs

NOISE = Rule(
    "ACC423",
    "NumPy would draw the same noise on every process.",
    safety=Safety.REVIEW,
    effort=3,
    done="drew other noise on each process",
)
_DRAWS = frozenset(
    "normal randn rand uniform random random_sample standard_normal randint choice laplace exponential beta gamma "
    "binomial poisson multivariate_normal dirichlet".split()
)


def transform(context: Context) -> Iterator[Change]:
    """Yield the edits that draw from the process's stream, in the training on shared data."""
    if not context.plan.shares_training_data:
        return
    if not context.tree.mentions("random."):
        return
    loops = set(context.shared_loops())
    for call in context.script.calls_named(_is_draw):
        if (
            not _has_size_of_batch(call, partial(_is_size, context))
            or context.plan.on_main_only(call)
            or context.is_guarded(call)
        ):
            continue
        if not runs_in(context.script, call, loops):
            continue
        text = short(context.tree.segment(call))
        message = f"`{text}` draws the same noise on every process, for batches that differ"
        accelerator = context.accelerator(call)
        func = call.func
        if (
            context.for_accelerate
            or accelerator is None
            or not isinstance(func, ast.Attribute)
            or context.is_claimed(call)
        ):
            yield context.change(
                NOISE, call, f"{message}: draw it with torch, or seed NumPy with the rank added"
            )
            continue
        own = verbs.replace(func.value, f"{accelerator}.numpy_random")
        yield context.change(NOISE, call, message, [own])


def _is_draw(name: str | None) -> bool:
    return (name or "").startswith("numpy.random.") and (name or "").rpartition(".")[2] in _DRAWS


def _has_size_of_batch(call: ast.Call, is_size: Callable[[ast.expr], bool]) -> bool:
    """Whether a draw gives as many numbers as there are samples in the batch."""
    for argument in [*call.args, *(keyword.value for keyword in call.keywords)]:
        for node in walk(argument):
            if not isinstance(node, ast.expr):
                continue
            name = (
                node.id
                if isinstance(node, ast.Name)
                else node.attr
                if isinstance(node, ast.Attribute)
                else ""
            )
            if size_of(node) is not None or k.BATCH_SIZE_NAME.search(name) or is_size(node):
                return True
    return False


def _is_size(context: Context, node: ast.expr) -> bool:
    """Whether a name was assigned the size of a batch, `n = x.size(0)`, or is a parameter that gets it."""
    if not isinstance(node, ast.Name):
        return False
    scope = context.script.scope_of(node).resolve(node.id)
    if scope is not None and scope.kind == "function" and node.id in scope.positional():
        index = scope.positional().index(node.id) - (1 if scope.self_name() is not None else 0)
        given = [call_argument(call, index, node.id) for call in context.script.callers(scope)]
        return any(one is not None and size_of(one) is not None for one in given)
    return any(
        size_of(stmt.value) is not None
        for stmt in context.tree.assigns(node.id)
        if context.script.scope_of(stmt).resolve(node.id) is scope
    )
