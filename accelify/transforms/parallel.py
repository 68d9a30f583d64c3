"""`nn.DataParallel`, which prepare replaces.

model = nn.DataParallel(model)    ->  (gone)
model = nn.DataParallel(Net())    ->  model = Net()
model = ParallelWithHooks(model, device_ids=ids)    ->  (gone; of a module that is not read)
self.cnn.module.fc                ->  self.cnn.fc    (a part of a model, which is not prepared by itself)

model.load_state_dict(torch.load(path))
->  model.load_state_dict({name.removeprefix("module."): weight for name, weight in torch.load(path).items()})

Weights are saved without `module.` before their names from now on, and a model without the wrapper around it: scripts
that load them into a DataParallel, or take the model out of one, fail until they are changed. A DataParallel in a
module that is not converted is named by ACC712: of several processes on several GPUs only the first can run it.
Functions of other modules that take the model out of its wrapper are named by ACC715. An input on the host that a
function of another module passes to the model, or makes for it, is named by ACC710: DataParallel moved it to the GPU.
Batch norm that communicates between the replicas (SynchronizedBatchNorm2d) is named by ACC705: it sees one process's
batch then.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis import knowledge as k
from accelify.analysis.files.values_from_files import comes_from, loads_elsewhere, with_callers
from accelify.analysis.models.parallel_wraps import is_afterwards, is_unread_and_stays, wrapping_calls
from accelify.analysis.schedules.training_before import trained_before
from accelify.analysis.syntax import call_argument, dotted, text_of
from accelify.analysis.values import Entity
from accelify.findings import Safety, Severity
from accelify.transforms.base import Change, Context, Rule
from accelify.transforms.only_wrapping import moves_within, only_wraps, without_statement
from accelify.writer import edits as verbs
from accelify.writer.edits import Edit

PARALLEL = Rule(
    "ACC109",
    "DataParallel splits each batch over the GPUs of one process.",
    Severity.ERROR,
    done="removed DataParallel",
)


def transform(context: Context) -> Iterator[Change]:
    """Yield the removal of DataParallel wrappers."""
    parts: set[Entity] = set()
    wrapped: dict[Entity, list[ast.Call]] = {}
    calls = wrapping_calls(context.script)
    only_wrapping = {
        stmt for call in calls if only_wraps(context, stmt := context.tree.statement(call), calls)
    }
    gone: set[ast.stmt] = set()
    for call in calls:
        inner = call_argument(call, 0, "module")
        if inner is None:
            continue
        stmt = context.tree.statement(call)
        for entity in context.script.entities(call):
            wrapped.setdefault(entity, []).append(call)
        if not context.plan.is_prepared(call):
            parts |= context.script.entities(call)
        edits: list[Edit]
        if stmt in only_wrapping:
            if stmt in gone:
                continue
            edits, deleted = without_statement(context, stmt, only_wrapping)
            gone |= deleted
            context.dropped += moves_within(deleted)
        else:
            edits = [verbs.replace(call, inner)]
            context.claim(call.func, *[kw.value for kw in call.keywords])
        message, safety = "prepare distributes the model; DataParallel must not wrap it", None
        if context.tree.mentions("save(") and not context.tree.mentions(".module.state_dict("):
            message += " (what is saved has no `module.` before the names of its weights any more)"
        if k.is_unread_wrapper(name := context.script.qualname(call.func) or "", call):
            what = f"`{name.rpartition('.')[2]}`, which is not read, passes for a DataParallel"
            message, safety = f"prepare distributes the model; {what} and must not wrap it", Safety.REVIEW
        yield context.change(PARALLEL, call, message, edits, core=True, safety=safety)
    yield from _inner_modules(context, parts)
    yield from _weights(context, wrapped)
    yield from _unread(context)


def _unread(context: Context) -> Iterator[Change]:
    """A DataParallel of a library, or of a module that is not read, with more options: it stays, and is reported."""
    for call in context.script.calls_named(lambda name: name.endswith(".DataParallel")):
        if any(
            entity.site is call and is_unread_and_stays(context.script, entity)
            for entity in context.script.entities(call)
        ):
            message = (
                f"`{context.tree.segment(call.func)}`, which is not read, stays around the model, and would spread it "
                "over the GPUs of the other processes: take it out; prepare distributes the model"
            )
            yield context.todo(
                PARALLEL, call, message, "take the DataParallel out; prepare distributes the model"
            )


def _weights(context: Context, wrapped: dict[Entity, list[ast.Call]]) -> Iterator[Change]:
    """Files that the script saved before have `module.` in front of the names of a wrapped model's weights."""
    script, tree = context.script, context.tree
    calls = list(script.calls()) if wrapped and tree.mentions("load_state_dict") else []
    read = {c for c in calls if script.qualname(c.func) == "torch.load"}
    loads = with_callers(script, read | loads_elsewhere(script)) if calls else set()
    given = [c for c in calls if isinstance(c.func, ast.Attribute) and c.func.attr == "load_state_dict"]
    # Where a script distinguishes the wrapped model from the bare one, it knows about the names.
    minded = {
        script.scope_of(c)
        for c in given
        if isinstance(c.func, ast.Attribute) and (dotted(c.func.value) or "").endswith(".module")
    }
    parts = _wrapped_parts(context, wrapped) if loads else {}
    begun = {_path(load) for load in read if not trained_before(script, load)}
    for call in given if loads else ():
        assert isinstance(call.func, ast.Attribute)
        if script.scope_of(call) in minded:
            continue
        state = call_argument(call, 0, "state_dict")
        # What is loaded after the training was saved by it, without a prefix; a file that was loaded before it as well
        # is still that of an earlier run where nothing better was found.
        if trained_before(script, call) and not (
            state is not None
            and any(_path(one) in begun and comes_from(script, state, {one}) for one in read)
        ):
            continue
        models = script.models_of(call.func.value)
        wraps = [wrap for model in models for wrap in wrapped.get(model, ())]
        whole = any(is_afterwards(context.script, call, wrap) for wrap in wraps)
        inner = {
            name
            for t in models
            for name, wrap in parts.get(t, ())
            if is_afterwards(context.script, call, wrap)
        }
        if state is None or not (whole or inner):
            continue
        if any("module" in c.attributes for t in models if t.cls is not None for c in t.cls.ancestry()):
            continue
        if context.is_claimed(call) or not comes_from(script, state, loads):
            continue
        taken = '.removeprefix("module.")' if whole else ""
        taken += "".join(f'.replace("{name}.module.", "{name}.")' for name in sorted(inner))
        edits: list[Edit] = [
            verbs.replace(state, f"{{name{taken}: weight for name, weight in ", state, ".items()}", order=5),
        ]
        message = "files that were saved under DataParallel have `module.` before the names of the weights"
        yield context.change(PARALLEL, call, message, edits)


