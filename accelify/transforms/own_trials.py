"""Searches that choose the settings of a training: each process would choose its own.

study.optimize(objective, n_trials=20)    (a finding, as for hyperopt's fmin, gp_minimize, wandb.agent)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis.scopes import Scope
from accelify.analysis.syntax import dotted, text_of
from accelify.analysis.values import Function
from accelify.transforms.base import Change, Context, Rule

TRIALS = Rule(
    "ACC430",
    "own-trials",
    "Every process would choose the settings of its trainings by itself.",
    effort=15,
)
_MARK = "let the main process choose, and hand its choice to all (broadcast_object_list; Optuna: TorchDistributedTrial)"
_LIBRARIES = frozenset({"optuna", "hyperopt", "skopt", "ax", "nevergrad", "bayes_opt"})
_METHODS = frozenset({"optimize", "maximize", "minimize"})
# What runs a function for each trial, by the last name of a library's function.
_RUNS = frozenset({"fmin", "gp_minimize", "forest_minimize", "gbrt_minimize", "dummy_minimize", "optimize"})
_WORDS = tuple(name.encode() for name in (*_LIBRARIES, "wandb"))


def transform(context: Context) -> Iterator[Change]:
    """Yield a finding for each call that runs the training for settings of its own choice."""
    if not any(context.tree.mentions(word) for word in _WORDS) or context.plan.known.distributed:
        return
    training = context.script.training_scopes
    for call in context.script.calls():
        given = [*call.args, *[keyword.value for keyword in call.keywords]]
        if not _is_search(context, call) or not any(_functions(context, one) & training for one in given):
            continue
        if context.plan.on_main_only(call):
            continue
        message = (
            f"`{text_of(call.func)}` chooses the settings of its trainings on every process by itself: gradients "
            "of different models would be averaged, or the processes wait for each other"
        )
        yield context.todo(TRIALS, call, message, _MARK)


def _is_search(context: Context, call: ast.Call) -> bool:
    """Whether a call runs the search of a library."""
    name = context.script.qualname(call.func) or ""
    root, last = name.partition(".")[0], name.rpartition(".")[2]
    if name == "wandb.agent" or (root in _LIBRARIES and last in _RUNS | _METHODS):
        return True
    # `study.optimize(...)` of what a library made; the names of the objects differ, those of the methods do not.
    method = isinstance(call.func, ast.Attribute) and call.func.attr in _METHODS
    return method and any(
        (alias.name if isinstance(node, ast.Import) else node.module or "").partition(".")[0] in _LIBRARIES
        for node in context.tree.nodes(ast.Import, ast.ImportFrom)
        for alias in node.names
    )


def _functions(context: Context, node: ast.expr) -> set[Scope]:
    """The functions that are handed to a search: by name, in a lambda or a partial, or bound to an object."""
    if isinstance(node, ast.Lambda):
        return {c for n in ast.walk(node.body) if isinstance(n, ast.Call) for c in context.script.callees(n)}
    if isinstance(node, ast.Call) and (dotted(node.func) or "").rpartition(".")[2] == "partial" and node.args:
        node = node.args[0]
    return {value.scope for value in context.script.values(node) if isinstance(value, Function)}


__all__ = ["transform"]
