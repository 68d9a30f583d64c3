"""Options whose default is a name made from the clock, of which each process has its own: a finding.

parser.add_argument("--name", default=strftime("%H-%M"))    (becomes part of a path that the script looks into)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis.files.clock_texts import ClockTexts
from accelify.analysis.statements.option_defaults import option_name
from accelify.analysis.syntax import call_keyword
from accelify.transforms.base import Change, Context, short
from accelify.transforms.clock_paths import is_read_as_path
from accelify.transforms.clocks import ADVICE, CLOCK, reads_files


def transform(context: Context) -> Iterator[Change]:
    """Yield a finding for each such option."""
    if not context.tree.mentions("add_argument") or context.plan.anchor is None:
        return
    texts = ClockTexts(context.script)
    if not texts.is_near or not reads_files(context):
        return
    for call in context.script.calls():
        default = call_keyword(call, "default") if getattr(call.func, "attr", "") == "add_argument" else None
        # The default's name from the clock is reported where the name is set.
        if default is None or isinstance(default, (ast.Name, ast.Attribute)) or context.is_claimed(default):
            continue
        option = option_name(call)
        times = texts.times_in(context.script.scope_of(call))
        if option is None or not texts.is_text(default, times) or not is_read_as_path(context, option):
            continue
        message = (
            f"every process would name `{option}` by its own clock ({short(context.tree.segment(default))}): after the "
            f"Accelerator, {ADVICE}"
        )
        yield context.change(CLOCK, call, message)
