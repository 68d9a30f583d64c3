"""`nn.DataParallel`, which prepare replaces.

model = nn.DataParallel(model)    ->  (gone)
model = nn.DataParallel(Net())    ->  model = Net()
self.cnn.module.fc                ->  self.cnn.fc    (a part of a model, which is not prepared by itself)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify import edits as verbs
from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.syntax import call_argument, dotted
from accelify.analysis.values import Class, Thing
from accelify.edits import DeleteStatement, Edit, Replace
from accelify.findings import Severity
from accelify.transforms.base import Change, Context, Rule

PARALLEL = Rule(
    "ACC109", "data-parallel", "DataParallel splits each batch over the GPUs of one process.", Severity.ERROR
)


def transform(context: Context) -> Iterator[Change]:
    """Yield the removal of DataParallel wrappers."""
    parts: set[Thing] = set()
    for call in context.script.calls():
        if not _wraps(context, call):
            continue
        inner = call_argument(call, 0, "module")
        if inner is None:
            continue
        stmt = context.tree.statement(call)
        if not context.plan.is_prepared(call):
            parts |= context.script.things(call)
        edits: list[Edit]
        if (
            isinstance(stmt, ast.Assign)
            and _only_moved(context, stmt.value, call)
            and dotted(stmt.targets[0]) == dotted(_unmoved(context, inner)) is not None
        ):
            branch = context.tree.parent(stmt)
            target: ast.stmt = stmt
            alone = isinstance(branch, ast.If) and not branch.orelse and not context.tree.is_elif(branch)
            if isinstance(branch, ast.If) and alone and _only_reports(branch, stmt):
                target = branch
            edits = [DeleteStatement(target)]
            if (
                isinstance(branch, ast.If)
                and stmt in branch.body
                and branch.orelse
                and _only_reports(branch, stmt)
            ):
                # What tells of several devices goes with them, and the other branch is what is left.
                edits = [DeleteStatement(s) for s in branch.body]
                context.claim(*branch.body)
            context.claim(target)
        else:
            edits = list(verbs.keep_argument(context.tree, call, inner))
            context.claim(call.func, *[kw.value for kw in call.keywords])
        yield context.change(
            PARALLEL, call, "prepare distributes the model; DataParallel must not wrap it", edits, core=True
        )
        yield from _loads(context, stmt)
    yield from _inner_modules(context, parts)


def _wraps(context: Context, call: ast.Call) -> bool:
    """Whether a call makes a DataParallel, or a class of the project that is one."""
    return context.script.qualname(call.func) in k.PARALLEL_WRAPPERS or any(
        isinstance(w, Class) and w.only_splits(k.PARALLEL_WRAPPERS) for w in context.script.values(call.func)
    )


def _loads(context: Context, wrapped: ast.stmt) -> Iterator[Change]:
    """Files that are loaded into what was wrapped: those that the script as it was has saved name a wrapper's parts."""
    name = dotted(wrapped.targets[0]) if isinstance(wrapped, ast.Assign) else None
    scope = context.script.scope_of(wrapped)
    for call in context.script.calls() if name is not None else ():
        func = call.func
        if (
            not isinstance(func, ast.Attribute)
            or func.attr != "load_state_dict"
            or dotted(func.value) != name
        ):
            continue
        own = context.script.scope_of(call)
        later = own is scope and context.tree.start(call) > context.tree.end(wrapped)
        elsewhere = own is not scope and "." in str(name) and own.owner_class is scope.owner_class is not None
        if later or elsewhere:
            message = (
                "a file saved from under DataParallel names its weights `module.*`: take that off its keys"
            )
            yield context.change(PARALLEL, call, message, severity=Severity.INFO)


def _inner_modules(context: Context, parts: set[Thing]) -> Iterator[Change]:
    """`.module` of what was wrapped and is not prepared, which has none any more."""
    for node in context.tree.nodes(ast.Attribute) if parts else ():
        if node.attr != "module" or context.tree.in_fstring(node):
            continue
        held = context.script.things(node.value)
        if held and held <= parts:
            gone = Replace(context.tree.end(node.value), context.tree.end(node), "")
            message = "`.module` is there only while it is wrapped"
            yield context.change(PARALLEL, node, message, [gone], core=True)


def _only_moved(context: Context, value: ast.expr, call: ast.Call) -> bool:
    """Whether a value is the wrapper itself, or that with a move behind it that prepare makes: `.cuda()`."""
    moves = (ast.Attribute, ast.Call)
    moved = False
    while value is not call and isinstance(value, moves):
        if isinstance(value, ast.Call):
            if not isinstance(value.func, ast.Attribute) or value.func.attr not in ("cuda", "to"):
                return False
            if any(kw.arg == "dtype" for kw in value.keywords):
                return False
            moved, value = True, value.func.value
        else:
            return False
    return value is call and (not moved or context.plan.is_prepared(call, v.MODEL))


def _unmoved(context: Context, inner: ast.expr) -> ast.expr:
    """What is wrapped, without a move that prepare makes: `DataParallel(model.cuda())`."""
    while (
        isinstance(inner, ast.Call)
        and isinstance(inner.func, ast.Attribute)
        and inner.func.attr in ("cuda", "to")
        and not any(kw.arg == "dtype" for kw in inner.keywords)
        and context.plan.is_prepared(inner.func.value, v.MODEL)
    ):
        inner = inner.func.value
    return inner


def _only_reports(branch: ast.If, stmt: ast.stmt) -> bool:
    """Whether a branch does nothing beside the wrapping but print."""
    return all(
        s is stmt
        or (isinstance(s, ast.Expr) and isinstance(s.value, ast.Call) and dotted(s.value.func) == "print")
        for s in branch.body
    )
