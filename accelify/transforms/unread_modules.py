"""Modules of the project that do not parse: what the script imports from them is not known.

from old_loss import Weighted    (a finding, where old_loss.py has a `print x`)
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator

from accelify.findings import Safety, Severity
from accelify.transforms.base import Change, Context, Rule

UNREAD = Rule(
    "ACC429",
    "unread-module",
    "A module that the script uses does not parse, so that nothing is known of what it does.",
    Severity.INFO,
    Safety.MANUAL,
    effort=5,
)


def transform(context: Context) -> Iterator[Change]:
    """Yield a finding for each such module, where the script imports it."""
    unread = context.script.program.unread
    reported = set()
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    for name, (path, line) in unread.items():
        if path in reported:
            continue
        reported.add(path)
        where = f"{path.name}, line {line}," if line else path.name
        yield context.change(
            UNREAD,
            _import_of(context, name),
            f"{where} does not parse under Python {version}, which runs accelify: what it does is not known here",
        )


def _import_of(context: Context, name: str) -> ast.stmt:
    """Where the script, or a module that is converted with it, imports a module; else the script's first statement."""
    for node in context.tree.nodes(ast.Import, ast.ImportFrom):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            base = node.module or ""
            if node.level:
                package = context.script.module_of(node).package.split(".")
                base = ".".join([*package[: len(package) - node.level + 1], *([base] if base else [])])
            names = [base, *[f"{base}.{alias.name}" for alias in node.names]]
        if any(one == name or one.startswith(f"{name}.") for one in names):
            found: ast.stmt = node
            return found
    return context.script.module.tree.module.body[0]
