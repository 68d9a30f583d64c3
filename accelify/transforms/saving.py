"""Saves: once, by one process, complete or not at all.

torch.save(model.state_dict(), path)    ->  accelerator.wait_for_everyone()
                                            accelerator.save(accelerator.unwrap_model(model).state_dict(), path)

The wait is so that no process still reads an older file of that name when it is replaced. There is none where not every
process is known to come to the save, as they would wait for ever.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from accelify.analysis import values as v
from accelify.analysis.files.opened_paths import opened_path
from accelify.analysis.files.sample_files import writes_own
from accelify.analysis.scopes import Scope
from accelify.analysis.syntax import call_argument, calls_in, dotted, names_in, target_names, walk
from accelify.findings import Safety
from accelify.transforms.base import Change, Context, Rule
from accelify.transforms.models_on_one_process import handed_alone
from accelify.writer import edits as verbs
from accelify.writer.edits import Edit, InsertBefore, PutUnder

_SAVING = re.compile(r"^save|_save$|save_|checkpoint$", re.I)
# `load_checkpoint(path, model)`: every process needs what it brings.
_LOADING = re.compile(r"(^|_)(load|restore|resume|read|from|get|find)", re.I)
_CONTAINERS = frozenset(f"torch.nn.{name}" for name in ("Sequential", "ModuleList", "ModuleDict"))
SAVE = Rule(
    "ACC206",
    "Every process would write the same file at the same time.",
    effort=3,
    done="left saving to the main process",
)


def transform(context: Context) -> Iterator[Change]:
    """Yield the changes to torch.save and to methods that save a model."""
    tree, script = context.tree, context.script
    yield from _handed_over(context)
    waited: set[ast.stmt] = set()
    for call in tree.in_order(script.calls_to(["torch.save"])):
        if context.is_claimed(call):
            continue
        if context.effects.into_memory(call) or writes_own(context.plan, context.effects, call):
            continue  # in memory, where every process may need it, or named by a sample that no other process has
        accelerator = context.accelerator(call)
        if accelerator is None:
            yield context.todo(SAVE, call, "every process would write this file", "let one process save this")
            continue
        edits = _whole_models(context, call, accelerator)
        if context.for_accelerate and not edits and _holds_wrapper(context, call):
            yield context.todo(
                SAVE, call, "a wrapped model is saved within something else, and no single process can load that",
                f"put {accelerator}.unwrap_model(model) into it, or the model's state_dict()",
            )  # fmt: skip
        block = _open_block(context, call)
        if block is not None and context.is_guarded(block):
            if not edits:
                continue
        elif block is not None:
            edits.append(PutUnder(block, block, f"if {accelerator}.is_main_process:"))
            context.guarded.add(block)
        else:
            func = call.func
            edits.append(verbs.replace(func, f"{accelerator}.save"))
            edits += _path_itself(context, call)
            stmt = tree.statement(call)
            if isinstance(stmt, ast.Expr) and tree.own_line(stmt):
                body = tree.block_of(stmt)[2]
                before = body[body.index(stmt) - 1] if body.index(stmt) else None
                waited.add(stmt)
                # A run of saves waits once.
                if (
                    before not in waited
                    and context.runs_everywhere(stmt)
                    and not _by_own_figure(context, stmt)
                ):
                    place = _tried_again(context, stmt) or stmt
                    edits.append(InsertBefore(place, (f"{accelerator}.wait_for_everyone()",)))
        yield context.change(SAVE, call, "every process would write this file", edits)


def _tried_again(context: Context, stmt: ast.stmt) -> ast.stmt | None:
    """The loop that tries a save until it does not fail: only the process whose save failed runs another round."""
    tree = context.tree
    attempt = tree.parent(stmt)
    loop = tree.parent(attempt) if isinstance(attempt, ast.Try) and attempt.handlers else None
    if not isinstance(loop, (ast.While, ast.For)) or context.script.trains(loop) or not tree.own_line(loop):
        return None
    return loop if context.runs_everywhere(loop) else None


def _path_itself(context: Context, call: ast.Call) -> list[Edit]:
    """`path` in place of `path.open("wb")`, which empties the file on every process before one of them writes it."""
    target = call_argument(call, 1, "f")
    path = opened_path(context.script, target) if isinstance(target, ast.Call) else None
    if path is None or not isinstance(target, ast.Call) or _appends(target):
        return []
    context.claim(target)
    return [verbs.keep_receiver(target)]


def _appends(call: ast.Call) -> bool:
    """Whether a file is opened for appending, which a write to the path itself would replace."""
    mode = call_argument(call, 0, "mode")
    return isinstance(mode, ast.Constant) and "a" in str(mode.value)


def _by_own_figure(context: Context, stmt: ast.stmt, seen: frozenset[Scope] = frozenset()) -> bool:
    """Whether a figure that each process computes of the whole data decides if a statement is run.

    They are alike but for rounding, by which one process could wait where the others do not come.
    """
    script = context.script
    alone = {
        script.scope_of(e.loop) for e in context.plan.evaluations if not e.loaders & context.plan.prepared
    }
    for ancestor in context.tree.ancestors(stmt) if alone else ():
        if isinstance(ancestor, (ast.FunctionDef, ast.AsyncFunctionDef)):
            scope = script.scope_for(ancestor)
            calls = script.callers(scope) if scope not in seen else []
            return any(_by_own_figure(context, context.tree.statement(c), seen | {scope}) for c in calls)
        if isinstance(ancestor, ast.If) and not script.is_uniform(ancestor.test):
            if script.scope_of(ancestor) in alone or _comes_from(context, ancestor.test, alone):
                return True
    return False


def _comes_from(context: Context, test: ast.expr, scopes: set[Scope]) -> bool:
    """Whether a test reads the results of some functions, through other names of its function."""
    names, values, before = names_in(test), [test], -1
    while len(names) > before:
        before = len(names)
        for node in context.script.scope_of(test).nodes:
            if isinstance(node, ast.Assign) and names & {n for t in node.targets for n in target_names(t)}:
                values.append(node.value)
                names |= names_in(node.value)
    calls = {n for value in values for n in calls_in(value)}
    return any(context.script.callees(call) & scopes for call in calls)


def _handed_over(context: Context) -> Iterator[Change]:
    """`save_checkpoint(model, ...)` of another file: called by one process, with the model unwrapped."""
    tree, script = context.tree, context.script
    known = set(script.functions())
    for call in script.calls():
        stmt = tree.parent(call)
        if not isinstance(stmt, ast.Expr):
            continue
        name = (dotted(call.func) or "").rsplit(".", 1)[-1]
        if not _SAVING.search(name) or _LOADING.search(name) or context.is_guarded(stmt):
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
        edits: list[Edit] = [PutUnder(stmt, stmt, f"if {accelerator}.is_main_process:")]
        for model in models:
            edits += handed_alone(context, model, accelerator)
        context.guarded.add(stmt)
        yield context.change(SAVE, call, "every process would write this file", edits, safety=Safety.REVIEW)


def _whole_models(context: Context, call: ast.Call, accelerator: str) -> list[Edit]:
    """A model saved as an object is saved unwrapped."""
    saved = call_argument(call, 0, "obj")
    edits: list[Edit] = []
    if saved is None:
        return edits
    if isinstance(saved, ast.Name):
        # `state = {"net": net}` on a separate line.
        assigned = [
            stmt.value
            for stmt in context.tree.nodes(ast.Assign)
            if any(isinstance(t, ast.Name) and t.id == saved.id for t in stmt.targets)
            and context.script.scope_of(stmt) is context.script.scope_of(saved)
        ]
        # What was read from a file into the name before is another value.
        made = [w for w in assigned if context.tree.is_before(w, call)]
        for value in made:
            edits += _contained_models(context, value, accelerator)
        retained = [w for w in made if not _is_loaded(context, w)]
        if len(retained) == 1 and _parts(retained[0]) is not None:
            saved = retained[0]
    parts = _parts(saved)
    values = [saved] if parts is None else parts
    for value in values:
        edits += _contained_models(context, value, accelerator)
        func = value.func if isinstance(value, ast.Call) and parts is not None else None
        if isinstance(func, ast.Attribute) and func.attr in ("cpu", "cuda", "to", "eval", "half", "float"):
            value = func.value  # `model.cpu()`
        if isinstance(value, (ast.Name, ast.Attribute)) and context.plan.is_prepared(value, v.MODEL):
            if isinstance(value, ast.Attribute) and value.attr == "module":
                continue  # unwrapping rewrites `.module`
            tree = context.tree
            edits.append(verbs.replace(value, f"{accelerator}.unwrap_model({tree.segment(value)})"))
            context.claim(value)
    return edits


def _holds_wrapper(context: Context, call: ast.Call) -> bool:
    """Whether a prepared model is in the dictionary or list that is saved, or a copy of one is saved.

    The wrapper of accelify's runtime is written as its module.
    """
    saved = call_argument(call, 0, "obj")
    made = (
        [s.value for s in context.locations[1].bindings(saved) if isinstance(s, ast.Assign)]
        if isinstance(saved, ast.Name)
        else [saved]
    )
    for value in made:
        if isinstance(value, ast.Call) and context.script.qualname(value.func) == "copy.deepcopy":
            if any(context.plan.is_prepared(a, v.MODEL) and not context.is_claimed(a) for a in value.args):
                return context.plan.after_prepare(value)
    contained = context.script.values(saved) if saved is not None else set()
    queue = [w for w in contained if isinstance(w, (v.Mapping, v.Sequence))]
    seen: set[v.Value] = set()
    while queue:
        one = queue.pop()
        seen.add(one)
        inside = one.get(None) if isinstance(one, v.Mapping) else one.any()
        if any(isinstance(w, v.Entity) and w.kind == v.MODEL and w in context.plan.prepared for w in inside):
            return context.plan.after_prepare(call)
        queue += [w for w in inside if isinstance(w, (v.Mapping, v.Sequence)) and w not in seen]
    return False


def _parts(value: ast.expr) -> list[ast.expr] | None:
    """What a dictionary, list or tuple is written from; None for anything else."""
    if isinstance(value, ast.Dict):
        return list(value.values)
    if isinstance(value, (ast.Tuple, ast.List)):
        return list(value.elts)
    if isinstance(value, ast.Call) and dotted(value.func) == "dict" and not value.args:
        return [kw.value for kw in value.keywords]
    return None


def _is_loaded(context: Context, value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and context.script.qualname(value.func) in (
        "torch.load",
        "pickle.load",
    )


def _contained_models(context: Context, value: ast.expr, accelerator: str) -> list[Edit]:
    """Prepared models that are put into a container of torch's on their way into a file: `nn.Sequential(model)`."""
    if not isinstance(value, ast.Call) or (context.script.qualname(value.func) or "") not in _CONTAINERS:
        return []
    edits: list[Edit] = []
    for node in (n for a in value.args for n in walk(a)):
        if isinstance(node, (ast.Name, ast.Attribute)) and context.plan.is_prepared(node, v.MODEL):
            if isinstance(context.tree.parent(node), ast.Attribute):
                continue
            if isinstance(node, ast.Attribute) and context.plan.is_prepared(node.value, v.MODEL):
                continue  # a part of it, which unwrapping reads
            if not context.is_claimed(node) and context.plan.after_prepare(node):
                edits.append(verbs.replace(node, context.unwrapped(node, accelerator)))
                context.claim(node)
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
