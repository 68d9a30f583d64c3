"""Tensors that functions of other modules make on the host for a batch, which prepare has put on the device by then.

table = torch.zeros(len(y), 10)    ->  table = torch.zeros(len(y), 10, device=y.device)
table.scatter_(1, y, 1)                table.scatter_(1, y, 1)

They are made on the device of the argument, in that module, which is right for its other callers, too; where it is not
certain that the argument is a tensor, it is a finding.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis.devices.made_elsewhere import MadeElsewhere, made_elsewhere
from accelify.analysis.devices.tensor_makers import DEVICE, DRAWING, HOST, HOST_MAKERS
from accelify.analysis.syntax import text_of
from accelify.transforms.base import Change, Context, short
from accelify.transforms.fixes_elsewhere import FixElsewhere
from accelify.transforms.meetings import MEETING
from accelify.writer import edits as verbs
from accelify.writer.edits import Edit


def transform(context: Context) -> Iterator[Change]:
    """Note the edits in other modules, and yield a finding where none is certain."""
    if context.plan.arguments.get("cpu") == "True" or not context.plan.prepared:
        return
    found = [
        one for one in made_elsewhere(context.script, *context.locations) if not context.is_claimed(one.call)
    ]
    left = {one.maker for one in found if one.beside is None or _made_beside(one) is None}
    reported: set[ast.Call] = set()
    for one in found:
        edit = _made_beside(one)
        if one.maker in left or edit is None:
            if one.call not in reported:
                yield context.change(MEETING, one.call, _reported(one))
            reported.add(one.call)
            continue
        message = (
            f"`{short(one.module.tree.segment(one.maker))}` is made on the host, where the batch no longer is"
        )
        context.fixes_elsewhere.append(FixElsewhere(one.module, one.maker, edit, MEETING, message))
    for one in found:
        if one.gives_it_back and one.call not in reported:
            context.locations[0].settle(one.call, HOST)
            context.locations[1].settle(one.call, DEVICE)


def _made_beside(one: MadeElsewhere) -> Edit | None:
    """The edit that makes it there; None in a module that trains, which is converted by itself."""
    if one.module.tree.mentions(".backward("):
        return None
    device = f"{one.beside}.device"
    last = text_of(one.maker.func).rpartition(".")[2]
    try:
        if last not in DRAWING | HOST_MAKERS:
            return verbs.AddArgument(one.maker, f"device={device}")
        # What is drawn is drawn where it was, so that it stays the same.
        return verbs.replace(one.maker, one.maker, f".to({device})")
    except verbs.EditError:
        return None


def _reported(one: MadeElsewhere) -> str:
    tree = one.module.tree
    place = f"{(tree.path or '').replace(chr(92), '/').rpartition('/')[2]}, line {one.maker.lineno}"
    return (
        f"`{one.callee.name}` makes `{short(tree.segment(one.maker))}` on the host ({place}) for what lies on the "
        "device now: make it on the device of what it is handed there"
    )
