"""A script's syntax tree with exact byte ranges.

Python's `ast` gives every node its position in UTF-8 bytes. It parses nine times faster than libcst builds a concrete
tree (1,070 lines: 10 ms against 94 ms), needs no import of 170 ms, and every node knows its position; libcst reads only
what is edited (`accelify.writer`).
"""

from __future__ import annotations

import ast
import bisect
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from accelify.analysis.fstring_places import has_its_place
from accelify.analysis.order import Ordered
from accelify.obsolete_keywords import parse_old

FunctionNode: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Node: TypeAlias = ast.AST

_NEWLINE = re.compile(rb"\r\n|\r|\n")
_IN_BLOCKS = (ast.stmt, ast.ExceptHandler, ast.match_case)
_DEFINITIONS = frozenset({ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef})
# Statement lists by field name: what may hold statements in any node of the grammar.
_BLOCK_FIELDS = ("body", "orelse", "handlers", "finalbody", "cases")
# Fields that hold no nodes but `Load` and its like.
_PLAIN_FIELDS = frozenset({"ctx", "id", "attr", "kind", "type_comment", "level", "is_async", "simple"})
# By type of node, the fields that can: most nodes are names and constants, which have none.
_HOLDING_FIELDS = {
    kind: tuple(name for name in kind._fields if name not in _PLAIN_FIELDS and kind is not ast.Constant)
    for kind in vars(ast).values()
    if isinstance(kind, type) and issubclass(kind, ast.AST)
}


