"""Objects of other modules that store a model, save it and load it: its names have no `module.` any more.

keeper.register(net=net)    (a finding if scripts in this folder load it into a DataParallel)
keeper.load(path)           (files saved before the conversion have the prefix)
"""

from __future__ import annotations

from collections.abc import Iterator

from accelify.analysis.models.keeping_objects import keeping_objects
from accelify.analysis.models.parallel_wraps import is_afterwards, wrapped_models
from accelify.analysis.models.wrapping_scripts import keeping_wrappers
from accelify.analysis.schedules.training_before import trained_before
from accelify.findings import Severity
from accelify.transforms.base import Change, Context
from accelify.transforms.parallel import PARALLEL


def transform(context: Context) -> Iterator[Change]:
    """Yield findings where such an object loads, and where another script passes its wrapper to one."""
    script = context.script
    if not context.tree.mentions("DataParallel"):
        return
    wrapped, reported = wrapped_models(script), set[str]()
    for one in keeping_objects(script, wrapped.keys()):
        wraps = [wrap for model in script.models_of(one.model) for wrap in wrapped.get(model, ())]
        owner = one.callee.owner_class
        if (
            owner is None
            or owner.name in reported
            or not any(is_afterwards(script, one.call, wrap) for wrap in wraps)
        ):
            continue
        reported.add(owner.name)
        file = one.module.path.name if one.module.path is not None else "another module"
        loading = [
            c for c in script.calls() if script.callees(c) & one.loads and not trained_before(script, c)
        ]
        if one.loading is not None and loading:
            where = f"{file}, line {one.loading.lineno}"
            message = (
                f"`{owner.name}` loads weights into the model ({where}): files that were saved under DataParallel have "
                "`module.` before the names of the weights, which the model no longer has"
            )
            mark = f"take `module.` off the names of the weights that `{owner.name}` loads ({where})"
            yield context.todo(PARALLEL, loading[0], message, mark)
        taker = owner.name if one.callee.name.endswith("__init__") else one.callee.name.rpartition(".")[2]
        others = keeping_wrappers(script, owner.name, taker, {m.name.rpartition(".")[2] for m in one.loads})
        found = [f"{name}:{line}" for name, line in others] if one.saving is not None else []
        # The wrapper that Accelerate makes on several processes has the prefix, too.
        if found and not context.for_accelerate:
            message = (
                f"`{owner.name}` saves weights without `module.` before their names from now on ({file}, line "
                f"{one.saving.lineno if one.saving is not None else 0}), and a DataParallel that is loaded with them "
                f"wants it: hand it the model without the wrapper in {', '.join(found)}"
            )
            yield context.change(PARALLEL, one.call, message, severity=Severity.WARNING)
