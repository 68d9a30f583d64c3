"""How statements lie on their lines: several on one, those that go together, and what follows them."""

from __future__ import annotations

import ast

from accelify.analysis.syntax import Tree


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