class Tree(Ordered):
    """One parsed script.

    Args:
        text: the source, without a byte order mark, its newlines as they are.
        path: what to call it in messages.
        module: the parsed text, where it is parsed already.

    Raises:
        SyntaxError: when it is not Python (of the running version).
        RecursionError: when it nests deeper than the interpreter's stack.
    """

    def __init__(self, text: str, path: str = "<stdin>", module: ast.Module | None = None) -> None:
        self.text = text
        self.module = module if module is not None else parse_old(text, path)
        self._lay_out(path, text.encode("utf-8"))
        self._index(self.module)

    def _lay_out(self, path: str, data: bytes) -> None:
        self.path = path
        self.data = data
        self.line_starts = [0] + [m.end() for m in _NEWLINE.finditer(data)]
        match = _NEWLINE.search(data)
        self.newline = match.group().decode() if match else "\n"
        self._parents: dict[Node, Node] = {}
        self._by_type: defaultdict[type, list[Any]] = defaultdict(list)
        self._fstring_nodes: set[Node] = set()
        self._placed: dict[Node, Any] = {}  # of those, what their place is that of
        self._assigns: dict[str, list[ast.Assign]] | None = None
        self._writes: dict[str, list[ast.Name]] | None = None
        self._assigned_in: dict[ast.stmt, dict[str, list[ast.stmt]]] = {}
        self._statements: dict[Node, ast.stmt] = {}
        self._named: dict[str, list[Any]] | None = None
        self._mentions: dict[str | bytes | re.Pattern[bytes], bool] = {}

    def _index(self, root: Node) -> None:
        self._assigns = self._writes = self._named = None
        stack: list[Node] = [root]
        parents, by_type = self._parents, self._by_type
        while stack:
            node = stack.pop()
            by_type[type(node)].append(node)
            below = children(node)
            if below:
                for child in below:
                    parents[child] = node
                stack += below[::-1]
        for text in by_type.get(ast.JoinedStr, ()):
            self._fstring_nodes.update(walk(text)[1:])

    def _take(self, other: Tree) -> None:
        """Append the nodes of another tree to this tree's."""
        self._parents |= other._parents
        self._fstring_nodes |= other._fstring_nodes
        for kind, nodes in other._by_type.items():
            self._by_type[kind] += nodes

    def locate(self, offset: int) -> tuple[str, int, int]:
        """Path, line and column of an offset."""
        return (self.path, *self.position(offset))

    def parts(self) -> list[tuple[ast.Module, int, int]]:
        """The modules that are read here, each with the bytes at which it begins and ends."""
        return [(self.module, 0, len(self.data))]

    def paths(self) -> list[str]:
        """What the modules that are read here are called, in the order of `parts`."""
        return [self.path]

    def nodes(self, *types: type) -> Iterable[Any]:
        """All nodes of some types, in source order for one type."""
        if len(types) == 1:
            return self._by_type.get(types[0], ())
        return [node for node_type in types for node in self._by_type.get(node_type, ())]

    def assigns(self, name: str) -> list[ast.Assign]:
        """The assignments that have a name, or a dotted one, among their targets, in source order."""
        if self._assigns is None:
            self._assigns = {}
            for stmt in self.nodes(ast.Assign):
                for known in {text for text in map(dotted, stmt.targets) if text is not None}:
                    self._assigns.setdefault(known, []).append(stmt)
        return self._assigns.get(name, [])

    def writes(self, name: str) -> list[ast.Name]:
        """Where a name is bound or deleted as a plain name, in source order."""
        if self._writes is None:
            self._writes = {}
            for node in self.nodes(ast.Name):
                if not isinstance(node.ctx, ast.Load):
                    self._writes.setdefault(node.id, []).append(node)
        return self._writes.get(name, [])

    def named(self, name: str) -> list[Any]:
        """The names and attributes (`x.name`) that are called so; each kind in source order, names first."""
        if self._named is None:
            self._named = {}
            for node in self.nodes(ast.Name):
                self._named.setdefault(node.id, []).append(node)
            for node in self.nodes(ast.Attribute):
                self._named.setdefault(node.attr, []).append(node)
        return self._named.get(name, [])

    def assigned_in(self, stmt: ast.stmt, name: str) -> list[ast.stmt]:
        """The assignments of a name in a statement, itself or in its blocks, in source order; augmented ones too."""
        found = self._assigned_in.get(stmt)
        if found is None:
            found = self._assigned_in[stmt] = {}
            for node in statements_in(stmt):
                if isinstance(node, (ast.Assign, ast.AugAssign)):
                    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                    for known in {n for t in targets for n in target_names(t)}:
                        found.setdefault(known, []).append(node)
        return found.get(name, [])

    @property
    def size(self) -> int:
        """The number of bytes of the text, which is the place after the last of them."""
        return len(self.data)

    def line_of(self, node: Any) -> int:
        """The line of a node in its file, where several are read as one."""
        return self.place(node)[1]

    def mentions(self, word: str | bytes | re.Pattern[bytes]) -> bool:
        """Whether a word occurs in the text at all: a quick no before a question that takes longer."""
        found = self._mentions.get(word)
        if found is None:
            text = word.encode("utf-8") if isinstance(word, str) else word
            found = text.search(self.data) is not None if isinstance(text, re.Pattern) else text in self.data
            self._mentions[word] = found
        return found

    def parent(self, node: Node) -> Node | None:
        """The node that holds this one; None for the module."""
        return self._parents.get(node)

    def ancestors(self, node: Node) -> Iterator[Node]:
        """Parent, its parent, and so on up to the module."""
        current = self._parents.get(node)
        while current is not None:
            yield current
            current = self._parents.get(current)

    def is_within(self, node: Node, nodes: Collection[Node]) -> bool:
        """Whether a node, or one around it, is among some nodes."""
        current: Node | None = node
        while current is not None and nodes:
            if current in nodes:
                return True
            current = self._parents.get(current)
        return False

    def in_fstring(self, node: Node) -> bool:
        """Whether a node is inside an f-string."""
        return node in self._fstring_nodes

    def _with_place(self, node: Any) -> Any:
        """A node in an f-string, or the whole string where the parser of this Python gives the node a wrong place.

        Up to Python 3.11 that of a node in a string of several lines or parts can be anywhere.
        """
        found = self._placed.get(node)
        if found is None:
            outer = [around for around in self.ancestors(node) if isinstance(around, ast.JoinedStr)][-1]
            found = self._placed[node] = node if has_its_place(node, self.line_starts, self.data) else outer
        return found

    def start(self, node: Any) -> int:
        """Byte offset of the first byte of a node (decorators of a definition included)."""
        if node in self._fstring_nodes:
            node = self._with_place(node)
        decorators = getattr(node, "decorator_list", None)
        if decorators:
            # The "@" is before the expression; only blanks may be between.
            return self.data.rindex(b"@", 0, self.start(decorators[0]))
        offset: int = self.line_starts[node.lineno - 1] + node.col_offset
        return offset

    def end(self, node: Any) -> int:
        """Byte offset after the last byte of a node."""
        if node in self._fstring_nodes:
            node = self._with_place(node)
        offset: int = self.line_starts[node.end_lineno - 1] + node.end_col_offset
        return offset

    def segment(self, node: Any) -> str:
        """The source of a node."""
        if node in self._fstring_nodes and self._with_place(node) is not node:
            return ast.unparse(node)
        return self.data[self.start(node) : self.end(node)].decode("utf-8")

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column of a byte offset, both from 1, the column in characters."""
        line = bisect.bisect_right(self.line_starts, offset) - 1
        column = len(self.data[self.line_starts[line] : offset].decode("utf-8", "replace"))
        return line + 1, column + 1

    def statement(self, node: Node) -> ast.stmt:
        """The innermost statement that holds a node (the node itself when it is one)."""
        found = self._statements.get(node)
        if found is None:
            current: Node | None = node
            while current is not None and not isinstance(current, ast.stmt):
                current = self._parents.get(current)
            assert isinstance(current, ast.stmt)
            found = self._statements[node] = current
        return found

    def block_of(self, stmt: Node) -> tuple[Node, str, list[Any]]:
        """The node, field and list that contain a statement."""
        owner = self._parents[stmt]
        for name in _BLOCK_FIELDS:
            block = getattr(owner, name, None)
            if isinstance(block, list) and stmt in block:  # nodes are equal to themselves alone
                return owner, name, block
        raise ValueError("not a statement in a block")

    def line_start(self, offset: int) -> int:
        """Byte offset at which the line of an offset starts."""
        return self.line_starts[bisect.bisect_right(self.line_starts, offset) - 1]

    def line_end(self, offset: int) -> int:
        """Byte offset after the newline that ends the line of an offset (the end of the file for the last)."""
        index = bisect.bisect_right(self.line_starts, offset)
        return self.line_starts[index] if index < len(self.line_starts) else len(self.data)

    def indent(self, stmt: Node) -> str:
        """The white space before a statement on its line; the nearest fitting one for a statement after another."""
        start = self.start(stmt)
        lead = self.data[self.line_start(start) : start]
        if not lead.strip():
            return lead.decode("utf-8").lstrip("\f")
        owner = self._parents.get(stmt)
        if owner is None or isinstance(owner, ast.Module):
            return ""
        _, _, block = self.block_of(stmt)
        first = block[0]
        if first is not stmt and self.own_line(first):
            return self.indent(first)
        base = self.indent(owner) if isinstance(owner, ast.stmt) else ""
        return base + self.indent_unit()

    def indent_unit(self) -> str:
        """What one level of indentation is in this script (four blanks where it has none)."""
        for node in self.nodes(ast.FunctionDef, ast.For, ast.If, ast.With, ast.ClassDef):
            body = node.body[0]
            if self.own_line(body) and self.own_line(node):
                outer = self.data[self.line_start(self.start(node)) : self.start(node)]
                inner = self.data[self.line_start(self.start(body)) : self.start(body)]
                if inner.startswith(outer) and len(inner) > len(outer):
                    return inner[len(outer) :].decode("utf-8")
        return "    "

    def own_line(self, stmt: Node) -> bool:
        """Whether only white space is before a statement on its line."""
        start = self.start(stmt)
        return not self.data[self.line_start(start) : start].strip()

    def ends_line(self, stmt: Node) -> bool:
        """Whether only white space, a semicolon or a comment follows a statement on its last line."""
        end = self.end(stmt)
        rest = self.data[end : self.line_end(end)].strip().removeprefix(b";").lstrip()
        return not rest or rest.startswith(b"#")

    def blank_after(self, stmt: Node) -> bool:
        """Whether an empty line follows a statement."""
        end = self.line_end(self.end(stmt))
        return end < self.size and not self.data[end : self.line_end(end)].strip()

    def parted(self, one: Node, other: Node) -> bool:
        """Whether the border of a notebook's cells (`# %%`) is between two statements."""
        return re.search(rb"^# %%", self.data[self.end(one) : self.start(other)], re.M) is not None

    def is_elif(self, stmt: Node) -> bool:
        """Whether an `if` is written as the `elif` of another one."""
        start = self.start(stmt)
        return isinstance(stmt, ast.If) and self.data[start : start + 4] == b"elif"

    def alone(self, stmt: Node) -> bool:
        """Whether a statement has its lines for itself (no `;`, no `if x: y` on one line)."""
        return self.own_line(stmt) and self.ends_line(stmt)

    def has_multiline_string(self, stmt: Node) -> bool:
        """Whether a string literal inside spans lines, so that indenting the lines would change it."""
        for node in walk(stmt):
            if isinstance(node, ast.JoinedStr) or (
                isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes))
            ):
                if node.end_lineno is not None and node.end_lineno > node.lineno:
                    segment = self.segment(node)
                    if '"""' in segment or "'''" in segment or "\\\n" in segment or "\\\r" in segment:
                        return True
        return False


