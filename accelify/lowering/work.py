"""The edits that bring one script back to its plain form, gathered, closed up and put together."""

from __future__ import annotations

import ast
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property

from accelify import edits as verbs
from accelify.analysis.lowered import PLACEHOLDER, Lowered, MainTest
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import Node, Tree, walk
from accelify.edits import DeleteStatement, Edit, Replace
from accelify.findings import Finding
from accelify.transforms.base import Rule

# Imports of these that nobody reads are taken out too: they would still say that the script is distributed.
_OURS = ("apex", "torch.distributed", "torch.nn.parallel.Distributed", "torch.utils.data.distributed")


@dataclass
class Plain:
    """A script's plain form.

    `problems` are sentences with their places; where there is one the text is the script's own. `findings` say what
    was taken out, with places in the script as it was.
    """

    text: str
    known: Lowered
    findings: list[Finding] = field(default_factory=list)
    problems: list[tuple[ast.AST, str]] = field(default_factory=list)
    tree: Tree | None = None
    replaced: list[Replace] = field(default_factory=list)

    @cached_property
    def _laid_out(self) -> Tree:
        """The plain form's lines, without parsing it."""
        assert self.tree is not None
        plain = Tree.__new__(Tree)
        plain.module = self.tree.module
        plain._lay_out("", self.text.encode("utf-8"))
        return plain

    def line_of(self, line: int) -> int:
        """The line of the script as it was for a line of its plain form."""
        assert self.tree is not None
        return self.tree.position(self._back(self._laid_out, line, 1))[0]

    def original(self, finding: Finding) -> Finding:
        """A finding in the plain form, at its place in the script as it was."""
        assert self.tree is not None
        plain = self._laid_out
        start = self._back(plain, finding.line, finding.column)
        end = self._back(plain, finding.end_line or finding.line, finding.end_column or finding.column)
        line, column = self.tree.position(start)
        end_line, end_column = self.tree.position(max(start, end))
        return replace(finding, line=line, column=column, end_line=end_line, end_column=end_column)

    def _back(self, plain: Tree, line: int, column: int) -> int:
        line = min(line, len(plain.line_starts))
        start = plain.line_starts[line - 1]
        lead = plain.data[start : plain.line_end(start)].decode("utf-8")[: column - 1]
        offset = start + len(lead.encode("utf-8"))
        shift = 0
        for edit in self.replaced:
            if edit.start + shift > offset:
                break
            size = len(edit.text.encode("utf-8"))
            if edit.start + shift + size > offset:
                return edit.start
            shift += size - (edit.end - edit.start)
        return offset - shift


