"""Models that prepare leaves on the host, and that are run on batches which it puts on the device.

`baseline = Net()` of a notebook whose later cells go to the GPU is run on the loader before any training: its batches
come from the device now, and the model has to follow them.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable

from accelify.analysis import values as v
from accelify.analysis.devices.locations import Locations
from accelify.analysis.devices.locations import before_and_after as of_both
from accelify.analysis.devices.tensor_makers import DEVICE, HOST
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import walk
from accelify.analysis.values import Entity

_MOVING = frozenset({"to", "cuda", "cpu"})
# Where a batch is that a prepared loader takes from the host to the device.
_PARTING = (frozenset({HOST}), frozenset({DEVICE}))


def before_and_after(
    script: ScriptModel,
    prepared: set[Entity],
    is_cpu: Callable[[ast.expr], bool],
    loops: Iterable[ast.For | ast.AsyncFor],
) -> tuple[Locations, Locations]:
    """Where tensors are in the script as it is, and once prepare places its batches and such models follow them.

    Args:
        script: its model.
        prepared: the loaders and models that prepare places.
        is_cpu: whether an expression is the CPU by name.
        loops: over batches, of which what they collect is followed.
    """
    before, after = of_both(script, prepared, is_cpu, loops)
    found = _following(script, prepared, before, after)
    if found:
        before, after = of_both(script, prepared | found.keys(), is_cpu, loops)
        after.following = found
    return before, after


def _following(
    script: ScriptModel, prepared: set[Entity], before: Locations, after: Locations
) -> dict[Entity, ast.Call]:
    """Such models, each with the call that makes it: none that the script moves anywhere itself."""
    runs: dict[Entity, list[ast.Call]] = {}
    for call in script.calls():
        for model in script.models_run(call) - prepared:
            if isinstance(model.site, ast.Call) and model.module in script.modules:
                runs.setdefault(model, []).append(call)
    # The layers of what is prepared go with it.
    runs = {model: calls for model, calls in runs.items() if not script.owners_of(model) & prepared}
    found: dict[Entity, ast.Call] = {}
    for model, calls in runs.items():
        if not any((before.of(a), after.of(a)) == _PARTING for call in calls for a in _given(call)):
            continue
        if not _moves_itself(model):
            assert isinstance(model.site, ast.Call)
            found[model] = model.site
    moved = _moved(script) if found else set()
    return {model: site for model, site in found.items() if model not in moved}


def _given(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *[kw.value for kw in call.keywords]]


def _moved(script: ScriptModel) -> set[Entity]:
    """The models that a script moves: `net.to(device)`, `Net(device=device).eval().cuda()`."""
    found: set[Entity] = set()
    for call in script.calls():
        moves = isinstance(call.func, ast.Attribute) and call.func.attr in _MOVING
        if moves and isinstance(call.func, ast.Attribute):
            for part in walk(call.func.value):
                if isinstance(part, (ast.Name, ast.Attribute, ast.Call)):
                    found |= script.models_of(part)
        models = script.models_of(call)
        if models and any(script.is_a(given, v.DEVICE) for given in _given(call)):
            found |= models
    return found


def _moves_itself(model: Entity) -> bool:
    """Whether the class of a model knows of devices."""
    for cls in model.cls.ancestry() if model.cls is not None else ():
        for node in walk(cls.scope.node):
            name = (
                getattr(node, "attr", None) or getattr(node, "id", None) or getattr(node, "arg", None) or ""
            )
            if name in _MOVING or "device" in name:
                return True
    return False


__all__ = ["Locations", "before_and_after"]
