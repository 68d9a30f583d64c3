"""Modules that stay as they are but for what the converted script cannot run without.

`batch[0].numpy()` of a helper becomes `batch[0].cpu().numpy()` where its argument is on the device, a table that it
makes for the batch is made on the batch's device, and `async=`, which does not parse any more, gets its current name.
All of these are right for callers from elsewhere, too.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from accelify.analysis.program import Module
from accelify.analysis.syntax import Tree
from accelify.conversion import CONVERTED, REFUSED, Conversion, left_alone
from accelify.findings import Finding
from accelify.source import Source
from accelify.transforms.base import Context, Rule
from accelify.transforms.fixes_elsewhere import FixElsewhere
from accelify.transforms.old_async import MESSAGE, OLD_ASYNC, renamed
from accelify.writer.checks import check
from accelify.writer.edits import Edit, EditError


def fixed_helpers(context: Context, source: Source) -> Iterator[Conversion]:
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