class Work:
    """One script being brought back to its plain form."""

    def __init__(self, script: ScriptModel) -> None:
        self.script = script
        self.tree = script.tree
        self.known = Lowered()
        self.touched = False
        self.problems: list[tuple[ast.AST, str]] = []
        self.findings: list[Finding] = []
        self.edits: list[Edit] = []
        self.deleted: set[ast.stmt] = set()
        self.mains: list[tuple[ast.expr, MainTest]] = []
        self.sharded: list[ast.Call] = []
        self.unwrapped: set[ast.With] = set()
        self._dropped: set[ast.alias] = set()
        self._elses: set[ast.stmt] = set()
        self._spans: list[tuple[int, int]] = []
        self._in_strings: set[ast.AST] = set()
        self._strings: set[ast.AST] = set()
        self._rule: Rule | None = None

    # -- what lowerings say

    def problem(self, node: ast.AST, sentence: str) -> None:
        """Note what is not understood: the whole script stays as it is."""
        self.touched = True
        self.problems.append((node, sentence))

    def found(self, rule: Rule, node: ast.AST, message: str) -> None:
        """Note what is taken out, under a rule's code and name."""
        self.touched = True
        self._rule = rule
        path, line, column = self.tree.locate(self.tree.start(node))
        _, end_line, end_column = self.tree.locate(self.tree.end(node))
        self.findings.append(
            Finding(
                path, line, column, rule.code, rule.name, message, end_line, end_column,
                severity=rule.severity, safety=rule.safety, effort=3,
            )
        )  # fmt: skip

    def delete(self, stmt: ast.stmt) -> None:
        """Take a statement out."""
        self.deleted.add(stmt)

    def replace(self, node: ast.AST, text: str) -> None:
        """Put text in the place of a node."""
        if self.tree.in_fstring(node):
            self._in_string(node, text)
        else:
            self.edits.append(verbs.replace(self.tree, node, text))

    def placeholder(self, node: ast.AST, attribute: str) -> None:
        """Put an attribute or method of the Accelerator in the place of a node."""
        self.replace(node, f"{PLACEHOLDER}.{attribute}")

    def _in_string(self, node: ast.AST, text: str) -> None:
        """Inside an f-string places are not reliable: the text is looked for in the whole string."""
        outer = [a for a in self.tree.ancestors(node) if isinstance(a, ast.JoinedStr)][-1]
        segment, old = self.tree.segment(outer), ast.unparse(node)
        alike = [n for n in walk(outer) if isinstance(n, ast.expr) and ast.unparse(n) == old]
        if any(n in self._in_strings for n in alike):
            return
        self._in_strings.update(alike)
        known = [e for e in self.edits if isinstance(e, Replace) and e.start == self.tree.start(outer)]
        if known:
            self.edits.remove(known[0])
            segment = known[0].text
        if segment.count(old) != len(alike):
            self.problem(node, f"`{old}` in line {outer.lineno} stands inside of a string")
            return
        self._strings.add(outer)
        self.edits.append(verbs.replace(self.tree, outer, segment.replace(old, text)))

    def keep_argument(self, call: ast.Call, argument: ast.expr) -> None:
        """Cut a call down to one of its arguments."""
        self.edits += verbs.keep_argument(self.tree, call, argument)

    def drop_arguments(self, call: ast.Call, dropped: Iterable[ast.expr | ast.keyword]) -> None:
        """Take arguments out of a call, with their commas."""
        items = sorted([*call.args, *call.keywords], key=self.tree.start)
        self._drop(items, set(dropped))

    def drop_parameter(self, signature: ast.arguments, name: str) -> None:
        """Take a parameter out of a signature, with its default and its comma."""
        places = [*signature.posonlyargs, *signature.args]
        defaults = [*[None] * (len(places) - len(signature.defaults)), *signature.defaults]
        told = [
            *zip(places, defaults, strict=True),
            *zip(signature.kwonlyargs, signature.kw_defaults, strict=True),
        ]
        index = next(i for i, (place, _) in enumerate(told) if place.arg == name)
        ends = [self.tree.end(default or place) for place, default in told]
        if index + 1 < len(told):
            start, end = self.tree.start(told[index][0]), self.tree.start(told[index + 1][0])
        else:
            start = ends[index - 1] if index else self.tree.start(told[index][0])
            end = ends[index]
        self.edits.append(Replace(start, end, ""))

    def drop_entry(self, entries: ast.Dict, index: int) -> None:
        """Take an entry out of a dictionary."""
        firsts = [k if k is not None else w for k, w in zip(entries.keys, entries.values, strict=True)]
        if index + 1 < len(firsts):
            start, end = self.tree.start(firsts[index]), self.tree.start(firsts[index + 1])
        else:
            start = self.tree.end(entries.values[index - 1]) if index else self.tree.start(firsts[index])
            end = self.tree.end(entries.values[index])
        self.edits.append(Replace(start, end, ""))

    def unwrap(self, stmt: ast.With) -> None:
        """Take a `with` away from around its body."""
        tree, body = self.tree, stmt.body
        self.unwrapped.add(stmt)
        if not tree.own_line(body[0]):
            self.edits.append(Replace(tree.start(stmt), tree.start(body[0]), ""))
            return
        first = tree.line_start(tree.start(body[0]))
        self.edits.append(Replace(tree.line_start(tree.start(stmt)), first, ""))
        surplus = len(tree.indent(body[0])) - len(tree.indent(stmt))
        offset = first
        while offset < tree.end(body[-1]):
            line = tree.data[offset : tree.line_end(offset)]
            blanks = min(surplus, len(line) - len(line.lstrip(b" \t")))
            if line.strip() and blanks:
                self.edits.append(Replace(offset, offset + blanks, ""))
            offset = tree.line_end(offset)

    def merge(self, branch: ast.If, stmt: ast.stmt) -> None:
        """Put one statement in the place of a branch."""
        tree = self.tree
        self.edits.append(Replace(tree.start(branch), tree.end(branch), tree.segment(stmt)))

    def _drop(self, items: list[Node], dropped: set[Node]) -> None:
        index = 0
        while index < len(items):
            if items[index] not in dropped:
                index += 1
                continue
            last = index
            while last + 1 < len(items) and items[last + 1] in dropped:
                last += 1
            if last + 1 < len(items):
                start, end = self.tree.start(items[index]), self.tree.start(items[last + 1])
            else:
                start = self.tree.end(items[index - 1]) if index else self.tree.start(items[index])
                end = self.tree.end(items[last])
            self.edits.append(Replace(start, end, ""))
            index = last + 1

    # -- what is left

    def is_gone(self, node: ast.AST) -> bool:
        """Whether a node stands in what is taken out or replaced."""
        if self.tree.in_fstring(node):
            around = list(self.tree.ancestors(node))
            if any(n in self._in_strings for n in (node, *around)):
                return True
            node = [a for a in around if isinstance(a, ast.JoinedStr)][-1]
            if node in self._strings:
                return self.is_gone(self.tree.statement(node))
        start, end = self.tree.start(node), self.tree.end(node)
        index = bisect_right(self._spans, start, key=lambda span: span[0]) - 1
        return index >= 0 and any(s <= start and end <= e for s, e in self._spans[: index + 1])

    def _note_spans(self) -> None:
        spans = [(self.tree.start(s), self.tree.end(s)) for s in self.deleted]
        spans += [(e.start, e.end) for e in self.edits if isinstance(e, Replace) and e.end > e.start]
        self._spans = sorted(spans)

    def loads(self, name: str) -> list[ast.Name]:
        """Every read of a name, in any scope."""
        return [n for n in self.tree.nodes(ast.Name) if n.id == name and isinstance(n.ctx, ast.Load)]

    def left(self, nodes: Iterable[ast.AST]) -> list[ast.AST]:
        """Those nodes that stay."""
        self._note_spans()
        return [n for n in nodes if not self.is_gone(n)]

    def close_up(self) -> None:
        """Take out what has become empty or unread: branches, helper functions with their calls, imports."""
        while self._empty_branches() or self._empty_functions() or self._imports():
            pass

    def _empty_branches(self) -> bool:
        before = len(self.deleted)
        for stmt in reversed(list(self.tree.nodes(ast.If))):
            inner = [*stmt.body, *stmt.orelse]
            if stmt in self.deleted or self.tree.is_elif(stmt) or not self._only_asks(stmt.test):
                continue
            if all(s in self.deleted for s in inner):
                self.deleted.add(stmt)
        for attempt in self.tree.nodes(ast.Try):
            imports = all(isinstance(s, (ast.Import, ast.ImportFrom)) for s in attempt.body)
            if imports and not attempt.finalbody and all(s in self.deleted for s in attempt.body):
                if attempt not in self.deleted:
                    self.deleted.add(attempt)
        return len(self.deleted) > before

    def _only_asks(self, test: ast.expr) -> bool:
        """Whether a test does nothing but ask."""
        for call in (n for n in walk(test) if isinstance(n, ast.Call)):
            name = self.script.qualname(call.func) or ""
            if not name.startswith(("torch.", "builtins.")) and not self.script.callees(call):
                return False
        return True

    def _empty_functions(self) -> bool:
        """A helper of which nothing is left goes with its calls, where all of them stand for themselves."""
        before = len(self.deleted)
        for scope in self.script.functions():
            node = scope.node
            if not isinstance(node, ast.FunctionDef) or scope.is_method or node in self.deleted:
                continue
            real = [s for s in node.body if not _says_nothing(s)]
            if not real or not all(s in self.deleted for s in real) or node.decorator_list:
                continue
            reads = self.left(self.loads(node.name))
            calls = [self.tree.parent(n) for n in reads]
            lines = [self.tree.parent(c) if isinstance(c, ast.Call) and c.func is n else None
                     for n, c in zip(reads, calls, strict=True)]  # fmt: skip
            if all(isinstance(line, ast.Expr) for line in lines):
                self.deleted.add(node)
                self.deleted.update(line for line in lines if isinstance(line, ast.Expr))
        return len(self.deleted) > before

    def _imports(self) -> bool:
        """Imports whose every read went are taken out; those that were never read are not ours."""
        self._note_spans()
        changed = False
        for stmt in [*self.tree.nodes(ast.Import), *self.tree.nodes(ast.ImportFrom)]:
            if stmt in self.deleted:
                continue
            dead = [a for a in stmt.names if a not in self._dropped and self._is_unread(stmt, a)]
            if not dead:
                continue
            changed = True
            self._dropped.update(dead)
            if all(a in self._dropped for a in stmt.names):
                self.deleted.add(stmt)
        return changed

    def _is_unread(self, stmt: ast.Import | ast.ImportFrom, alias: ast.alias) -> bool:
        if isinstance(stmt, ast.Import) and not alias.asname and "." in alias.name:
            # `import torch.distributed` binds `torch`: read where the whole of it is.
            if not any(
                isinstance(s, ast.Import)
                and any(a.name == alias.name.split(".")[0] and not a.asname for a in s.names)
                for s in self.tree.nodes(ast.Import)
            ):
                return False
            depth = alias.name.count(".")
            reads: list[ast.AST] = [
                n for n in self.tree.nodes(ast.Attribute) if _written(n, depth) == alias.name
            ]  # fmt: skip
        else:
            reads = list(self.loads(alias.asname or alias.name))
        whole = f"{stmt.module or ''}.{alias.name}" if isinstance(stmt, ast.ImportFrom) else alias.name
        return (bool(reads) or whole.startswith(_OURS)) and all(self.is_gone(n) for n in reads)

    def finish(self) -> Plain:
        """Close up and put everything together."""
        if self.problems:
            return Plain(self.tree.text, self.known, problems=self.problems)
        self.close_up()
        outer = [s for s in self.deleted if not any(a in self.deleted for a in self.tree.ancestors(s))]
        edits = self._open_elses()
        for stmt in [*outer, *self.tree.nodes(ast.Import), *self.tree.nodes(ast.ImportFrom)]:
            taken = stmt in self.deleted or any(a in self._dropped for a in stmt.names)
            if taken and self._rule is not None:
                self.found(self._rule, stmt, "nothing needs it any more")
        edits += [self._taken_out(s) for s in outer if s not in self._elses]
        for stmt in [*self.tree.nodes(ast.Import), *self.tree.nodes(ast.ImportFrom)]:
            gone = {a for a in stmt.names if a in self._dropped}
            if gone and stmt not in self.deleted:
                kept, self.edits = self.edits, []
                self._drop(list(stmt.names), gone)
                edits += self.edits
                self.edits = kept
        covered = [(self.tree.start(s), self.tree.end(s)) for s in outer]
        replaces = [e for e in self.edits if isinstance(e, Replace)]
        for edit in dict.fromkeys(replaces):
            if any(start <= edit.start and edit.end <= end for start, end in covered):
                continue
            if not any(_holds(other, edit) for other in replaces):
                edits.append(edit)
        edits += [e for e in self.edits if not isinstance(e, Replace)]
        try:
            replaced = verbs.ranges(self.tree, edits)
        except verbs.EditError as error:
            return Plain(self.tree.text, self.known, problems=[(self.tree.module.body[0], str(error))])
        text = verbs.put_together(self.tree, replaced).decode("utf-8")
        if self.tree.text.rstrip() + self.tree.newline == self.tree.text:
            text = text.rstrip() + self.tree.newline
        known = replace(
            self.known,
            sharded=frozenset(_shifted(replaced, self.tree.start(c)) for c in self.sharded),
            mains=[
                replace(
                    test,
                    start=_shifted(replaced, self.tree.start(node)),
                    end=_shifted(replaced, self.tree.end(node)),
                )
                for node, test in self.mains
            ],
        )
        plain = Plain(text, known, self.findings, [], self.tree, replaced)
        known.line_of = plain.line_of
        return plain

    def _taken_out(self, stmt: ast.stmt) -> Edit:
        """A helper function goes with the blank lines behind it."""
        tree = self.tree
        if not isinstance(stmt, ast.FunctionDef) or not isinstance(tree.parent(stmt), ast.Module):
            return DeleteStatement(stmt)
        end = tree.line_end(tree.end(stmt))
        while end < len(tree.data) and not tree.data[end : tree.line_end(end)].strip():
            end = tree.line_end(end)
        return Replace(tree.line_start(tree.start(stmt)), end, "")

    def _open_elses(self) -> list[Edit]:
        """An `else` of which nothing is left goes with its word."""
        edits: list[Edit] = []
        for stmt in self.tree.nodes(ast.If):
            lasts = stmt.orelse
            if stmt in self.deleted or not lasts or not all(s in self.deleted for s in lasts):
                continue
            if (len(lasts) == 1 and self.tree.is_elif(lasts[0])) or not self.tree.ends_line(stmt.body[-1]):
                continue
            start, end = (
                self.tree.line_end(self.tree.end(stmt.body[-1])),
                self.tree.line_end(self.tree.end(stmt)),
            )
            if any(self.tree.own_line(s) and self.tree.ends_line(s) for s in lasts):
                self.edits = [
                    e for e in self.edits
                    if not (isinstance(e, Replace) and start <= e.start and e.end <= end)
                ]  # fmt: skip
                self._elses.update(lasts)
                edits.append(Replace(start, end, ""))
        return edits


def _written(node: ast.Attribute, depth: int) -> str:
    parts: list[str] = []
    current: ast.expr = node
    while isinstance(current, ast.Attribute):
        parts.append(current.attr)
        current = current.value
    if not isinstance(current, ast.Name):
        return ""
    return ".".join([current.id, *reversed(parts)]) if len(parts) == depth else ""


def _says_nothing(stmt: ast.stmt) -> bool:
    if isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Constant):
        return True
    return isinstance(stmt, ast.Pass) or (isinstance(stmt, ast.Return) and stmt.value is None)


def _holds(outer: Replace, inner: Replace) -> bool:
    """Whether one range is a larger one that holds another."""
    return (
        outer.start <= inner.start
        and inner.end <= outer.end
        and outer.end - outer.start > inner.end - inner.start
    )


def _shifted(replaced: list[Replace], offset: int) -> int:
    """Where a place of the script is in its plain form."""
    return offset + sum(len(e.text.encode("utf-8")) - (e.end - e.start) for e in replaced if e.end <= offset)
