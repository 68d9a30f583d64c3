"""The edit verbs, how edits are checked against each other and how they are applied in one pass.

Edits are byte ranges of the original script with the text that takes their place. Whatever no edit covers is copied
as it stands.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from accelify.analysis.statements.conditions import asks_for_several, only_reads
from accelify.analysis.statements.negation import negated
from accelify.analysis.syntax import Tree
from accelify.comments import comment_above, comment_heading

_INDENTATION = 600
# The order of a replacement that is not needed where another edit takes its place away.
YIELDING = 700


class EditError(Exception):
    """An edit that cannot be made here, or that collides with another one."""


@dataclass(frozen=True)
class Replace:
    """Put `text` in the place of the bytes from `start` to `end` (an insertion where they are equal)."""

    start: int
    end: int
    text: str
    order: int = 0


@dataclass(frozen=True)
class DeleteStatement:
    """Take a whole statement out, its lines with it; `pass` stays where a block would be left empty."""

    statement: ast.stmt


@dataclass(frozen=True)
class InsertBefore:
    """Put lines before a statement, at its indentation. Lower `order` comes first at the same place.

    With `above_comment` a comment that heads the statement keeps to it: the lines go above, with a blank line between.
    """

    statement: ast.stmt
    lines: tuple[str, ...]
    order: int = 0
    above_comment: bool = False


@dataclass(frozen=True)
class InsertAfter:
    """Put lines after a statement, at its indentation."""

    statement: ast.stmt
    lines: tuple[str, ...]
    order: int = 0


@dataclass(frozen=True)
class Indent:
    """Put neighbouring statements of one block under a header line (`if ...:` or `with ...:`)."""

    first: ast.stmt
    last: ast.stmt
    header: str


Edit = Replace | DeleteStatement | InsertBefore | InsertAfter | Indent


def replace(tree: Tree, node: Any, text: str) -> Replace:
    """Put text in the place of a node."""
    _check_place(tree, node)
    return Replace(tree.start(node), tree.end(node), text)


def insert(tree: Tree, offset: int, text: str, order: int = 0) -> Replace:
    """Put text at a byte offset."""
    return Replace(offset, offset, text, order)


def keep_receiver(tree: Tree, call: ast.Call) -> Replace:
    """Cut a method call down to what it is called on: `x.cuda()` becomes `x`."""
    assert isinstance(call.func, ast.Attribute)
    _check_place(tree, call)
    return Replace(tree.receiver_end(call.func), tree.end(call), "")


def keep_argument(tree: Tree, call: ast.Call, argument: ast.expr) -> list[Replace]:
    """Cut a call down to one of its arguments: `Variable(x)` becomes `x`."""
    _check_place(tree, call)
    edits = [
        Replace(tree.start(call), tree.start(argument), ""),
        Replace(tree.end(argument), tree.end(call), ""),
    ]
    # Parentheses around an argument that spans lines are what lets it span them; a tuple or generator needs its own.
    parent = tree.parent(call)
    loose = isinstance(argument, (ast.BinOp, ast.BoolOp, ast.IfExp, ast.Lambda, ast.Compare, ast.UnaryOp))
    inside = (
        ast.Attribute, ast.BinOp, ast.BoolOp, ast.UnaryOp, ast.Call, ast.Subscript, ast.Compare, ast.IfExp,
        ast.Starred, ast.Await,
    )  # fmt: skip
    if (loose and isinstance(parent, inside)) or (
        argument.end_lineno != argument.lineno or argument.lineno != call.lineno
    ):
        edits[0] = Replace(edits[0].start, edits[0].end, "(")
        edits[1] = Replace(edits[1].start, edits[1].end, ")")
    return edits


def add_keyword(tree: Tree, call: ast.Call, text: str) -> Replace:
    """Put one more argument at the end of a call."""
    _check_place(tree, call)
    # After the last argument, but behind the parenthesis that may close around it and before a trailing comma.
    close = tree.end(call) - 1
    arguments = [*call.args, *[kw.value for kw in call.keywords]]
    if not arguments:
        return Replace(close, close, text)
    last = max(tree.end(a) for a in arguments)
    tail = tree.data[last:close]
    if b"#" in tail:
        return Replace(last, last, f", {text}")
    if b"," in tail:
        place = last + tail.rindex(b",") + 1
        first = min(map(tree.start, arguments))
        lead = tree.data[tree.line_start(first) : first]
        if b"\n" in tail[tail.rindex(b",") :] and not lead.strip():
            # Each argument has a line of its own.
            return Replace(place, place, f"{tree.newline}{lead.decode()}{text},")
        return Replace(place, place, f" {text}")
    if isinstance(arguments[0], ast.GeneratorExp) and len(arguments) == 1:
        # The generator's parentheses are the call's own: give it its own before a second argument may follow.
        raise EditError("a bare generator argument takes no second one")
    place = close - (len(tail) - len(tail.rstrip()))
    return Replace(place, place, f", {text}")


def add_first_argument(tree: Tree, call: ast.Call, text: str) -> Replace:
    """Put an argument before all others of a call."""
    _check_place(tree, call)
    opening = tree.data.index(b"(", tree.end(call.func)) + 1
    rest = [*call.args, *call.keywords]
    return first_in_parentheses(tree, opening, min(map(tree.start, rest)) if rest else None, text)


def first_in_parentheses(tree: Tree, opening: int, first: int | None, text: str) -> Replace:
    """Put something before the first argument or parameter; on a line of its own where each has one."""
    if first is None:
        return Replace(opening, opening, text)
    between = tree.data[opening:first]
    if between.strip() or b"\n" not in between.replace(b"\r", b"\n"):
        return Replace(opening, opening, f"{text}, ")
    indent = tree.data[tree.line_start(first) : first].decode("utf-8")
    return Replace(first, first, f"{text},{tree.newline}{indent}")


def _check_place(tree: Tree, node: Any) -> None:
    if tree.in_fstring(node):
        raise EditError("it stands inside an f-string")


@dataclass
class _Plan:
    replaces: list[Replace] = field(default_factory=list)
    deleted: list[ast.stmt] = field(default_factory=list)


def apply(tree: Tree, edits: Iterable[Edit]) -> bytes:
    """The script with all edits made, in UTF-8.

    Raises:
        EditError: when two edits want the same bytes, or one cannot be made at its place.
    """
    return put_together(tree, ranges(tree, edits))


def ranges(tree: Tree, edits: Iterable[Edit]) -> list[Replace]:
    """All edits as the byte ranges that they replace, in order.

    Raises:
        EditError: when two edits want the same bytes, or one cannot be made at its place.
    """
    plan = _Plan()
    seen: set[Edit] = set()
    for edit in _merged(tree, list(edits)):
        if edit in seen:
            continue
        seen.add(edit)
        _lower(tree, edit, plan)
    _lower_deletions(tree, plan, seen)
    replaces = sorted(plan.replaces, key=lambda e: (e.start, e.end != e.start, e.order, e.end))
    # A line that goes away as a whole is not indented first.
    gone = [(e.start, e.end) for e in replaces if e.end > e.start and not e.text]
    replaces = [
        e for e in replaces
        if not (e.start == e.end and e.order == _INDENTATION and any(start <= e.start < end for start, end in gone))
    ]  # fmt: skip
    kept: list[Replace] = []
    cursor = 0
    for edit in replaces:
        if edit.start < cursor:
            if edit.order == YIELDING or (edit.start == edit.end and edit.text.isspace()):
                continue  # such as the indentation of a line that another edit took away
            raise EditError(f"two edits meet in line {tree.position(edit.start)[0]}")
        kept.append(edit)
        cursor = edit.end
    return kept


def _merged(tree: Tree, edits: list[Edit]) -> list[Edit]:
    """The edits, with neighbouring statements that get the same header under one of them."""
    indents = [e for e in edits if isinstance(e, Indent)]
    if len(indents) < 2:
        return edits
    between = {e.statement for e in edits if isinstance(e, (InsertBefore, InsertAfter))}
    starting = {e.first: e for e in indents}
    gone: set[Indent] = set()
    wider: dict[Indent, Indent] = {}
    for indent in sorted(set(indents), key=lambda e: tree.start(e.first), reverse=True):
        block = tree.block_of(indent.last)[2]
        place = block.index(indent.last) + 1
        following = starting.get(block[place]) if place < len(block) else None
        if following is None or following.header != indent.header:
            continue
        if indent.last in between or following.first in between:
            continue
        if tree.parted(indent.last, following.first):
            continue
        gone.add(following)
        wider[indent] = Indent(indent.first, wider.pop(following, following).last, indent.header)
    return [wider.get(e, e) if isinstance(e, Indent) else e for e in edits if e not in gone]


def put_together(tree: Tree, replaces: Iterable[Replace]) -> bytes:
    """The script with some ranges, in order, replaced."""
    out: list[bytes] = []
    cursor = 0
    for edit in replaces:
        out.append(tree.data[cursor : edit.start])
        out.append(edit.text.encode("utf-8"))
        cursor = edit.end
    out.append(tree.data[cursor:])
    return b"".join(out)


def _lower(tree: Tree, edit: Edit, plan: _Plan) -> None:
    newline = tree.newline
    if isinstance(edit, Replace):
        plan.replaces.append(edit)
    elif isinstance(edit, DeleteStatement):
        plan.deleted.append(edit.statement)
    elif isinstance(edit, InsertBefore):
        stmt = _first_on_line(tree, edit.statement)
        if _is_inline(tree, stmt) and _one_statement(edit.lines):
            plan.replaces.append(
                Replace(tree.start(stmt), tree.start(stmt), f"{edit.lines[0]}; ", edit.order)
            )
            return
        if not tree.own_line(stmt) or tree.is_elif(stmt):
            raise EditError(f"line {_line(tree, stmt)} holds more than one statement")
        indent = tree.indent(stmt)
        offset = tree.line_start(tree.start(stmt))
        heading = comment_heading(tree, offset) if edit.above_comment else offset
        lines = (*edit.lines, "") if heading < offset and edit.lines[-1] else edit.lines
        text = "".join(f"{indent}{line}{newline}" if line else newline for line in lines)
        offset = heading
        plan.replaces.append(Replace(offset, offset, text, edit.order))
    elif isinstance(edit, InsertAfter):
        stmt = _last_on_line(tree, edit.statement)
        if _is_inline(tree, _first_on_line(tree, stmt)):
            if not tree.ends_line(stmt) or not _one_statement(edit.lines):
                raise EditError(f"line {_line(tree, stmt)} holds more than one statement")
            plan.replaces.append(Replace(tree.end(stmt), tree.end(stmt), f"; {edit.lines[0]}", edit.order))
            return
        if not tree.ends_line(stmt):
            raise EditError(f"line {_line(tree, stmt)} holds more than one statement")
        indent = tree.indent(stmt)
        text = "".join(f"{indent}{line}{newline}" if line else newline for line in edit.lines)
        offset = tree.line_end(tree.end(stmt))
        if offset == len(tree.data) and not tree.data.endswith((b"\n", b"\r")):
            text = newline + text.removesuffix(newline)
        # What is put after one statement comes before what is put before the next.
        plan.replaces.append(Replace(offset, offset, text, edit.order - 1000))
    elif isinstance(edit, Indent):
        _lower_indent(tree, edit, plan)


def _is_inline(tree: Tree, stmt: ast.stmt) -> bool:
    """Whether a block stands on the line of its header: `if x: y = 1`."""
    return not tree.own_line(stmt) and not tree.is_elif(stmt) and isinstance(tree.parent(stmt), ast.stmt)


def _line(tree: Tree, stmt: ast.stmt) -> int:
    """The line of a statement in its own file, of several that are converted together."""
    return tree.locate(tree.start(stmt))[1]


def _one_statement(lines: tuple[str, ...]) -> bool:
    return len(lines) == 1 and not lines[0].startswith("#")


def _first_on_line(tree: Tree, stmt: ast.stmt) -> ast.stmt:
    """The first of the statements that share a line, `a; b; c`."""
    block = tree.block_of(stmt)[2]
    index = block.index(stmt)
    while index and not tree.own_line(block[index]) and block[index - 1].end_lineno == block[index].lineno:
        index -= 1
    found: ast.stmt = block[index]
    return found


def _last_on_line(tree: Tree, stmt: ast.stmt) -> ast.stmt:
    """The last of the statements that share a line."""
    block = tree.block_of(stmt)[2]
    index = block.index(stmt)
    while index + 1 < len(block) and block[index + 1].lineno == block[index].end_lineno:
        index += 1
    found: ast.stmt = block[index]
    return found


def _lower_indent(tree: Tree, edit: Indent, plan: _Plan) -> None:
    first, last = edit.first, edit.last
    if not tree.own_line(first) or not tree.ends_line(last) or tree.is_elif(first):
        raise EditError(f"line {_line(tree, first)} holds more than one statement")
    _, _, block = tree.block_of(first)
    inside = block[block.index(first) : block.index(last) + 1]
    strings = [place for stmt in inside for place in tree.multiline_strings(stmt)]
    indent, unit, newline = tree.indent(first), tree.indent_unit(), tree.newline
    start = tree.line_start(tree.start(first))
    plan.replaces.append(Replace(start, start, f"{indent}{edit.header}{newline}", 500))
    end = tree.line_end(tree.end(last))
    offset = start
    while offset < end:
        line_end = tree.line_end(offset)
        # What a string goes on with in a line of its own is not moved: it would be another string.
        within = any(begin < offset < end_of for begin, end_of in strings)
        if tree.data[offset:line_end].strip() and not within:
            plan.replaces.append(Replace(offset, offset, unit, _INDENTATION))
        offset = line_end


def _lower_deletions(tree: Tree, plan: _Plan, edits: set[Edit]) -> None:
    deleted = set(plan.deleted)
    # Where lines are put next to a deleted statement, the block is not empty afterwards.
    filled = {
        id(tree.block_of(e.statement)[2])
        for e in edits
        if isinstance(e, (InsertBefore, InsertAfter))
        and any(not line.startswith("#") for line in e.lines if line)
    }
    followed = {id(e.statement) for e in edits if isinstance(e, InsertAfter)}
    others: list[Edit] = [e for e in edits if not isinstance(e, DeleteStatement)]
    _take_empty_chains(tree, deleted, others)
    _take_empty_branches(tree, deleted, others, plan)
    _take_empty_ifs(tree, deleted, others)
    blocks: dict[int, list[ast.stmt]] = {}
    for stmt in deleted:
        block = tree.block_of(stmt)[2]
        blocks[id(block)] = block
    beside = {id(e.statement) for e in edits if isinstance(e, InsertBefore)} | followed
    for key, block in blocks.items():
        gone = [s for s in block if s in deleted]
        if len(gone) == len(block) and key not in filled:
            last = gone.pop()
            plan.replaces.append(Replace(tree.start(last), tree.end(last), "pass"))
        whole = _shared_lines(tree, block, gone)
        gone = [s for s in gone if not any(s in run for run in whole)]
        for run in [*whole, *_runs(tree, gone)]:
            if run not in whole and not tree.alone(run[0]):
                plan.replaces.append(_among_others(tree, run[0]))
                continue
            start = tree.line_start(tree.start(run[0]))
            if not any(id(stmt) in beside for stmt in run) and _ends_paragraph(tree, run[-1], block):
                start = comment_above(tree, start)
            above = tree.data[tree.line_start(start - 1) : start].strip() if start else b""
            leads = all(s in deleted for s in block[: block.index(run[0])]) and not above.startswith(b"#")
            close_up = (leads or not above) and id(run[-1]) not in followed
            plan.replaces += _lines_of(tree, run, start, close_up)


def _runs(tree: Tree, gone: list[ast.stmt]) -> list[list[ast.stmt]]:
    """Statements that go, those of neighbouring lines together."""
    runs: list[list[ast.stmt]] = []
    for stmt in gone:
        alone = tree.alone(stmt)
        last = runs[-1][-1] if runs and alone and tree.alone(runs[-1][-1]) else None
        if last is not None and tree.line_end(tree.end(last)) == tree.line_start(tree.start(stmt)):
            runs[-1].append(stmt)
        else:
            runs.append([stmt])
    return runs


def _shared_lines(tree: Tree, block: list[ast.stmt], gone: list[ast.stmt]) -> list[list[ast.stmt]]:
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


def _ends_paragraph(tree: Tree, stmt: ast.stmt, block: list[ast.stmt]) -> bool:
    """Whether a blank line, a comment or the end of its block follows a statement."""
    end = tree.line_end(tree.end(stmt))
    following = tree.data[end : tree.line_end(end)].strip() if end < len(tree.data) else b""
    return not following or following.startswith(b"#") or stmt is block[-1]


def _take_empty_ifs(tree: Tree, deleted: set[ast.stmt], others: list[Edit]) -> None:
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


def _take_empty_chains(tree: Tree, deleted: set[ast.stmt], others: list[Edit]) -> None:
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


def _take_empty_branches(tree: Tree, deleted: set[ast.stmt], others: list[Edit], plan: _Plan) -> None:
    """Of an `if`/`else` of which one branch goes, the other stays, and nothing where both go."""
    branches = {parent for s in deleted for parent in [tree.parent(s)] if isinstance(parent, ast.If)}
    filled = {id(tree.block_of(e.statement)[2]) for e in others if isinstance(e, (InsertBefore, InsertAfter))}
    for branch in branches:
        body, other = (all(s in deleted for s in part) for part in (branch.body, branch.orelse))
        if not branch.orelse or tree.is_elif(branch) or tree.is_elif(branch.orelse[0]) or not (body or other):
            continue
        if {id(branch.body), id(branch.orelse)} & filled or not only_reads(branch.test):
            continue
        if body and other:
            if not any(_touches(tree, edit, branch) for edit in others):
                deleted.difference_update([*branch.body, *branch.orelse])
                deleted.add(branch)
            continue
        word = _else_line(tree, branch)
        if word is None or not tree.own_line(branch.body[0]) or not tree.own_line(branch.orelse[0]):
            continue
        if other:
            deleted.difference_update(branch.orelse)
            plan.replaces.append(Replace(word[0], tree.line_end(tree.end(branch)), ""))
        elif not tree.in_fstring(branch.test) and not any(_inside(tree, e, branch.test) for e in others):
            deleted.difference_update(branch.body)
            moved = _moved_out(tree, branch, deleted, others)
            start = tree.line_start(tree.start(branch if moved else branch.body[0]))
            plan.replaces.append(Replace(start, word[1], ""))
            plan.replaces += moved or [replace(tree, branch.test, negated(tree.segment(branch.test)))]


def _moved_out(
    tree: Tree, branch: ast.If, deleted: set[ast.stmt], others: list[Edit]
) -> list[Replace] | None:
    """An `else` without its branch, where the condition asks for more than one device: a process has one."""
    if not asks_for_several(branch.test) or any(tree.has_multiline_string(s) for s in branch.orelse):
        return None
    if any(not isinstance(e, Replace) and _touches(tree, e, branch) for e in others):
        return None  # what is put in there has the indentation of its place
    indent = len(tree.indent(branch))
    unit = len(tree.indent(branch.orelse[0])) - indent
    gone = [(tree.start(s), tree.end(s)) for s in deleted]
    found: list[Replace] = []
    word = _else_line(tree, branch)
    assert word is not None
    offset, end = word[1], tree.line_end(tree.end(branch))
    while offset < end:
        line_end = tree.line_end(offset)
        line = tree.data[offset:line_end]
        if not line[: indent + unit].strip() and line.strip():
            if not any(tree.line_start(first) <= offset < last for first, last in gone):
                found.append(Replace(offset + indent, offset + indent + unit, ""))
        offset = line_end
    return found


def _else_line(tree: Tree, branch: ast.If) -> tuple[int, int] | None:
    """Where the line that says `else:` begins and ends, if it says nothing more."""
    start = tree.line_end(tree.end(branch.body[-1]))
    end = tree.line_start(tree.start(branch.orelse[0]))
    while start < end:
        after = tree.line_end(start)
        if tree.data[start:after].split(b"#")[0].strip() == b"else:":
            return start, after
        start = after
    return None


def _inside(tree: Tree, edit: Edit, node: ast.expr) -> bool:
    return isinstance(edit, Replace) and tree.start(node) <= edit.start < tree.end(node)


def _touches(tree: Tree, edit: Edit, stmt: ast.stmt) -> bool:
    start, end = tree.start(stmt), tree.end(stmt)
    if isinstance(edit, Replace):
        return start <= edit.start < end
    if isinstance(edit, Indent):
        return start <= tree.start(edit.first) < end
    return start < tree.start(edit.statement) < end


def _lines_of(tree: Tree, run: list[ast.stmt], start: int, close_up: bool) -> list[Replace]:
    end = tree.line_end(tree.end(run[-1]))
    # Between two blank lines one of them goes too, so that no hole shows where the statements stood.
    after = tree.data[end : tree.line_end(end)] if end < len(tree.data) else b""
    if close_up and after and not after.strip():
        end += len(after)
    # Each for itself: lines can be put between them.
    starts = list(dict.fromkeys([start, *[tree.line_start(tree.start(stmt)) for stmt in run[1:]]]))
    return [Replace(one, two, "") for one, two in zip(starts, [*starts[1:], end], strict=True)]


def _among_others(tree: Tree, stmt: ast.stmt) -> Replace:
    """Take a statement out of a line that it shares: `a; b` or `if x: a; b`."""
    start, end = tree.start(stmt), tree.end(stmt)
    line_end = tree.line_end(end)
    rest = tree.data[end:line_end]
    stripped = rest.lstrip(b" \t")
    if stripped.startswith(b";"):
        after = end + (len(rest) - len(stripped)) + 1
        blanks = len(tree.data[after:line_end]) - len(tree.data[after:line_end].lstrip(b" \t"))
        if tree.data[after:line_end].strip():
            return Replace(start, after + blanks, "")
    return Replace(start, end, "pass")


def todo(tree: Tree, node: ast.AST, code: str, message: str) -> InsertBefore:
    """A `# TODO(accelify CODE): message` comment above the statement of a node."""
    stmt = tree.statement(node)
    while not tree.own_line(stmt) or tree.is_elif(stmt):
        parent = tree.parent(stmt)
        if not isinstance(parent, ast.stmt):
            raise EditError("no line of its own")
        stmt = parent
    return InsertBefore(stmt, (f"# TODO(accelify {code}): {message}",), order=400)