def dotted(node: Node | None) -> str | None:
    """`a.b.c` for a chain of names and attributes, else None."""
    # By `type`, which is asked in half the time of `isinstance`: no other function is called as often.
    if type(node) is ast.Name:
        return node.id
    if type(node) is not ast.Attribute:
        return None
    text, inner = node.attr, node.value
    while type(inner) is ast.Attribute:
        text, inner = f"{inner.attr}.{text}", inner.value
    return f"{inner.id}.{text}" if type(inner) is ast.Name else None


def text_of(node: Node) -> str:
    """An expression as `ast.unparse` writes it. Cached on the node: not for nodes that are changed afterwards."""
    found: str | None = node.__dict__.get("_text")
    if found is None:
        found = node.__dict__["_text"] = dotted(node) or ast.unparse(node)
    return found


def call_keyword(call: ast.Call, name: str) -> ast.expr | None:
    """The value of a keyword argument, None when it is absent."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    return None


def call_argument(call: ast.Call, index: int, name: str) -> ast.expr | None:
    """An argument by position or by name, None when absent (or hidden in a starred one)."""
    if 0 <= index < len(call.args) and not any(isinstance(a, ast.Starred) for a in call.args[: index + 1]):
        return call.args[index]
    return call_keyword(call, name)


def hides_arguments(call: ast.Call) -> bool:
    """Whether a star or two are in a call, so that not all of what it gives is seen."""
    return any(isinstance(a, ast.Starred) for a in call.args) or any(kw.arg is None for kw in call.keywords)


def is_constant(node: Node | None, *values: object) -> bool:
    """Whether a node is a literal equal to one of the values, type included."""
    return isinstance(node, ast.Constant) and any(
        node.value == v and type(node.value) is type(v) for v in values
    )


def names_in(node: Node) -> frozenset[str]:
    """Every name read or written inside a node. Cached on it: many questions ask for those of one statement."""
    found: frozenset[str] | None = getattr(node, "_names", None)
    if found is None:
        found = node._names = frozenset([n.id for n in walk(node) if type(n) is ast.Name])  # type: ignore[attr-defined]
    return found


def calls_in(node: Node) -> Sequence[ast.Call]:
    """Every call inside a node, itself too, in the order of `walk`. Cached on it."""
    found: list[ast.Call] | None = getattr(node, "_calls", None)
    if found is None:
        found = node._calls = [n for n in walk(node) if type(n) is ast.Call]  # type: ignore[attr-defined]
    return found


def stores_in(node: Node) -> dict[str, list[ast.Name]]:
    """Where the plain names are bound or deleted inside a node. Cached on it as well."""
    found: dict[str, list[ast.Name]] | None = getattr(node, "_stores", None)
    if found is None:
        found = node._stores = {}  # type: ignore[attr-defined]
        for name in [n for n in walk(node) if type(n) is ast.Name and type(n.ctx) is not ast.Load]:
            found.setdefault(name.id, []).append(name)
    return found


def assigned_pairs(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    """What an assignment binds to what: in `a, b = x, y` two of them."""
    if not isinstance(target, ast.Tuple) or not isinstance(value, ast.Tuple):
        return [(target, value)]
    starred = any(isinstance(e, ast.Starred) for e in [*target.elts, *value.elts])
    if starred or len(target.elts) != len(value.elts):
        return []
    return list(zip(target.elts, value.elts, strict=True))


def target_names(target: Node) -> list[str]:
    """The plain names a target binds, in order, through tuples, lists and stars."""
    kind = type(target)
    if kind is ast.Name:
        return [target.id]  # type: ignore[attr-defined]
    if kind is ast.Tuple or kind is ast.List:
        return [name for element in target.elts for name in target_names(element)]  # type: ignore[attr-defined]
    return target_names(target.value) if kind is ast.Starred else []  # type: ignore[attr-defined]


def flat_targets(target: ast.expr) -> list[ast.expr]:
    """What a target binds or stores into, one by one, through tuples, lists and stars."""
    if isinstance(target, (ast.Tuple, ast.List)):
        return [one for element in target.elts for one in flat_targets(element)]
    return [target.value] if isinstance(target, ast.Starred) else [target]


def children(node: ast.AST) -> tuple[ast.AST, ...]:
    """The child nodes of a node, as `ast.iter_child_nodes` gives them, but for `Load` and its like.

    Cached on the node, since trees never change here.
    """
    own = node.__dict__
    found: tuple[ast.AST, ...] | None = own.get("_children")
    if found is None:
        contained: list[ast.AST] = []
        for name in _HOLDING_FIELDS[type(node)]:
            value = own.get(name)
            if type(value) is list:
                contained += [one for one in value if isinstance(one, ast.AST)]
            elif isinstance(value, ast.AST):
                contained.append(value)
        found = own["_children"] = tuple(contained)
    return found


def walk(node: ast.AST) -> list[Any]:
    """A node and all below it, in the order of `ast.walk`.

    The result is cached on the node: a dozen questions walk through the body of a loop.
    """
    own = node.__dict__
    below: list[ast.AST] | None = own.get("_below")
    if below is None:
        below = list(children(node))
        for one in below:
            if further := children(one):
                below += further
        own["_below"] = below
    return [node, *below]


def walk_scope(body: list[ast.stmt]) -> Iterator[Node]:
    """Every node of some statements without going into nested functions and classes (lambdas included)."""
    return iter(_in_scope(body))


def _in_scope(body: list[ast.stmt]) -> list[Node]:
    found: list[Node] = []
    stack: list[Node] = [*reversed(body)]
    while stack:
        node = stack.pop()
        found.append(node)
        if type(node) not in _DEFINITIONS and (below := children(node)):
            stack += below[::-1]
    return found


def statements_in(stmt: ast.stmt) -> Iterator[Node]:
    """A statement and those in its blocks, with their handlers and cases, as `walk_scope` iterates over them."""
    stack: list[Node] = [stmt]
    while stack:
        node = stack.pop()
        yield node
        if type(node) not in _DEFINITIONS:
            stack.extend([c for c in reversed(children(node)) if isinstance(c, _IN_BLOCKS)])
