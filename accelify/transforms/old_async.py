"""Arguments that torch called `async` up to 0.4, which Python has as a keyword since 3.7: no such file runs any more.

x = x.cuda(async=True)    ->  x = x.cuda(non_blocking=True)    (where the move is not removed)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis.syntax import Tree
from accelify.findings import Severity
from accelify.obsolete_keywords import MODERN, OBSOLETE, obsolete_keywords
from accelify.transforms.base import Change, Context, Rule
from accelify.writer.edits import Edit, replace

OLD_ASYNC = Rule(
    "ACC123",
    "`async` is a keyword since Python 3.7: the file does not parse.",
    Severity.ERROR,
    effort=1,
    done="wrote non_blocking for async, a keyword of Python",
)
MESSAGE = f"`{OBSOLETE}` is a keyword since Python 3.7: in torch it is now `{MODERN}`"


def transform(context: Context) -> Iterator[Change]:
    """Yield the edits of the files that are converted. They are core edits: without them nothing parses."""
    for call, edit in renamed(context.tree):
        yield context.change(OLD_ASYNC, call, MESSAGE, [edit], core=True)


def renamed(tree: Tree) -> Iterator[tuple[ast.Call, Edit]]:
    """Each call with such an argument, and the edit that gives it today's name."""
    if not tree.mentions(OBSOLETE):
        return
    for call in tree.nodes(ast.Call):
        for keyword in obsolete_keywords(call):
            yield call, replace(keyword, f"{MODERN}=", keyword.value, yielding=True)
