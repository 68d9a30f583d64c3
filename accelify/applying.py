"""The changes that transforms found, made: what becomes of the files they are in."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from accelify.analysis.joined import JoinedTree
from accelify.analysis.syntax import Tree
from accelify.conversion import CONVERTED, REFUSED, Conversion, left_alone, why_not
from accelify.dropped_moves import dropped_moves
from accelify.findings import Finding
from accelify.minimal_module_edits import fixed_helpers
from accelify.rule_codes import published
from accelify.source import Source
from accelify.transforms.base import Change, Context
from accelify.writer import edits as verbs
from accelify.writer.checks import check
from accelify.writer.edits import Edit


def apply_changes(
    sources: list[Source], tree: Tree, context: Context, changes: list[Change]
) -> list[Conversion]:
    """Make the edits: the core ones all or none, the others as far as they fit; a conversion for each file."""
    core = [c for c in changes if c.core]
    rest = [c for c in changes if not c.core]
    for change in core:
        if change.problem:
            place = (change.finding.path, change.finding.line, change.finding.column)
            return [_core_failed(sources[0], place, change.problem)]
    retained = [e for c in core for e in c.edits]
    applied, remaining = list(core), [c for c in rest if not c.edits]
    wanted = [c for c in rest if c.edits]
    try:
        # All at once first, which is the rule; one by one only where two of them collide.
        data = _checked(tree, [*retained, *[e for c in wanted for e in c.edits]])
        applied += wanted
    except (verbs.EditError, SyntaxError, ValueError):
        try:
            data = _checked(tree, retained)
        except (verbs.EditError, SyntaxError, ValueError) as error:
            return [_core_failed(sources[0], _place(error, tree, context), _sentence(error, changes))]
        for change in wanted:
            try:
                data = _checked(tree, [*retained, *change.edits])
                retained += change.edits
                applied.append(change)
            except (verbs.EditError, SyntaxError, ValueError) as error:
                remaining.append(change.without_edits(_sentence(error, changes)))
        data = _checked(tree, retained)
    done = {c.finding for c in applied if c.finding.fixable}
    left = {c.finding for c in [*remaining, *applied] if not c.finding.fixable}
    conversions = []
    dropped = dropped_moves(tree, context.dropped)
    for source, text in zip(sources, _texts(tree, data), strict=True):
        path = str(source.path) if source.path else "<stdin>"
        conversion = Conversion(source, CONVERTED, new_text=text)
        conversion.applied = sorted(f for f in done if f.path == path or len(sources) == 1)
        conversion.remaining = sorted(f for f in left if f.path == path or len(sources) == 1)
        conversion.dropped = [one for one in dropped if one.place.path == path or len(sources) == 1]
        conversion.edited = partial(_edited, tree, applied, None if len(sources) == 1 else path)
        conversions.append(conversion)
    for helper in fixed_helpers(context, sources[0]):
        conversions[0].helpers.append(helper)
    return conversions


def _edited(tree: Tree, applied: list[Change], path: str | None) -> list[tuple[Finding, int]]:
    """Each fixed finding, with the lines at which its edits begin, in one file or in the only one."""
    found = []
    for change in applied:
        for edit in change.edits if change.finding.fixable else ():
            where, line, _ = tree.locate(verbs.place_of(tree, edit))
            if path in (None, where):
                found.append((change.finding, line))
    return found


def _texts(tree: Tree, data: bytes) -> list[str]:
    parts = tree.cut(data) if isinstance(tree, JoinedTree) else [data]
    return [part.decode("utf-8") for part in parts]


def _checked(tree: Tree, edits: Iterable[Edit]) -> bytes:
    """The edited bytes, after a look whether they are still Python, with all names bound and all calls fitting."""
    from accelify.writer.writing import apply

    data = apply(tree, edits)
    check(tree, _texts(tree, tree.data), _texts(tree, data), tree.paths())
    return data


def _sentence(error: Exception, changes: list[Change]) -> str:
    """Why edits cannot be made, without the parser's words for a text that the user never sees."""
    if not isinstance(error, verbs.EditError):
        return "its changes do not fit together with others"
    if not error.edits:
        return str(error)
    rules = list(dict.fromkeys(rule for edit in error.edits if (rule := _rule_of(edit, changes))))
    if len(rules) == 1:
        return f"{rules[0]} changes the same code in two ways"
    return (
        f"{' and '.join(rules)} change the same code"
        if rules
        else "two changes are to be made to the same code"
    )


def _rule_of(edit: Edit, changes: list[Change]) -> str:
    found = next((change.finding for change in changes if edit in change.edits), None)
    shown = None if found is None else published(found)
    return "" if shown is None else f"{shown.code} ({shown.name})"


def _place(error: Exception, tree: Tree, context: Context) -> tuple[str, int, int]:
    """Where edits cannot be made; the call of backward where it is not known which."""
    edits = error.edits if isinstance(error, verbs.EditError) else ()
    node = verbs.node_of(edits[-1]) if edits else context.script.backwards[0].call
    return tree.locate(tree.start(node))


def _core_failed(source: Source, place: tuple[str, int, int], message: str) -> Conversion:
    found = left_alone(source, REFUSED, f"the core edits cannot be made: {message}")
    found.remaining.append(why_not(*place, "ACC008", message))
    return found
