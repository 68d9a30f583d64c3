"""Loaders that may not be one: `get_loader()` returns a DataLoader, or an endless loader that the script defines.

`prepare` shards and places the batches of torch's DataLoader, and returns anything else as it is. Which of the two a
name refers to is only known when the script runs, so nobody may count on its batches being on the device. The same
applies to what comes, in another case, from a call that cannot be read: `loader = lib.make_other_loader()`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Set

from accelify.analysis import values as v
from accelify.analysis.data.loaders import is_shardable
from accelify.analysis.metrics.evaluation_loop import EvaluationLoop
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import dotted, names_in
from accelify.analysis.values import Class, Entity


def doubtful_loaders(script: ScriptModel, loaders: Set[Entity]) -> dict[Entity, str]:
    """Of some loaders those whose name can hold something else to go through, with the name of its class."""
    found: dict[Entity, str] = {}
    for holder in script.holders:
        contained = {t for t in holder.entities & loaders if t.kind == v.LOADER}
        if not contained or holder.cls is not None:
            continue
        values_given = [getattr(stmt, "value", None) for stmt, _ in holder.assignments]
        if any(value is not None and holder.name in names_in(value) for value in values_given):
            continue  # loader = Prefetcher(loader): what is prepared is the first of the two
        values = script.interpreter.variables.get((holder.scope, holder.name), ()) if holder.scope else ()
        others = {
            w.cls.name
            for w in values
            if isinstance(w, Entity)
            and w.kind == v.INSTANCE
            and w.cls is not None
            and _is_gone_through(w.cls)
        }
        if others:
            found.update(dict.fromkeys(contained, min(others)))
    return found


def unseen_beside(
    script: ScriptModel, loaders: Set[Entity], evaluations: Iterable[EvaluationLoop]
) -> dict[Entity, str]:
    """The training loaders of calls that cannot be seen which share every name with some that are prepared, and are so
    with them; each with what is called.

    Args:
        script: its model.
        loaders: what is prepared.
        evaluations: whose loaders are none of these, as they know by themselves what is sharded.
    """
    found = {}
    evaluated = {t for evaluation in evaluations for t in evaluation.loaders}
    for entity in script.training_loaders - loaders - evaluated:
        called = dotted(entity.site.func) if isinstance(entity.site, ast.Call) else None
        holders = script.holders_of(entity)
        if called is None or entity.cls is not None or is_shardable(entity) or not holders:
            continue
        if all(any(is_shardable(t) for t in holder.entities & loaders) for holder in holders):
            found[entity] = called
    return found


def _is_gone_through(cls: Class) -> bool:
    """Whether a class gives batches and is no loader of a library's, which could be torch's in the end."""
    if any(base.endswith("Loader") for base in cls.external_bases()):
        return False
    return cls.method("__iter__") is not None or cls.method("__next__") is not None
