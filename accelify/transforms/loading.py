"""Checkpoints are loaded to the process's own device.

checkpoint = torch.load(path)    ->  checkpoint = torch.load(path, map_location=accelerator.device)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from accelify import edits as verbs
from accelify.analysis.syntax import call_keyword, target_names
from accelify.edits import Edit, InsertBefore
from accelify.transforms.base import Change, Context, Rule

LOAD = Rule("ACC207", "load", "Every process would load this to the device it was saved from.", effort=1)
_CHECKPOINT = re.compile(r"ckpt|check_?point|state|weight|model|resume|^saved|pretrain|param", re.I)

# What finds checkpoints that were written before.
_READS = frozenset({"torch.load", "glob.glob", "glob.iglob", "os.listdir", "os.scandir"})


def transform(context: Context) -> Iterator[Change]:
    """Yield a map_location for loads of checkpoints, and a wait before loads of what was just written."""
    yield from _waits(context)
    for call in context.script.calls():
        if context.script.qualname(call.func) != "torch.load" or context.is_claimed(call):
            continue
        if (
            len(call.args) > 1
            or any(kw.arg is None for kw in call.keywords)
            or not _is_checkpoint(context, call)
        ):
            continue
        accelerator = context.accelerator(call)
        if accelerator is None:
            continue
        given = call_keyword(call, "map_location")
        edit: Edit
        try:
            if given is None:
                edit = verbs.add_keyword(context.tree, call, f"map_location={accelerator}.device")
            elif isinstance(given, ast.Constant) and str(given.value).startswith("cuda"):
                edit = verbs.replace(context.tree, given, f"{accelerator}.device")
            else:
                continue
        except verbs.EditError:
            continue
        yield context.change(LOAD, call, "all processes would load this to the same device", [edit])


def _is_checkpoint(context: Context, call: ast.Call) -> bool:
    for ancestor in context.tree.ancestors(call):
        if isinstance(ancestor, ast.Call) and isinstance(ancestor.func, ast.Attribute):
            if ancestor.func.attr == "load_state_dict":
                return True
        if isinstance(ancestor, ast.stmt):
            targets = ancestor.targets if isinstance(ancestor, ast.Assign) else []
            return any(_CHECKPOINT.search(n) for t in targets for n in target_names(t))
    return False


def _waits(context: Context) -> Iterator[Change]:
    """A checkpoint that the main process wrote is there for the others once all have waited for it."""
    tree, script = context.tree, context.script
    if not any(script.qualname(c.func) == "torch.save" for c in script.calls()):
        return
    done: set[ast.stmt] = set()
    loads = [c for c in script.calls() if script.qualname(c.func) == "torch.load"]
    loading = {script.scope_of(c) for c in loads} - {script.scopes.module} - script.training_scopes
    for call in sorted(script.calls(), key=tree.start):
        if script.qualname(call.func) not in _READS and not (script.callees(call) & loading):
            continue
        stmt: ast.stmt = tree.statement(call)
        while isinstance(tree.parent(stmt), ast.With):
            parent = tree.parent(stmt)
            assert isinstance(parent, ast.With)
            stmt = parent
        block = tree.block_of(stmt)[2]
        earlier = block[: block.index(stmt)]
        if not any(script.trains(s) for s in earlier) or any(s in done for s in earlier) or stmt in done:
            continue
        accelerator = context.accelerator(stmt)
        if accelerator is None or any(
            isinstance(a, (ast.If, ast.ExceptHandler)) and a is not script.main_guard
            for a in tree.ancestors(stmt)
        ):
            continue
        done.add(stmt)
        edit = InsertBefore(stmt, (f"{accelerator}.wait_for_everyone()",))
        yield context.change(LOAD, call, "the file may still be being written by the main process", [edit])