def _path(load: ast.Call) -> str:
    """The path that `torch.load` reads, as it is written."""
    path = call_argument(load, 0, "f")
    return text_of(path) if path is not None else ""


def _wrapped_parts(
    context: Context, wrapped: dict[Entity, list[ast.Call]]
) -> dict[Entity, list[tuple[str, ast.Call]]]:
    """The parts of models that are wrapped by themselves, by name: `model.features = DataParallel(model.features)`."""
    found: dict[Entity, list[tuple[str, ast.Call]]] = {}
    for call in (call for calls in wrapped.values() for call in calls):
        stmt = context.tree.statement(call)
        target = stmt.targets[0] if isinstance(stmt, ast.Assign) and len(stmt.targets) == 1 else None
        if isinstance(target, ast.Attribute):
            for model in context.script.models_of(target.value):
                found.setdefault(model, []).append((target.attr, call))
    return found


def _inner_modules(context: Context, parts: set[Entity]) -> Iterator[Change]:
    """`.module` of what was wrapped and is not prepared, which has none any more."""
    for node in context.tree.nodes(ast.Attribute) if parts else ():
        if node.attr != "module":
            continue
        contained = context.script.entities(node.value)
        if contained and contained <= parts:
            gone = verbs.replace(node, node.value)
            message = "`.module` is there only while it is wrapped"
            yield context.change(PARALLEL, node, message, [gone], core=True)
