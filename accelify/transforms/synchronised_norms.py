"""Batch norm that communicates between the replicas of a DataParallel: without replicas, it sees one process's batch.

self.norm = SynchronizedBatchNorm2d(64)    (a finding, where DataParallel goes)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis import knowledge as k
from accelify.analysis.program import Module
from accelify.analysis.syntax import dotted
from accelify.transforms.base import Change, Context
from accelify.transforms.parallel import PARALLEL

# Of the package that is copied from project to project, whose layers meet over the copies' threads.
_NAMES = frozenset(
    {
        "SynchronizedBatchNorm1d",
        "SynchronizedBatchNorm2d",
        "SynchronizedBatchNorm3d",
        "DataParallelWithCallback",
        "patch_replication_callback",
    }
)
_WORDS = (b"SynchronizedBatchNorm", b"patch_replication_callback", b"DataParallelWithCallback")


def transform(context: Context) -> Iterator[Change]:
    """Yield one finding for the script, where it uses them or at its DataParallel."""
    script = context.script
    modules = list(dict.fromkeys([*script.modules, *script.program.modules.values()]))
    if not any(module.tree.mentions(word) for module in modules for word in _WORDS):
        return
    wraps = [
        call
        for call in script.calls()
        if _last(call) in _NAMES or script.qualname(call.func) in k.PARALLEL_WRAPPERS
    ]
    used = next(
        (name for module in modules for call in _run(context, module) if (name := _last(call)) in _NAMES),
        None,
    )
    if not wraps or used is None:
        return
    message = (
        f"`{used}` meets the copies that a DataParallel made, and each process now normalises its own share: "
        "torch.nn.SyncBatchNorm.convert_sync_batchnorm(model) in front of prepare puts the processes together"
    )
    yield context.change(PARALLEL, context.tree.first(wraps), message)


def _run(context: Context, module: Module) -> Iterator[ast.Call]:
    """The calls of a module in code that the script can reach."""
    script = context.script
    for scope in module.used_scopes():
        top = scope.kind == "function" and scope.parent is module.scopes.module
        if scope in script.dormant or (top and not script.interpreter.callers.get(scope)):
            continue
        yield from scope.calls


def _last(call: ast.Call) -> str:
    return (dotted(call.func) or "").rpartition(".")[2]
