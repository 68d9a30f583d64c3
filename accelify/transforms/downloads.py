"""Downloads: one process fetches, the others wait and find the files there.

dataset = MNIST(root, download=True)    ->  with accelerator.main_process_first():
                                                dataset = MNIST(root, download=True)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis.effects import DOWNLOADS, FETCHING, opens_for_writing
from accelify.analysis.syntax import call_keyword, is_constant
from accelify.edits import Indent
from accelify.transforms.base import Change, Context, Rule

DOWNLOAD = Rule(
    "ACC205", "download", "Every process would download the same files into the same place.", effort=3
)
_OPENING = frozenset(
    {"requests.get", "urllib.request.urlopen", "tarfile.open", "zipfile.ZipFile", "tarfile.TarFile.open"}
)


def transform(context: Context) -> Iterator[Change]:
    """Yield main_process_first around statements that download, neighbours under one."""
    tree = context.tree
    wanted: dict[ast.stmt, ast.Call] = {}
    for call in context.script.calls():
        own = (
            is_constant(call_keyword(call, "download"), True)
            or context.script.qualname(call.func) in FETCHING
        )
        stmt = tree.statement(call)
        if not own and not _fetches_elsewhere(context, call, stmt):
            continue
        if isinstance(stmt, (ast.Assign, ast.Expr, ast.AnnAssign, ast.Return)) and not context.is_claimed(
            stmt
        ):
            if call_keyword(call, "download") is not None or isinstance(stmt, (ast.Assign, ast.Expr)):
                wanted.setdefault(stmt, call)
    for block_statement in tree.nodes(ast.With):
        call = block_statement.items[0].context_expr
        if not isinstance(call, ast.Call):
            continue
        name = context.script.qualname(call.func)
        if name in _OPENING and opens_for_writing(call, name) is None:
            wanted.setdefault(block_statement, call)
    done: set[ast.stmt] = set()
    for stmt, call in sorted(wanted.items(), key=lambda pair: tree.start(pair[0])):
        if stmt in done:
            continue
        accelerator = context.accelerator(stmt)
        if accelerator is None:
            yield context.change(
                DOWNLOAD, call, "every process would download this; fetch it before launching"
            )
            continue
        run = context.run_of(stmt, wanted.__contains__)
        done.update(run)
        yield context.change(
            DOWNLOAD, call, "every process would download this at the same time",
            [Indent(stmt, run[-1], f"with {accelerator}.main_process_first():")],
        )  # fmt: skip


def _fetches_elsewhere(context: Context, call: ast.Call, stmt: ast.stmt) -> bool:
    """Whether a call runs a function of another module that downloads, and nothing for which processes have to meet."""
    script = context.script
    if not any(
        script.interpreter.module_of(callee) not in script.modules
        and DOWNLOADS in context.effects.of(callee).kinds()
        for callee in script.callees(call)
    ):
        return False
    return not (context.is_guarded(stmt) or script.trains_around(stmt) or context.meets_others(stmt))
