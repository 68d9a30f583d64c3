"""Comments beside what is edited: which head a statement, and which tell of a move that goes."""

from __future__ import annotations

import re

from accelify.analysis.syntax import Tree

# Comments that tell where something is put, and those that are code, or more than a word about the next line.
_MOVE_COMMENT = re.compile(rb"\b(gpus?|cuda|cpu|devices?|variables?|(data)?parallel)\b", re.IGNORECASE)
_KEPT_COMMENT = re.compile(rb"[=(]|# ?%%|TODO|FIXME|noqa|type:|pragma|----|####|\*\*\*\*")


def comment_heading(tree: Tree, start: int) -> int:
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
    """Where the comment begins that tells of nothing but the move below it: `# to the GPU`; `start` where none does."""
    indent = len(tree.data[start : tree.line_end(start)]) - len(
        tree.data[start : tree.line_end(start)].lstrip()
    )
    above = start
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
    if before.startswith(b"#") or _KEPT_COMMENT.search(comment) or not _MOVE_COMMENT.search(comment):
        return start
    return above
