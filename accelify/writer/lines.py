"""How statements and the comments around them are on the lines of a script that is edited."""

from __future__ import annotations

import ast
import re

from accelify.analysis.syntax import Tree

# Comments that tell where something is put, and those that are code, or more than a word about the next line.
_MOVE_COMMENT = re.compile(rb"\b(gpus?|cuda|cpu|devices?|variables?|(data)?parallel)\b", re.IGNORECASE)
_STORED_COMMENT = re.compile(rb"[=(]|# ?%%|TODO|FIXME|noqa|type:|pragma|----|####|\*\*\*\*")


def first_on_line(tree: Tree, stmt: ast.stmt) -> ast.stmt:
    """The first of the statements that share a line, `a; b; c`."""
    block = tree.block_of(stmt)[2]
    index = block.index(stmt)
    while index and not tree.own_line(block[index]) and block[index - 1].end_lineno == block[index].lineno:
        index -= 1
    found: ast.stmt = block[index]
    return found


def last_on_line(tree: Tree, stmt: ast.stmt) -> ast.stmt:
    """The last of the statements that share a line."""
    block = tree.block_of(stmt)[2]
    index = block.index(stmt)
    while index + 1 < len(block) and block[index + 1].lineno == block[index].end_lineno:
        index += 1
    found: ast.stmt = block[index]
    return found


def lines_together(tree: Tree, gone: list[ast.stmt]) -> list[list[ast.stmt]]:
    """Statements that go, those of neighbouring lines together."""
    found: list[list[ast.stmt]] = []
    for stmt in gone:
        alone = tree.alone(stmt)
        last = found[-1][-1] if found and alone and tree.alone(found[-1][-1]) else None
        if last is not None and tree.line_end(tree.end(last)) == tree.line_start(tree.start(stmt)):
            found[-1].append(stmt)
        else:
            found.append([stmt])
    return found


def shared_lines(tree: Tree, block: list[ast.stmt], gone: list[ast.stmt]) -> list[list[ast.stmt]]:
    """Statements that go, and have their line among themselves: `x = x.cuda(); y = y.cuda()`."""
    found: dict[int, list[ast.stmt]] = {}
    for stmt in block:
        found.setdefault(stmt.lineno, []).append(stmt)
    return [
        run
        for run in found.values()
        if len(run) > 1
        and all(stmt in gone and stmt.end_lineno == stmt.lineno for stmt in run)
        and tree.own_line(run[0])
        and tree.ends_line(run[-1])
    ]


def ends_paragraph(tree: Tree, stmt: ast.stmt, block: list[ast.stmt]) -> bool:
    """Whether a blank line, a comment or the end of its block follows a statement."""
    end = tree.line_end(tree.end(stmt))
    following = tree.data[end : tree.line_end(end)].strip() if end < len(tree.data) else b""
    return not following or following.startswith(b"#") or stmt is block[-1]


def heading(tree: Tree, start: int) -> int:
    """Where the comment begins that heads the lines from an offset on; the offset where none does."""
    above = start
    while above:
        line_start = tree.line_start(above - 1)
        line = tree.data[line_start:above].strip()
        if not line.startswith(b"#") or line.startswith(b"# %%"):
            break
        above = line_start
    before = tree.data[tree.line_start(above - 1) : above].strip() if above else b"-"
    about_devices = _MOVE_COMMENT.search(tree.data[above:start])
    begins = not before or before.startswith(b"# %%") or before.endswith(b":")  # a paragraph, a cell, a block
    return above if above and not about_devices and begins else start


def comment_above(tree: Tree, start: int) -> int:
    """Where the comment begins that is only about the move below it: `# to the GPU`; `start` where there is none."""
    line = tree.data[start : tree.line_end(start)]
    indent, above = len(line) - len(line.lstrip()), start
    for _ in range(2):
        if not above:
            break
        line_start = tree.line_start(above - 1)
        line = tree.data[line_start:above]
        if not line.strip().startswith(b"#") or len(line) - len(line.lstrip()) != indent:
            break
        above = line_start
    before = tree.data[tree.line_start(above - 1) : above].strip() if above else b""
    comment = tree.data[above:start]
    if before.startswith(b"#") or _STORED_COMMENT.search(comment) or not _MOVE_COMMENT.search(comment):
        return start
    return above
