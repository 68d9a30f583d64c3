"""The import, the Accelerator itself, and the one prepare.

from accelify.runtime import Accelerator
accelerator = Accelerator()
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify import edits as verbs
from accelify.edits import Edit, InsertAfter, InsertBefore
from accelify.findings import Severity
from accelify.transforms.base import Change, Context, Rule

IMPORT = Rule(
    "ACC101", "import-accelerator", "The script does not import the runtime.", Severity.ERROR, effort=1
)
CREATE = Rule(
    "ACC102",
    "create-accelerator",
    "The script runs on one device: it has no Accelerator.",
    Severity.ERROR,
    effort=3,
)
PREPARE = Rule(
    "ACC106",
    "prepare",
    "Models, optimizers and loaders are not prepared for several processes.",
    Severity.ERROR,
    effort=10,
)
_LONGEST_LINE = 100


def transform(context: Context) -> Iterator[Change]:
    """Yield the import, the creation and the prepare statements."""
    yield _import(context)
    yield _creation(context)
    yield from _prepares(context)


def _import(context: Context) -> Change:
    anchored = context.plan.anchor.block[0] if context.plan.anchor is not None else context.tree.module
    root = context.script.module_of(anchored).scopes.module.node
    body = root.body
    last: ast.stmt | None = None
    anchor = context.plan.anchor
    limit = anchor.offset if anchor is not None and anchor.root.kind == "module" else len(context.tree.data)
    for index, stmt in enumerate(body):
        if isinstance(stmt, (ast.Import, ast.ImportFrom)):
            if context.tree.start(stmt) >= limit or (last is not None and not _near(context, last, stmt)):
                break
            last = stmt
        elif isinstance(stmt, (ast.FunctionDef, ast.ClassDef, ast.For, ast.While)) or (
            index and last is not None and not isinstance(stmt, (ast.Expr, ast.Try, ast.If, ast.Assign))
        ):
            break
    names = ["Accelerator"]
    if any("GradientAccumulationPlugin" in value for value in context.plan.arguments.values()):
        names.append("GradientAccumulationPlugin")
    line = f"from accelify.runtime import {', '.join(names)}"
    if last is not None:
        edit: Edit = InsertAfter(last, (line,), order=-200)
        place: ast.AST = last
    else:
        docstring = bool(body) and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
        place = body[1] if docstring and len(body) > 1 else body[0]
        edit = InsertBefore(place, (line, ""), order=-100)
    return context.change(IMPORT, place, "the Accelerator is imported", [edit], core=True)


def _near(context: Context, last: ast.stmt, stmt: ast.stmt) -> bool:
    """Whether two imports belong to the same block at the top of the file (a few lines apart)."""
    return stmt.lineno - (last.end_lineno or last.lineno) <= 12


def _creation(context: Context) -> Change:
    anchor = context.plan.anchor
    assert anchor is not None
    arguments = ", ".join(f"{name}={value}" for name, value in context.plan.arguments.items())
    name = "accelerator"
    if anchor.attribute:
        init = anchor.before or anchor.after
        assert init is not None
        name = f"{context.script.scope_of(init).self_name() or 'self'}.accelerator"
    lines: tuple[str, ...] = (f"{name} = Accelerator({arguments})",)
    place = anchor.before or anchor.after
    assert place is not None
    if len(context.tree.indent(place)) + len(lines[0]) > _LONGEST_LINE:
        unit = context.tree.indent_unit()
        lines = (
            f"{name} = Accelerator(",
            *[f"{unit}{k}={v}," for k, v in context.plan.arguments.items()],
            ")",
        )
    if anchor.before is not None:
        edit: Edit = InsertBefore(place, lines, order=-50)
    else:
        edit = InsertAfter(place, lines, order=-50)
    evidence = tuple(f"{key}={value}" for key, value in context.plan.arguments.items())
    return context.change(
        CREATE,
        place,
        "the Accelerator is made before anything that needs it",
        [edit],
        core=True,
        evidence=evidence,
    )


def _prepares(context: Context) -> Iterator[Change]:
    for site in context.plan.sites:
        accelerator = context.accelerator(site.after) or "accelerator"
        if context.plan.anchor is not None and context.plan.anchor.attribute and accelerator == "accelerator":
            accelerator = f"{site.scope.self_name() or 'self'}.accelerator"
        names = site.names()
        line = f"{', '.join(names)} = {accelerator}.prepare({', '.join(names)})"
        lines: tuple[str, ...] = (line,)
        if len(context.tree.indent(site.after)) + len(line) > _LONGEST_LINE:
            unit = context.tree.indent_unit()
            lines = (f"{', '.join(names)} = {accelerator}.prepare(", f"{unit}{', '.join(names)}", ")")
        evidence = tuple(
            f"{item.holder.text(site.scope)}: {item.kind}, {note}"
            for item in site.items
            for t in item.things
            for note in t.evidence[:1]
        )
        message = f"{', '.join(names)} {'are' if len(names) > 1 else 'is'} not prepared for several processes"
        yield context.change(
            PREPARE, site.after, message, [InsertAfter(site.after, lines)], core=True, evidence=evidence
        )
    for call in context.plan.inline:
        reached = context.accelerator(call)
        if reached is None:
            change = context.change(PREPARE, call, "the loader is not prepared for several processes")
            yield Change(change.finding, (), True, "the Accelerator cannot be had where a loader is made")
            continue
        tree = context.tree
        edits: list[Edit] = [
            verbs.insert(tree, tree.start(call), f"{reached}.prepare(", 10),
            verbs.insert(tree, tree.end(call), ")", -10),
        ]
        yield context.change(
            PREPARE, call, "the loader is not prepared for several processes", edits, core=True
        )
