"""The changes that transforms found, made: what becomes of the files they are in."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from accelify.analysis.joined import JoinedTree
from accelify.analysis.program import Module
from accelify.analysis.syntax import Tree
from accelify.conversion import CONVERTED, REFUSED, Conversion, left_alone, why_not
from accelify.dropped_moves import dropped_moves
from accelify.findings import Finding
from accelify.rule_codes import published
from accelify.source import Source
from accelify.transforms.base import Change, Context, Rule
from accelify.transforms.fixes_elsewhere import FixElsewhere
from accelify.transforms.old_async import MESSAGE, OLD_ASYNC, renamed
from accelify.writer import edits as verbs
from accelify.writer.checks import check
from accelify.writer.edits import Edit, EditError


def apply_changes(
    sources: list[Source], tree: Tree, context: Context, changes: list[Change]
) -> list[Conversion]:
    """Make the edits: the core ones all or none, the others as far as they fit; a conversion for each file."""
    core = [c for c in changes if c.core]
    rest = [c for c in changes if not c.core]
    for change in core:
        if change.problem:
            return [_core_failed(sources[0], context, change.problem)]
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
            return [_core_failed(sources[0], context, _sentence(error, changes))]
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
    for helper in _fixed_helpers(context, sources[0]):
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
        return "its edits do not fit together with others"
    rules = [_rule_of(edit, changes) for edit in error.edits]
    return f"{error}: one of {rules[0]}, one of {rules[1]}" if len(rules) == 2 and all(rules) else str(error)


def _rule_of(edit: Edit, changes: list[Change]) -> str:
    found = next((change.finding for change in changes if edit in change.edits), None)
    shown = None if found is None else published(found)
    return "" if shown is None else f"{shown.code} ({shown.name})"


def _core_failed(source: Source, context: Context, message: str) -> Conversion:
    found = left_alone(source, REFUSED, f"the core edits cannot be made: {message}")
    path, line, _ = context.tree.locate(context.tree.start(context.script.backwards[0].call))
    found.remaining.append(why_not(path, line, 1, "ACC008", message))
    return found


# Modules that stay as they are but for what the converted script cannot run without.
#
# `batch[0].numpy()` of a helper becomes `batch[0].cpu().numpy()` where its argument is on the device, a table that it
# makes for the batch is made on the batch's device, and `async=`, which does not parse any more, gets its current name.
# All of these are right for callers from elsewhere, too.


def _fixed_helpers(context: Context, source: Source) -> Iterator[Conversion]:
    """What becomes of such modules; where the edits of one cannot be made, it stays and its findings say why.

    Args:
        context: what the transforms have found in the script.
        source: the script, after which the files are named.
    """
    fixed: dict[Module, dict[ast.expr, FixElsewhere]] = {}
    for one in context.fixes_elsewhere:
        fixed.setdefault(one.module, {})[one.node] = one
    converted = set(context.script.modules)
    for module in dict.fromkeys([*fixed, *context.script.program.modules.values()]):
        old = list(renamed(module.tree)) if module not in converted else []
        if module.path is None or source.path is None or not (module in fixed or old):
            continue
        folder = Path(source.path).resolve().parent
        shown = Path(os.path.normpath(Path(source.path).parent / os.path.relpath(module.path, folder)))
        helper, tree = Source.read(shown), module.tree
        edits = [edit for _, edit in old]
        findings = {_finding(shown, call, OLD_ASYNC, MESSAGE) for call, _ in old}
        for node, one in fixed.get(module, {}).items():
            edits.append(one.edit)
            findings.add(_finding(shown, node, one.rule, one.message))
        yield _fixed(helper, tree, edits, sorted(findings))


def _fixed(helper: Source, tree: Tree, edits: list[Edit], findings: list[Finding]) -> Conversion:
    from accelify.writer.writing import apply

    try:
        text = apply(tree, edits).decode("utf-8")
        check(tree, [tree.text], [text], [str(helper.path)])
    except (EditError, SyntaxError, ValueError) as error:
        why = str(error) if isinstance(error, EditError) else "its edits do not fit together"
        left = [finding.not_done(why) for finding in findings]
        return replace(left_alone(helper, REFUSED, f"its edits cannot be made: {why}"), remaining=left)
    return Conversion(helper, CONVERTED, applied=findings, new_text=text)


def _finding(path: Path, node: ast.expr, rule: Rule, message: str) -> Finding:
    return Finding(
        str(path), node.lineno, node.col_offset + 1, rule.code, rule.name, message,
        node.end_lineno or node.lineno, (node.end_col_offset or 0) + 1,
        rule.severity, rule.safety, rule.effort, (), fixable=True, done=rule.done,
    )  # fmt: skip
