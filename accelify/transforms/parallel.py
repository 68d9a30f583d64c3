"""`nn.DataParallel`, which prepare replaces.

model = nn.DataParallel(model)    ->  (gone)
model = nn.DataParallel(Net())    ->  model = Net()
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify import edits as verbs
from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.syntax import call_argument, dotted
from accelify.edits import DeleteStatement, Edit
from accelify.findings import Severity
from accelify.transforms.base import Change, Context, Rule

PARALLEL = Rule(
    "ACC109", "data-parallel", "DataParallel splits each batch over the GPUs of one process.", Severity.ERROR
)


def transform(context: Context) -> Iterator[Change]:
    """Yield the removal of DataParallel wrappers."""
    for call in context.script.calls():
        if context.script.qualname(call.func) not in k.PARALLEL_WRAPPERS:
            continue
        inner = call_argument(call, 0, "module")
        if inner is None:
            continue
        stmt = context.tree.statement(call)
        edits: list[Edit]
        if (
            isinstance(stmt, ast.Assign)
            and _only_moved(context, stmt.value, call)
            and dotted(stmt.targets[0]) == dotted(inner) is not None
        ):
            branch = context.tree.parent(stmt)
            target: ast.stmt = stmt
            if isinstance(branch, ast.If) and not branch.orelse and _only_reports(branch, stmt):
                target = branch
            edits = [DeleteStatement(target)]
            context.claim(target)
        else:
            edits = list(verbs.keep_argument(context.tree, call, inner))
            context.claim(call.func, *[kw.value for kw in call.keywords])
        yield context.change(
            PARALLEL, call, "prepare distributes the model; DataParallel must not wrap it", edits, core=True
        )


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


def _only_reports(branch: ast.If, stmt: ast.stmt) -> bool:
    """Whether a branch does nothing beside the wrapping but print."""
    return all(
        s is stmt
        or (isinstance(s, ast.Expr) and isinstance(s.value, ast.Call) and dotted(s.value.func) == "print")
        for s in branch.body
    )
