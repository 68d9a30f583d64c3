"""Attributes that only a DataParallel has and no model: its devices, of which a process has one.

n = len(model.device_ids)           ->  n = 1
mask = mask.to(model.device_ids[0]) ->  mask = mask.to(accelerator.device)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis.models.parallel_wraps import wrapped_models
from accelify.analysis.syntax import dotted, is_constant
from accelify.transforms.base import Change, Context
from accelify.transforms.parallel import PARALLEL
from accelify.writer import edits as verbs

_OF_WRAPPER = frozenset({"device_ids", "output_device", "src_device_obj"})


def transform(context: Context) -> Iterator[Change]:
    """Yield a replacement for the devices of a DataParallel that is taken out."""
    tree, script = context.tree, context.script
    if not any(tree.mentions(name) for name in _OF_WRAPPER):
        return
    wrapped = set(wrapped_models(script))
    for node in tree.nodes(ast.Attribute) if wrapped else ():
        if node.attr not in _OF_WRAPPER or not isinstance(node.ctx, ast.Load) or context.is_claimed(node):
            continue
        models = script.models_of(node.value)
        if not models or not models <= wrapped:
            continue
        if any(node.attr in c.attributes for m in models if m.cls is not None for c in m.cls.ancestry()):
            continue
        context.claim(node)
        text = tree.segment(node)
        message = f"`{text}` is there only while DataParallel wraps the model"
        parent = tree.parent(node)
        if isinstance(parent, ast.Call) and dotted(parent.func) == "len" and node.attr == "device_ids":
            yield context.change(PARALLEL, node, message, [verbs.replace(parent, "1")])
            continue
        first = isinstance(parent, ast.Subscript) and parent.value is node and is_constant(parent.slice, 0)
        device = parent if first else node if node.attr != "device_ids" else None
        accelerator = context.accelerator(node) if device is not None else None
        if accelerator is None:
            yield context.todo(PARALLEL, node, message, "take accelerator.device: a process has one")
            continue
        assert isinstance(device, ast.expr)
        edit = verbs.replace(device, f"{accelerator}.device")
        yield context.change(PARALLEL, node, message, [edit])
