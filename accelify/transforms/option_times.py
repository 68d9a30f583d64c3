"""Options whose default is a name made from the clock: the processes agree on it after the Accelerator is made.

parser.add_argument("--name", default=strftime("%H-%M"))    (becomes part of a path that the script looks into)
args = parser.parse_args()
accelerator = Accelerator()                                 ->  args.name = broadcast_object_list([args.name])[0]
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis.files.clock_texts import ClockTexts
from accelify.analysis.scopes import handed_to
from accelify.analysis.statements.option_defaults import option_name
from accelify.analysis.syntax import call_keyword, dotted
from accelify.transforms.agreed_names import agreement_import
from accelify.transforms.base import Change, Context, short
from accelify.transforms.clock_paths import is_read_as_path
from accelify.transforms.clocks import ADVICE, CLOCK, reads_files
from accelify.writer.edits import Edit, InsertBefore


def transform(context: Context) -> Iterator[Change]:
    """Yield the agreement on each such option, and a finding where it is read above the Accelerator."""
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
        message = f"every process would name `{option}` by its own clock"
        edits = _agreed(context, option)
        where = "" if edits else f" ({short(context.tree.segment(default))}): after the Accelerator, {ADVICE}"
        yield context.change(CLOCK, call, f"{message}{where}", edits)


def _agreed(context: Context, option: str) -> list[Edit]:
    """Edits that make the processes agree on an option as soon as there is an Accelerator; none where it is read
    before that, or where it is not known under which name the options are there."""
    script, tree, anchor = context.script, context.tree, context.plan.anchor
    place = anchor.before if anchor is not None else None
    parsed = [
        stmt
        for stmt in tree.nodes(ast.Assign)
        if isinstance(stmt.value, ast.Call) and getattr(stmt.value.func, "attr", "") == "parse_args"
    ]
    if anchor is None or place is None or len(parsed) != 1 or not isinstance(parsed[0].targets[0], ast.Name):
        return []
    name, home, origin = parsed[0].targets[0].id, script.scope_of(place), script.scope_of(parsed[0])
    made: ast.Call | None = None
    if home is not origin:
        calls = script.callers(home)
        if len(calls) != 1 or script.scope_of(calls[0]) is not origin or script.called_from_elsewhere(home):
            return []
        made = calls[0]
        taken = [own for given, own in handed_to(calls[0], home) if dotted(given) == name]
        if taken:
            name = taken[0]
        elif home.resolve(name) is not origin:
            return []

    def is_early(node: ast.AST) -> bool:
        return anchor.is_after(tree, node) if made is None else tree.is_before(node, made)

    if not is_early(parsed[0]):
        return []
    for node in tree.nodes(ast.Attribute):
        if node.attr == option:
            scope = script.scope_of(node)
            between = scope is origin and tree.is_after(node, parsed[0]) and is_early(node)
            if between or (scope is home and anchor.is_after(tree, node)):
                return []
    for called in origin.nodes:
        if isinstance(called, ast.Call) and tree.is_after(called, parsed[0]) and is_early(called):
            if script.callees(called):
                return []  # which may read it
    line = f"{name}.{option} = broadcast_object_list([{name}.{option}])[0]"
    return [InsertBefore(place, (line,), order=-49), agreement_import(context, place)]


__all__ = ["transform"]
