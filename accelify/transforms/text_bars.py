"""Bars of the library `progress`, which has no switch to turn them off: they count everywhere, and are shown by one.

bar = Bar("train", max=n)    ->  bar = Bar("train", max=n, file=sys.stderr if accelerator.is_local_main_process
                                                               else open(os.devnull, "w"))
"""

from __future__ import annotations

from collections.abc import Iterator

from accelify.analysis.modules.module_names import module_at
from accelify.analysis.syntax import call_keyword
from accelify.transforms import progress
from accelify.transforms.base import Change, Context
from accelify.writer import edits as verbs
from accelify.writer.edits import Edit

_LIBRARY = ("progress.bar.", "progress.counter.", "progress.spinner.")


def transform(context: Context) -> Iterator[Change]:
    """Yield the place that such a bar is written to."""
    # A package that is not converted may re-export the class: `from utils import Bar`.
    if not any(module.tree.mentions("progress") for module in context.script.program.modules.values()):
        return
    for call in context.script.calls_named(lambda name: name.startswith(_LIBRARY)):
        name = context.script.qualname(call.func) or ""
        if not name.rpartition(".")[2][:1].isupper():
            continue
        if context.is_claimed(call) or context.is_guarded(call) or context.plan.on_main_only(call):
            continue
        if call_keyword(call, "file") is not None or any(kw.arg is None for kw in call.keywords):
            continue
        accelerator = context.accelerator(call) if context.reaches_cheaply(call) else None
        if accelerator is None:
            continue
        (os, _), (sys, _) = modules = [module_at(context.script, call, name) for name in ("os", "sys")]
        place = f'{sys}.stderr if {accelerator}.is_local_main_process else open({os}.devnull, "w")'
        try:
            edits: list[Edit] = [verbs.AddArgument(call, f"file={place}")]
        except verbs.EditError:
            continue
        edits += [context.import_for(call, line) for _, line in modules if line is not None]
        yield context.change(progress.PROGRESS, call, "every process would draw this bar", edits)
