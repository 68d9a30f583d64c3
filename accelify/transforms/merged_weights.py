"""Files of a DataParallel whose weights are merged into those of the model, which has no `module.` in its names.

read = torch.load(path)["net"]    ->  read = {name.removeprefix("module."): weight for name, weight in ....items()}
own.update({name: weight for name, weight in read.items() if name in own})
net.load_state_dict(own)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis.files.values_from_files import comes_from, with_callers
from accelify.analysis.models.merged_weights import merged_weights, taken_out_at
from accelify.analysis.models.parallel_wraps import is_afterwards, wrapped_models
from accelify.analysis.schedules.training_before import trained_before
from accelify.transforms.base import Change, Context
from accelify.transforms.parallel import PARALLEL
from accelify.writer import edits as verbs
from accelify.writer.edits import Edit

_MESSAGE = "files that were saved under DataParallel have `module.` before the names of the weights"


def transform(context: Context) -> Iterator[Change]:
    """Yield the names without their prefix, and a finding where it is not known what has been read."""
    script, tree = context.script, context.tree
    if not tree.mentions("DataParallel") or not tree.mentions("torch"):
        return
    found = list(merged_weights(script))
    wrapped = wrapped_models(script) if found else {}
    loads = {c for c in script.calls() if script.qualname(c.func) == "torch.load"} if wrapped else set()
    given = with_callers(script, loads) if loads else set()
    done: set[ast.expr] = set()
    for one in found if given else ():
        wraps = [wrap for model in script.models_of(one.model) for wrap in wrapped.get(model, ())]
        others = [other for other in one.others if comes_from(script, other, given)]
        if not others or not any(is_afterwards(script, one.call, wrap) for wrap in wraps):
            continue
        if trained_before(script, one.call) or any(map(_minds, script.scope_of(one.call).nodes)):
            continue
        places = {other for other in others if not isinstance(other, ast.Name)}
        if len(places) < len(others):
            reading = {s for s in tree.nodes(ast.Assign) if comes_from(script, s.value, given)}
            stmt = taken_out_at(script, one, reading)
            places = {*places, stmt.value} if stmt is not None else set()
        if not places or any(context.is_claimed(place) for place in places):
            mark = "take `module.` off the names of what is merged into the model's weights"
            message = (
                f"{_MESSAGE}, and the names into which they are merged do not have it: take it off the former"
            )
            yield context.todo(PARALLEL, one.call, message, mark)
            continue
        for place in tree.in_order(places - done):
            without = '{name.removeprefix("module."): weight for name, weight in '
            edits: list[Edit] = [
                verbs.replace(place, without, place, ".items()}", order=5),
            ]
            yield context.change(PARALLEL, place, _MESSAGE, edits)
        done |= places


def _minds(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("module")
