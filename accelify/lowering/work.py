"""The edits that bring one script back to its plain form, gathered, closed up and put together."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from accelify.analysis.lowered import PLACEHOLDER, Lowered, MainTest
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import walk
from accelify.findings import Finding
from accelify.transforms.base import Rule
from accelify.writer import edits as verbs
from accelify.writer.edits import Delete, DropArgument, Edit, Replace, Unwrap

if TYPE_CHECKING:
    from accelify.writer.moved import Moved

# Imports of these that are not used are removed too: they would still mark the script as distributed.
_OURS = ("apex", "torch.distributed", "torch.nn.parallel.Distributed", "torch.utils.data.distributed")


@dataclass
class Plain:
    """A script's plain form.

    `problems` are sentences with their places; where there is one nothing is moved. `findings` report what was
    taken out, with places in the script as it was.
    """

    known: Lowered
    findings: list[Finding] = field(default_factory=list)
    problems: list[tuple[ast.AST, str]] = field(default_factory=list)
    moved: Moved | None = None

    @property
    def text(self) -> str:
        """The plain form."""
        assert self.moved is not None
        return self.moved.text

    def line_of(self, line: int) -> int:
        """The line of the script as it was for a line of its plain form."""
        assert self.moved is not None
        return self.moved.origin(line, 1)[0]

    def original(self, finding: Finding) -> Finding:
        """A finding in the plain form, at its place in the script as it was."""
        assert self.moved is not None
        start = self.moved.origin(finding.line, finding.column)
        end = self.moved.origin(finding.end_line or finding.line, finding.end_column or finding.column)
        end_line, end_column = max(start, end)
        return replace(finding, line=start[0], column=start[1], end_line=end_line, end_column=end_column)


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
        self._dropped: set[ast.AST] = set()
        self._taken: set[ast.AST] = set()
        self._replaced: dict[ast.AST, list[ast.AST]] = {}
        self._rule: Rule | None = None

    # -- reports of lowerings

    def problem(self, node: ast.AST, sentence: str) -> None:
        """Note what is not understood: the whole script stays as it is."""
        self.touched = True
        self.problems.append((node, sentence))

    def found(self, rule: Rule, node: ast.AST, message: str) -> None:
        """Note what is taken out, under a rule's code and name."""
        self.touched = True
        self._rule = rule
        path, line, column = self.tree.place(node)
        _, end_line, end_column = self.tree.end_place(node)
        self.findings.append(
            Finding(
                path, line, column, rule.code, rule.name, message, end_line, end_column,
                severity=rule.severity, safety=rule.safety, effort=3, done=rule.done,
            )
        )  # fmt: skip

    def delete(self, stmt: ast.stmt) -> None:
        """Take a statement out."""
        self.deleted.add(stmt)

    def replace(self, node: ast.AST, text: str) -> None:
        """Put text in the place of a node."""
        self.edits.append(verbs.replace(node, text))

    def placeholder(self, node: ast.AST, attribute: str) -> None:
        """Put an attribute or method of the Accelerator in the place of a node."""
        self.replace(node, f"{PLACEHOLDER}.{attribute}")

    def keep_argument(self, call: ast.Call, argument: ast.expr) -> None:
        """Cut a call down to one of its arguments."""
        self.edits.append(verbs.replace(call, argument))

    def drop_arguments(self, call: ast.Call, dropped: Iterable[ast.expr | ast.keyword]) -> None:
        """Take arguments out of a call, with their commas."""
        self.edits += [DropArgument(call, one) for one in dropped]

    def drop_parameter(self, signature: ast.arguments, name: str) -> None:
        """Take a parameter out of a signature, with its default and its comma."""
        places = [*signature.posonlyargs, *signature.args, *signature.kwonlyargs]
        self.edits.append(DropArgument(signature, next(place for place in places if place.arg == name)))

    def drop_entry(self, entries: ast.Dict, index: int) -> None:
        """Take an entry out of a dictionary."""
        self.edits.append(DropArgument(entries, entries.values[index]))

    def unwrap(self, stmt: ast.With) -> None:
        """Take a `with` away from around its body."""
        self.unwrapped.add(stmt)
        self.edits.append(Unwrap(stmt))

    def merge(self, branch: ast.If, stmt: ast.stmt) -> None:
        """Put one statement in the place of a branch."""
        self.edits.append(verbs.replace(branch, stmt))

    # -- what is left

    def is_gone(self, node: ast.AST) -> bool:
        """Whether a node is in what is taken out or replaced."""
        inner: ast.AST = node
        for around in (node, *self.tree.ancestors(node)):
            if around in self.deleted or around in self._dropped or around in self._taken:
                return True
            pieces = self._replaced.get(around)
            if pieces is not None and not any(self.tree.is_within(node, {piece}) for piece in pieces):
                return True
            if around in self.unwrapped and isinstance(inner, ast.withitem):
                return True
            inner = around
        return False

    def _note_gone(self) -> None:
        self._taken = {edit.item for edit in self.edits if isinstance(edit, DropArgument)}
        self._replaced = {
            edit.node: [piece for piece in edit.pieces if isinstance(piece, ast.AST)]
            for edit in self.edits
            if isinstance(edit, Replace)
        }

    def loads(self, name: str) -> list[ast.Name]:
        """Every read of a name, in any scope."""
        return [n for n in self.tree.nodes(ast.Name) if n.id == name and isinstance(n.ctx, ast.Load)]

    def left(self, nodes: Iterable[ast.AST]) -> list[ast.AST]:
        """Those nodes that stay."""
        self._note_gone()
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
            if (
                imports
                and not attempt.orelse
                and not attempt.finalbody
                and all(s in self.deleted for s in attempt.body)
            ):
                if attempt not in self.deleted and not any(map(self.decides, attempt.body)):
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
        """A helper of which nothing is left goes with its calls, where all of them represent themselves."""
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
        self._note_gone()
        changed = False
        for stmt in [*self.tree.nodes(ast.Import), *self.tree.nodes(ast.ImportFrom)]:
            if stmt in self.deleted or self.decides(stmt):
                continue
            dead = [a for a in stmt.names if a not in self._dropped and self._is_unread(stmt, a)]
            if not dead:
                continue
            changed = True
            self._dropped.update(dead)
            if all(a in self._dropped for a in stmt.names):
                self.deleted.add(stmt)
        return changed

    def decides(self, stmt: ast.Import | ast.ImportFrom) -> bool:
        """Whether what stays depends on an import's success: `try: import apex; found = True`, and `found` is read."""
        attempt = self.tree.parent(stmt)
        if not isinstance(attempt, ast.Try) or stmt not in attempt.body:
            return False
        imports = {s for s in attempt.body if isinstance(s, (ast.Import, ast.ImportFrom))}
        after = [s for s in [*attempt.body, *attempt.orelse] if s not in imports and s not in self.deleted]
        if any(not isinstance(s, (ast.Assign, ast.Pass)) for s in after):
            return True
        bound = {
            node.id
            for outer in [*after, *(s for handler in attempt.handlers for s in handler.body)]
            for node in walk(outer)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        } - {(alias.asname or alias.name).split(".")[0] for one in imports for alias in one.names}
        # The Accelerator's arguments read some, too.
        return bool(
            bound & self.known.names or self.left(read for name in bound for read in self.loads(name))
        )

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
            return Plain(self.known, problems=self.problems)
        self.close_up()
        outer = [s for s in self.deleted if not any(a in self.deleted for a in self.tree.ancestors(s))]
        for stmt in [*outer, *self.tree.nodes(ast.Import), *self.tree.nodes(ast.ImportFrom)]:
            taken = stmt in self.deleted or any(a in self._dropped for a in stmt.names)
            if taken and self._rule is not None:
                self.found(self._rule, stmt, "nothing needs it any more")
        edits: list[Edit] = [self._taken_out(stmt) for stmt in outer]
        for stmt in [*self.tree.nodes(ast.Import), *self.tree.nodes(ast.ImportFrom)]:
            if stmt not in self.deleted:
                edits += [DropArgument(stmt, alias) for alias in stmt.names if alias in self._dropped]
        self._note_gone()
        edits += [edit for edit in dict.fromkeys(self.edits) if not self._is_covered(edit)]
        from accelify.writer.moved import Moved
        from accelify.writer.writing import Written

        try:
            written = Written(self.tree, edits)
        except verbs.EditError as error:
            return Plain(self.known, problems=[(self.tree.module.body[0], str(error))])
        moved = Moved(written)
        mains = []
        for node, test in self.mains:
            start, end = moved.place(node)
            mains.append(test._replace(start=start, end=end))
        sharded = frozenset(moved.place(call)[0] for call in self.sharded)
        known = replace(self.known, sharded=sharded, mains=mains)
        plain = Plain(known, self.findings, [], moved)
        known.line_of = plain.line_of
        return plain

    def _is_covered(self, edit: Edit) -> bool:
        """Whether an edit is in what another one takes out or replaces."""
        node = verbs.node_of(edit)
        around = list(self.tree.ancestors(node))
        if node in self.deleted or any(self.is_gone(one) for one in around[:1]):
            return True
        return isinstance(edit, DropArgument) and node in self._replaced and self.is_gone(edit.item)

    def _taken_out(self, stmt: ast.stmt) -> Edit:
        """A helper function goes with the blank lines after it."""
        helper = isinstance(stmt, ast.FunctionDef) and isinstance(self.tree.parent(stmt), ast.Module)
        return Delete(stmt, blank_lines=helper)


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
