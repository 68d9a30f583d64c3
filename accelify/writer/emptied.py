"""What goes with statements that are taken out: tests of which nothing is left, branches, comments, blank lines."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from accelify.analysis.statements.conditions import asks_for_several, only_reads
from accelify.analysis.syntax import Tree
from accelify.writer.edits import Delete, DropElse, Edit, InsertAfter, InsertBefore, node_of
from accelify.writer.lines import comment_above, ends_paragraph, lines_together, shared_lines


@dataclass
class Run:
    """Neighbouring statements that go with their lines.

    `comments` lines of comment above them go too; with `closes` one of the blank lines around them, or all after them.
    """

    statements: list[ast.stmt]
    comments: int = 0
    closes: bool | Literal["all"] = False


@dataclass
class Emptied:
    """What becomes of a script when some statements are taken out.

    `gone` are all that go; `runs` those that share no line, by the block they are in. `passes` leave a `pass`.
    Of an `if`/`else` one branch can go: `without_else` leaves the first, `negated` the other under the opposite test,
    `opened` the other in the place of all.
    """

    gone: set[ast.stmt] = field(default_factory=set)
    runs: dict[int, list[Run]] = field(default_factory=dict)
    passes: set[ast.stmt] = field(default_factory=set)
    without_else: set[ast.If] = field(default_factory=set)
    negated: set[ast.If] = field(default_factory=set)
    opened: set[ast.If] = field(default_factory=set)


def emptied(tree: Tree, edits: Iterable[Edit]) -> Emptied:
    """Work out what goes with the statements that some edits take out."""
    edits = list(edits)
    deleted = {e.statement for e in edits if isinstance(e, Delete)}
    elses = {e.statement for e in edits if isinstance(e, DropElse)}
    found = Emptied(without_else=elses)
    if not deleted:
        return found
    widely = {e.statement for e in edits if isinstance(e, Delete) and e.blank_lines}
    others = [e for e in edits if not isinstance(e, Delete)]
    inserts = [e for e in edits if isinstance(e, (InsertBefore, InsertAfter))]
    # Where lines are put next to a deleted statement, the block is not empty afterwards.
    filled = {
        id(tree.block_of(e.statement)[2])
        for e in inserts
        if any(not line.startswith("#") for line in e.lines if line)
    }
    followed = {e.statement for e in inserts if isinstance(e, InsertAfter)}
    beside = {e.statement for e in inserts}
    _empty_chains(tree, deleted, others)
    _empty_ends(tree, deleted, others, found)
    _empty_branches(tree, deleted, others, found)
    _empty_ifs(tree, deleted, others)
    found.gone = deleted
    blocks: dict[int, list[ast.stmt]] = {}
    for stmt in deleted:
        block = tree.block_of(stmt)[2]
        blocks[id(block)] = block
    for key, block in blocks.items():
        gone = [s for s in block if s in deleted]
        if len(gone) == len(block) and key not in filled:
            found.passes.add(gone.pop())
        whole = shared_lines(tree, block, gone)
        gone = [s for s in gone if not any(s in run for run in whole)]
        for run in [*whole, *lines_together(tree, gone)]:
            if run in whole or tree.alone(run[0]):
                one = _run(tree, run, block, deleted, beside, followed)
                one.closes = "all" if run[-1] in widely else one.closes
                found.runs.setdefault(key, []).append(one)
    return found


def _run(
    tree: Tree,
    run: list[ast.stmt],
    block: list[ast.stmt],
    deleted: set[ast.stmt],
    beside: set[ast.stmt],
    followed: set[ast.stmt],
) -> Run:
    start, comments = tree.line_start(tree.start(run[0])), 0
    if not any(stmt in beside for stmt in run) and ends_paragraph(tree, run[-1], block):
        begin = comment_above(tree, start)
        comments = sum(begin <= line < start for line in tree.line_starts)
        start = begin
    above = tree.data[tree.line_start(start - 1) : start].strip() if start else b""
    leads = all(s in deleted for s in block[: block.index(run[0])]) and not above.startswith(b"#")
    end = tree.line_end(tree.end(run[-1]))
    after = tree.data[end : tree.line_end(end)] if end < len(tree.data) else b""
    # Between two blank lines one of them goes too, so that no hole shows where the statements were.
    closes = (leads or not above) and run[-1] not in followed and bool(after) and not after.strip()
    return Run(run, comments, closes)


def _empty_ifs(tree: Tree, deleted: set[ast.stmt], others: Sequence[Edit]) -> None:
    """An `if use_cuda:` whose whole body goes is taken out with it."""
    for stmt in list(deleted):
        parent, _, block = tree.block_of(stmt)
        while (
            isinstance(parent, ast.If)
            and block is parent.body
            and not parent.orelse
            and all(s in deleted for s in block)
            and not tree.is_elif(parent)
            and not any(_touches(tree, edit, parent) for edit in others)
            and only_reads(parent.test)
        ):
            deleted.difference_update(block)
            deleted.add(parent)
            parent, _, block = tree.block_of(parent)


def _empty_chains(tree: Tree, deleted: set[ast.stmt], others: Sequence[Edit]) -> None:
    """An `if`/`elif` of which nothing stays is taken out as a whole."""
    for stmt in list(deleted):
        chain = tree.parent(stmt)
        while isinstance(chain, ast.If) and tree.is_elif(chain):
            chain = tree.parent(chain)
        if not isinstance(chain, ast.If) or chain in deleted or not chain.orelse:
            continue
        parts: list[list[ast.stmt]] = []
        rest: list[ast.stmt] = [chain]
        tests: list[ast.expr] = []
        while len(rest) == 1 and isinstance(link := rest[0], ast.If) and (not parts or tree.is_elif(link)):
            parts.append(link.body)
            tests.append(link.test)
            rest = link.orelse
        gone = [s for part in [*parts, rest] for s in part]
        if len(parts) > 1 and deleted.issuperset(gone) and all(map(only_reads, tests)):
            if not any(_touches(tree, edit, chain) for edit in others):
                deleted.difference_update(gone)
                deleted.add(chain)


def _empty_ends(tree: Tree, deleted: set[ast.stmt], others: Sequence[Edit], found: Emptied) -> None:
    """The last branches of an `if`/`elif` are taken out where all of them go and one above stays."""
    for branch in {parent for s in deleted for parent in [tree.parent(s)] if isinstance(parent, ast.If)}:
        stays: ast.AST | None = branch
        while isinstance(stays, ast.If) and tree.is_elif(stays) and deleted.issuperset(stays.body):
            stays = tree.parent(stays)
        if not isinstance(stays, ast.If) or not _is_empty(tree, stays.orelse, deleted):
            continue
        chained = tree.is_elif(stays) or tree.is_elif(stays.orelse[0])
        if chained and not any(_touches(tree, edit, s) for edit in others for s in stays.orelse):
            found.without_else.add(stays)
            deleted.difference_update(n for s in stays.orelse for n in ast.walk(s) if isinstance(n, ast.stmt))


def _is_empty(tree: Tree, rest: list[ast.stmt], deleted: set[ast.stmt]) -> bool:
    """Whether nothing is left of the branches after one."""
    if len(rest) == 1 and isinstance(link := rest[0], ast.If) and tree.is_elif(link):
        gone = deleted.issuperset(link.body) and only_reads(link.test)
        return gone and (not link.orelse or _is_empty(tree, link.orelse, deleted))
    return bool(rest) and deleted.issuperset(rest)


def _empty_branches(tree: Tree, deleted: set[ast.stmt], others: Sequence[Edit], found: Emptied) -> None:
    """Of an `if`/`else` of which one branch goes, the other stays, and nothing where both go."""
    branches = {parent for s in deleted for parent in [tree.parent(s)] if isinstance(parent, ast.If)}
    filled = {id(tree.block_of(e.statement)[2]) for e in others if isinstance(e, (InsertBefore, InsertAfter))}
    for branch in branches:
        body, other = (all(s in deleted for s in part) for part in (branch.body, branch.orelse))
        if (
            branch in found.without_else
            or not branch.orelse
            or tree.is_elif(branch)
            or tree.is_elif(branch.orelse[0])
            or not (body or other)
        ):
            continue
        if {id(branch.body), id(branch.orelse)} & filled or not only_reads(branch.test):
            continue
        if body and other:
            if not any(_touches(tree, edit, branch) for edit in others):
                deleted.difference_update([*branch.body, *branch.orelse])
                deleted.add(branch)
            continue
        if not tree.own_line(branch.body[0]) or not tree.own_line(branch.orelse[0]):
            continue
        if other:
            deleted.difference_update(branch.orelse)
            found.without_else.add(branch)
        elif not any(tree.is_within(node_of(e), {branch.test}) for e in others):
            deleted.difference_update(branch.body)
            # A condition that asks for more than one device: a process has one.
            (found.opened if _opens(tree, branch, others) else found.negated).add(branch)


def _opens(tree: Tree, branch: ast.If, others: Sequence[Edit]) -> bool:
    """Whether an `else` goes on without its branch: its condition asks for more devices than a process has."""
    return asks_for_several(branch.test) and not any(tree.has_multiline_string(s) for s in branch.orelse)


def _touches(tree: Tree, edit: Edit, stmt: ast.stmt) -> bool:
    """Whether an edit changes something inside of a statement."""
    node = node_of(edit)
    beside = node is stmt and isinstance(edit, (InsertBefore, InsertAfter))
    return not beside and tree.is_within(node, {stmt})
