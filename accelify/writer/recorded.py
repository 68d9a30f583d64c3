"""Neighbouring edits of one kind, as one."""

from __future__ import annotations

from accelify.analysis.syntax import Tree
from accelify.writer.edits import Edit, InsertAfter, InsertBefore, PutUnder


def merged(tree: Tree, edits: list[Edit]) -> list[Edit]:
    """The edits, with neighbouring statements that get the same header under one of them."""
    indents = [e for e in edits if isinstance(e, PutUnder)]
    if len(indents) < 2:
        return edits
    between = {e.statement for e in edits if isinstance(e, (InsertBefore, InsertAfter))}
    starting = {e.first: e for e in indents}
    gone: set[PutUnder] = set()
    wider: dict[PutUnder, PutUnder] = {}
    for indent in sorted(set(indents), key=lambda e: tree.start(e.first), reverse=True):
        block = tree.block_of(indent.last)[2]
        place = block.index(indent.last) + 1
        following = starting.get(block[place]) if place < len(block) else None
        if following is None or following.header != indent.header or indent.otherwise:
            continue
        if indent.last in between or following.first in between:
            continue
        if tree.parted(indent.last, following.first):
            continue
        if following.otherwise:
            continue
        gone.add(following)
        wider[indent] = PutUnder(indent.first, wider.pop(following, following).last, indent.header)
    return [wider.get(e, e) if isinstance(e, PutUnder) else e for e in edits if e not in gone]
