"""What goes with statements that are taken out: tests of which nothing is left, branches, whole blocks."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field

from accelify.analysis.statements.conditions import asks_for_several, only_reads
from accelify.analysis.syntax import Tree
from accelify.writer.edits import Delete, Edit, InsertAfter, InsertBefore, node_of


@dataclass
class Emptied:
    """What becomes of a script when some statements are taken out.

    `gone` are all that go, `passes` those of them that leave a `pass`. Of an `if` one branch can go: `without_else`
    leaves the first, `negated` the other one under the opposite test, `opened` the other one in the place of all.
    """

    gone: set[ast.stmt]
    passes: set[ast.stmt] = field(default_factory=set)
    without_else: set[ast.If] = field(default_factory=set)
    negated: set[ast.If] = field(default_factory=set)
    opened: set[ast.If] = field(default_factory=set)

    @property
    def all(self) -> set[ast.stmt]:
        """Every statement that goes, or of which a branch does."""
        return self.gone | self.without_else | self.negated | self.opened


def emptied(tree: Tree, edits: Sequence[Edit]) -> Emptied:
    """Work out what goes with the statements that some edits take out."""
    found = Emptied({edit.statement for edit in edits if isinstance(edit, Delete)})
    others = [edit for edit in edits if not isinstance(edit, Delete)]
    inserts = [edit for edit in others if isinstance(edit, (InsertBefore, InsertAfter))]
    changed = {node_of(edit) for edit in others} - {edit.statement for edit in inserts}
    touched = {around for edit in others for around in (node_of(edit), *tree.ancestors(node_of(edit)))}
    chains = {
        a for s in found.gone for a in tree.ancestors(s) if isinstance(a, ast.If) and not tree.is_elif(a)
    }
    # What is inside begins later.
    for chain in sorted(chains, key=tree.start, reverse=True):
        _shorten(tree, chain, changed, touched, found)
    # Where lines are put next to a deleted statement, the block is not empty afterwards.
    filled = {
        id(tree.block_of(edit.statement)[2])
        for edit in inserts
        if any(line and not line.startswith("#") for line in edit.lines)
    }
    for stmt in found.gone:
        block = tree.block_of(stmt)[2]
        if stmt is block[-1] and found.gone.issuperset(block) and id(block) not in filled:
            found.passes.add(stmt)
    return found


def _shorten(tree: Tree, chain: ast.If, changed: set[ast.AST], touched: set[ast.AST], found: Emptied) -> None:
    """Take out an `if` with its `elif` and `else`, or the last branches of it, or the first one.

    A branch is needed where statements stay in it, something else is done there, or its test does more than to read.
    """
    links = [chain]
    while len(rest := links[-1].orelse) == 1 and isinstance(link := rest[0], ast.If) and tree.is_elif(link):
        links.append(link)

    def needed(body: list[ast.stmt]) -> bool:
        return not found.gone.issuperset(body) or not touched.isdisjoint(body)

    stays = [needed(link.body) or link.test in touched or not only_reads(link.test) for link in links]
    stays.append(needed(rest))
    if not any(stays) and changed.isdisjoint(links):
        _leave(found, chain)
        found.gone.add(chain)
        return
    last = max((place for place, stay in enumerate(stays) if stay), default=0)
    if last < len(links):
        if links[last].orelse:
            _leave(found, *links[last].orelse)
            found.without_else.add(links[last])
    elif stays == [False, True] and tree.own_line(chain.body[0]) and tree.own_line(rest[0]):
        _leave(found, *chain.body)
        # A condition that asks for more than one device: a process has one.
        opens = asks_for_several(chain.test) and not any(map(tree.has_multiline_string, rest))
        (found.opened if opens else found.negated).add(chain)


def _leave(found: Emptied, *around: ast.stmt) -> None:
    """Forget of statements that they go: they go with one around them."""
    found.gone.difference_update(
        node for stmt in around for node in ast.walk(stmt) if isinstance(node, ast.stmt)
    )
