"""Imports that a conversion leaves without a reader: they go.

from torch.amp import GradScaler, autocast     ->  (gone)
from torch import nn, optim                    ->  from torch import nn     where only what is gone now read `optim`

Only what the script read before goes, and only imports of the standard library, torch and apex, which do nothing by
themselves. One that may be tried (`try: import apex`), that another file reads from here, or that is asked for by its
name, as in `__all__`, stays.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Collection, Iterator
from itertools import groupby

from accelify.analysis.syntax import dotted
from accelify.source import parse, split_lines

_KNOWN = frozenset({*sys.stdlib_module_names, "torch", "apex"}) - {"__future__"}
_WORD = re.compile(r"[^\W\d]\w*")
# What a comment says for a linter: that somebody wants the import as it is.
_WANTED = "# noqa"
# What runs a text, which may read any name.
_RUNS = frozenset({"eval", "exec"})
_Statement = ast.Import | ast.ImportFrom


def without_unread_imports(
    before: str, after: str, elsewhere: Callable[[Collection[str]], Collection[str]] = lambda names: ()
) -> str:
    """A converted text without the names that it imports and, other than the original, never reads.

    Args:
        before: the original.
        after: what the edits made of it.
        elsewhere: of some names that the file imports, those that other files may read from it.
    """
    if not (imported := list(_imports(parse(after)))):
        return after
    old, new = parse(before), parse(after)
    known = {_key(one, alias) for one in ast.walk(old) if isinstance(one, _Statement) for alias in one.names}
    left = _words(new)
    gone = _words(old) - left if _RUNS.isdisjoint(left) else set()
    asked = {dotted(node) for node in ast.walk(new) if isinstance(node, ast.Attribute)}
    unread = [
        (statement, alias)
        for statement in imported
        for alias in statement.names
        if _name(alias) in gone and _key(statement, alias) in known and not asked & _modules(statement, alias)
    ]
    if not unread:
        return after
    others = elsewhere({_name(alias) for _, alias in unread})
    lines = split_lines(after)
    unread = [(statement, alias) for statement, alias in unread if _name(alias) not in others]
    for statement, group in reversed(
        [(one, [*those]) for one, those in groupby(unread, lambda pair: pair[0])]
    ):
        _take_out(lines, statement, {alias for _, alias in group})
    return "".join(lines)


def _imports(tree: ast.Module) -> Iterator[_Statement]:
    """The imports that stand beside other statements, in no `try`, of modules that do nothing by themselves."""
    queue: list[ast.AST] = [tree]
    for node in queue:  # which grows
        if isinstance(node, (ast.Try, ast.TryStar)):
            continue
        for block in (getattr(node, name, None) for name in ("body", "orelse")):
            if isinstance(block, list):
                queue += block
                # Those of a class are attributes of its objects.
                if len(block) > 1 and not isinstance(node, ast.ClassDef):
                    yield from (one for one in block if isinstance(one, _Statement) and _is_known(one))


def _is_known(statement: _Statement) -> bool:
    if isinstance(statement, ast.ImportFrom):
        return not statement.level and (statement.module or "").partition(".")[0] in _KNOWN
    return all(alias.name.partition(".")[0] in _KNOWN for alias in statement.names)


def _name(alias: ast.alias) -> str:
    return alias.asname or alias.name.partition(".")[0]


def _key(statement: _Statement, alias: ast.alias) -> tuple[str | None, str, str | None]:
    return getattr(statement, "module", None), alias.name, alias.asname


def _modules(statement: _Statement, alias: ast.alias) -> set[str | None]:
    """The modules that are attributes of others once it is imported: `torch.cuda.amp`."""
    if isinstance(statement, ast.Import):
        return {alias.name} if "." in alias.name else set()
    return {statement.module, f"{statement.module}.{alias.name}"}


def _words(tree: ast.Module) -> set[str]:
    """All names that are read or set, also those that stand as texts: in annotations, as in `__all__`."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            found.update(node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
        for stated in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            texts = (one.value for one in ast.walk(stated) if isinstance(one, ast.Constant)) if stated else ()
            found.update(word for text in texts for word in _WORD.findall(str(text)))
    return found


def _take_out(lines: list[str], statement: _Statement, gone: set[ast.alias]) -> None:
    """Take some names out of an import, or all of it with a blank line where there is one on both sides."""
    first, last = statement.lineno - 1, (statement.end_lineno or statement.lineno) - 1
    text = "".join(lines[first : last + 1])
    alone = not lines[first][: statement.col_offset].strip() and ";" not in text
    if _WANTED in text or not text.isascii() or not alone:
        return
    if gone.issuperset(statement.names):
        above = first == 0 or not lines[first - 1].strip()
        below = last + 1 < len(lines) and not lines[last + 1].strip()
        del lines[first : last + 1 + (above and below)]
        return
    starts = [sum(map(len, lines[first : one.lineno - 1])) + one.col_offset for one in statement.names]
    ends = [
        sum(map(len, lines[first : (one.end_lineno or 0) - 1])) + (one.end_col_offset or 0)
        for one in statement.names
    ]
    for number in reversed(range(len(starts))):
        if statement.names[number] in gone:
            more = number + 1 < len(starts)
            begin, end = (starts[number], starts[number + 1]) if more else (ends[number - 1], ends[number])
            if "#" in text[begin:end]:
                return
            text = text[:begin] + text[end:]
            del starts[number], ends[number]
    lines[first : last + 1] = split_lines(text)
