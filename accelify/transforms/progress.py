"""Progress bars: one a machine.

for batch in tqdm(loader):    ->  for batch in tqdm(loader, disable=not accelerator.is_local_main_process):
"""

from __future__ import annotations

from collections.abc import Iterator

from accelify import edits as verbs
from accelify.analysis import knowledge as k
from accelify.analysis.syntax import call_keyword
from accelify.transforms.base import Change, Context, Rule

PROGRESS = Rule("ACC202", "progress-bar", "Every process would draw the same progress bar.", effort=1)


def transform(context: Context) -> Iterator[Change]:
    """Yield the `disable` argument of progress bars."""
    for call in context.script.calls():
        if not k.is_progress(context.script.qualname(call.func)) or call_keyword(call, "disable") is not None:
            continue
        if any(kw.arg is None for kw in call.keywords) or not _cheap(context, call):
            continue
        accelerator = context.accelerator(call)
        if accelerator is None:
            continue
        try:
            edit = verbs.add_keyword(context.tree, call, f"disable=not {accelerator}.is_local_main_process")
        except verbs.EditError:
            continue
        yield context.change(PROGRESS, call, "every process would draw this bar", [edit])


def _cheap(context: Context, node: object) -> bool:
    import ast

    assert isinstance(node, ast.AST)
    return context.reaches_cheaply(node)
