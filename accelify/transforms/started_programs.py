"""Programs that a script starts and whose process or output it uses: one server for each process, on the same port.

board = subprocess.Popen(["tensorboard", "--logdir", "runs"])    ->  if accelerator.is_main_process:
                                                                         board = subprocess.Popen([...])

Where the name is read again, it is a finding.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis.files.shell import SHELL, run_for_all, writes_by_shell
from accelify.transforms.base import Change, Context
from accelify.transforms.files import FILES
from accelify.writer.edits import PutUnder


def transform(context: Context) -> Iterator[Change]:
    """Yield a guard where the result is not read, else a finding."""
    tree, script = context.tree, context.script
    if not tree.mentions("subprocess") and not tree.mentions("os.system"):
        return
    for call in script.calls():
        name, stmt = script.qualname(call.func), tree.statement(call)
        if name not in SHELL or isinstance(tree.parent(call), ast.Expr):
            continue
        scope = script.scope_of(call)
        if not (writes_by_shell(call, name, scope) or run_for_all(call, name, scope)):
            continue
        if context.is_claimed(call) or context.is_guarded(call) or context.plan.on_main_only(call):
            continue
        message = "every process would start this program"
        accelerator = context.accelerator(stmt) if _is_left_alone(context, stmt, call) else None
        if accelerator is not None:
            context.guarded.add(stmt)
            guard = PutUnder(stmt, stmt, f"if {accelerator}.is_main_process:")
            yield context.change(FILES, call, message, [guard])
            continue
        yield context.change(
            FILES, call, f"{message}: start it, and do all with it, on the main process alone"
        )


def _is_left_alone(context: Context, stmt: ast.stmt, call: ast.Call) -> bool:
    """Whether a statement only keeps the process by a name that nobody reads."""
    if not isinstance(stmt, ast.Assign) or stmt.value is not call or len(stmt.targets) != 1:
        return False
    target, script = stmt.targets[0], context.script
    owner = script.scope_of(stmt).resolve(target.id) if isinstance(target, ast.Name) else None
    return isinstance(target, ast.Name) and owner is not None and not script.reads(target.id, owner)
