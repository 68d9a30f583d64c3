"""Saves: once, by one process, whole or not at all.

torch.save(model.state_dict(), path)    ->  accelerator.wait_for_everyone()
                                            accelerator.save(accelerator.unwrap_model(model).state_dict(), path)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from accelify.analysis import values as v
from accelify.analysis.syntax import call_argument, dotted
from accelify.edits import Edit, Indent, InsertBefore, Replace
from accelify.findings import Safety
from accelify.transforms.base import Change, Context, Rule

_SAVING = re.compile(r"^save|_save$|save_|checkpoint$", re.I)
# `load_checkpoint(path, model)`: every process needs what it brings.
_LOADING = re.compile(r"(^|_)(load|restore|resume|read|from|get|find)", re.I)
SAVE = Rule("ACC206", "save", "Every process would write the same file at the same time.", effort=3)


def transform(context: Context) -> Iterator[Change]:
    """Yield the changes to torch.save and to methods that save a model."""
    tree, script = context.tree, context.script
    yield from _handed_over(context)
    waited: set[ast.stmt] = set()
    for call in sorted(script.calls(), key=tree.start):
        if script.qualname(call.func) != "torch.save" or context.is_claimed(call):
            continue
        target = call_argument(call, 1, "f")
        if target is not None and any(t.qualname == "io.BytesIO" for t in script.things(target)):
            continue  # kept in memory, where every process may want it
        accelerator = context.accelerator(call)
        if accelerator is None:
            yield context.todo(SAVE, call, "every process would write this file", "let one process save this")
            continue
        edits = _whole_models(context, call, accelerator)
        block = _open_block(context, call)
        if block is not None and context.is_guarded(block):
            if not edits:
                continue
        elif block is not None:
            edits.append(Indent(block, block, f"if {accelerator}.is_main_process:"))
            context.guarded.add(block)
        else:
            func = call.func
            edits.append(Replace(tree.start(func), tree.end(func), f"{accelerator}.save"))
            stmt = tree.statement(call)
            if isinstance(stmt, ast.Expr) and tree.own_line(stmt):
                body = tree.block_of(stmt)[2]
                before = body[body.index(stmt) - 1] if body.index(stmt) else None
                waited.add(stmt)
                # A run of saves waits once.
                if before not in waited and context.runs_everywhere(stmt):
                    edits.append(InsertBefore(stmt, (f"{accelerator}.wait_for_everyone()",)))
        yield context.change(SAVE, call, "every process would write this file", edits)


def _handed_over(context: Context) -> Iterator[Change]:
    """`save_checkpoint(model, ...)` of another file: called by one process, with the model unwrapped."""
    tree, script = context.tree, context.script
    known = set(script.functions())
    for call in script.calls():
        name = (dotted(call.func) or "").rsplit(".", 1)[-1]
        stmt = tree.parent(call)
        if (
            not _SAVING.search(name)
            or _LOADING.search(name)
            or not isinstance(stmt, ast.Expr)
            or context.is_guarded(stmt)
        ):
            continue
        if script.qualname(call.func) == "torch.save" or any(s in known for s in script.callees(call)):
            continue
        values = [*call.args, *[kw.value for kw in call.keywords]]
        models = [
            a
            for a in values
            if isinstance(a, (ast.Name, ast.Attribute)) and context.plan.is_prepared(a, v.MODEL)
        ]
        if isinstance(call.func, ast.Attribute) and context.plan.is_prepared(call.func.value, v.MODEL):
            models = []
        elif not models:
            continue
        accelerator = context.accelerator(call)
        if accelerator is None or not context.plan.after_prepare(call) or context.meets_others(stmt):
            continue
        edits: list[Edit] = [Indent(stmt, stmt, f"if {accelerator}.is_main_process:")]
        for model in models:
            text = f"{accelerator}.unwrap_model({tree.segment(model)})"
            edits.append(Replace(tree.start(model), tree.end(model), text))
            context.claim(model)
        context.guarded.add(stmt)
        yield context.change(SAVE, call, "every process would write this file", edits, safety=Safety.REVIEW)


def _whole_models(context: Context, call: ast.Call, accelerator: str) -> list[Edit]:
    """A model saved as an object is saved unwrapped."""
    saved = call_argument(call, 0, "obj")
    edits: list[Edit] = []
    if saved is None:
        return edits
    if isinstance(saved, ast.Name):
        # `state = {"net": net}` on a line of its own.
        assigned = [
            stmt.value
            for stmt in context.tree.nodes(ast.Assign)
            if any(isinstance(t, ast.Name) and t.id == saved.id for t in stmt.targets)
            and context.script.scope_of(stmt) is context.script.scope_of(saved)
        ]
        if len(assigned) == 1 and isinstance(assigned[0], ast.Dict):
            saved = assigned[0]
    values = [saved]
    if isinstance(saved, ast.Dict):
        values = list(saved.values)
    elif isinstance(saved, (ast.Tuple, ast.List)):
        values = list(saved.elts)
    for value in values:
        if isinstance(value, (ast.Name, ast.Attribute)) and context.plan.is_prepared(value, v.MODEL):
            if isinstance(value, ast.Attribute) and value.attr == "module":
                continue  # unwrapping rewrites `.module`
            tree = context.tree
            edits.append(
                Replace(
                    tree.start(value), tree.end(value), f"{accelerator}.unwrap_model({tree.segment(value)})"
                )
            )
            context.claim(value)
    return edits


def _open_block(context: Context, call: ast.Call) -> ast.With | None:
    """The `with open(path, "wb") as f:` whose file is written."""
    target = call_argument(call, 1, "f")
    if not isinstance(target, ast.Name):
        return None
    for ancestor in context.tree.ancestors(call):
        if isinstance(ancestor, ast.With):
            for item in ancestor.items:
                if isinstance(item.optional_vars, ast.Name) and item.optional_vars.id == target.id:
                    return ancestor
    return None


__all__ = ["SAVE", "Safety", "transform"]
