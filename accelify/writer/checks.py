"""What is written, looked at before it is used: it is Python, its names are bound in time and its calls fit."""

from __future__ import annotations

import ast
import builtins
import re
import symtable
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property

from accelify.analysis.syntax import Tree, walk
from accelify.writer.assignment import Assignments
from accelify.writer.attributes import Attributes
from accelify.writer.errors import EditError

_LONGEST_CALL = 60
_LINE_ENDS = re.compile(r"\r\n|\r|\n")
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_KNOWN = frozenset({*dir(builtins), *vars(builtins), "__file__", "__path__", "__annotations__", "__class__"})


class _File:
    """One file as it was, or as it is to be written."""

    def __init__(self, name: str, text: str, tree: ast.Module, shift: int = 0) -> None:
        self.name = name
        self.text = text
        self.tree = tree
        self.signatures = dict(_signatures(tree))
        self._shift = shift

    @cached_property
    def assignments(self) -> Assignments:
        """What may not be assigned where it is read."""
        return Assignments(self.tree)

    @cached_property
    def attributes(self) -> Attributes:
        """What objects may lack where it is read."""
        return Attributes(self.tree)

    @cached_property
    def top(self) -> list[tuple[ast.stmt, str]]:
        """The statements at the top of the file, each with the lines that it is on."""
        lines = _LINE_ENDS.split(self.text)
        found = []
        for stmt in self.tree.body:
            decorators = getattr(stmt, "decorator_list", ())
            first = min(node.lineno for node in (stmt, *decorators)) - self._shift
            found.append((stmt, "\n".join(lines[first - 1 : (stmt.end_lineno or 0) - self._shift])))
        return found

    def changed_since(self, old: _File) -> list[ast.stmt]:
        """The statements at the top but for functions and classes that are there as they were."""
        known = {text for stmt, text in old.top if isinstance(stmt, _DEFINITIONS)}
        return [s for s, text in self.top if not isinstance(s, _DEFINITIONS) or text not in known]


def check(tree: Tree, before: Sequence[str], after: Sequence[str], names: Sequence[str]) -> None:
    """Look at some files that are edited together.

    Args:
        tree: what was read of them.
        before: their texts as they were; `async=` of old releases of torch may be in them.
        after: their texts as they are to be written, in the same order.
        names: what they are called.

    Raises:
        EditError: when one binds a name no longer or too late, takes one that has another meaning, or a call does not
            fit its function any more.
        SyntaxError: when one is not Python.
        ValueError: when one is not Python.
    """
    with warnings.catch_warnings():
        # Of what the script's author wrote, such as an assertion that is always true.
        warnings.simplefilter("ignore")
        _check(tree, before, after, names)


def _check(tree: Tree, before: Sequence[str], after: Sequence[str], names: Sequence[str]) -> None:
    files = [
        _File(name, text, module, tree.position(begin)[0] - 1)
        for name, text, (module, begin, _) in zip(names, before, tree.parts(), strict=True)
    ]
    edited = [
        old if old.text == text else _File(old.name, text, ast.parse(text))
        for old, text in zip(files, after, strict=True)
    ]
    for old, new in zip(files, edited, strict=True):
        if new is old:
            continue
        try:
            compile(ast.Module(new.changed_since(old), []), "<converted>", "exec", dont_inherit=True)
        except SyntaxError:
            if _compiles(old.text):  # else it is no worse than it was
                raise
        missing = unbound(new.text)
        if missing and (missing := missing - _unbound_before(old.text)):
            name = min(missing)
            line = next((n.lineno for n in ast.walk(new.tree) if isinstance(n, ast.Name) and n.id == name), 1)
            where = f"{new.name}, where line {line} of what would be written reads it"
            raise EditError(f"`{name}` would be bound nowhere in {where}: bind that name above it")
        _check_assignments(old, new)
    _check_calls(files, edited)


def _check_assignments(old: _File, new: _File) -> None:
    """Complain of what may not be assigned where it is read, and was before, or has two meanings now."""
    where_new = f"of what would be written in {new.name}"
    before, after = old.assignments, new.assignments
    for where, name in sorted(after.unassigned - before.unassigned):
        line = after.lines[where, name]
        raise EditError(f"`{name}` may not be assigned yet where line {line} {where_new} reads it")
    earlier, later = old.attributes, new.attributes
    for cls, name in sorted(later.lacking - earlier.lacking):
        line = later.lines[cls, name]
        raise EditError(f"objects of `{cls}` may have no `{name}` where line {line} {where_new} needs it")
    for name in sorted(_brought(old.tree, new.tree)):
        for where, bound in before.bound.items():
            more = after.reads.get(where, Counter())[name] > before.reads[where][name]
            if name in bound and (more or not where):
                raise EditError(f"`{name}` has another meaning in {old.name}: give that another name")


def _brought(old: ast.Module, new: ast.Module) -> set[str]:
    """The names that edits import, and those of what they make of these."""
    known = {ast.dump(stmt) for stmt in old.body if isinstance(stmt, (ast.Import, ast.ImportFrom))}
    every = (stmt for stmt in new.body if isinstance(stmt, (ast.Import, ast.ImportFrom)))
    found = {
        alias.asname or alias.name.partition(".")[0]
        for stmt in every
        if ast.dump(stmt) not in known
        for alias in stmt.names
    }
    found -= {
        alias.asname or alias.name.partition(".")[0]
        for stmt in walk(old)
        if isinstance(stmt, (ast.Import, ast.ImportFrom))
        for alias in stmt.names
    }
    made = (stmt for stmt in walk(new) if isinstance(stmt, ast.Assign) and isinstance(stmt.value, ast.Call))
    return found | {
        target.id
        for stmt in made
        if isinstance(stmt.value, ast.Call) and isinstance(stmt.value.func, ast.Name)
        if stmt.value.func.id in found
        for target in stmt.targets
        if isinstance(target, ast.Name) and target.id not in _read(stmt.value)
    }


def _read(node: ast.AST) -> set[str]:
    return {one.id for one in walk(node) if isinstance(one, ast.Name)}


def _compiles(text: str) -> bool:
    try:
        compile(text, "<script>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True


def unbound(text: str) -> frozenset[str]:
    """The names that a script reads, in whatever scope, and that neither it nor Python binds.

    Raises:
        SyntaxError: when it is not Python.
    """
    table = symtable.symtable(text, "<converted>", "exec")
    bound = {
        s.get_name() for s in table.get_symbols() if s.is_assigned() or s.is_imported() or s.is_namespace()
    }
    read: set[str] = set()
    for scope in _tables(table):
        # A symbol, which is slow to make, is made only of these: local names of functions are not asked for.
        names = scope.get_globals() if isinstance(scope, symtable.Function) else scope.get_identifiers()
        for symbol in map(scope.lookup, {*names} - bound - _KNOWN):
            if symbol.is_declared_global() and symbol.is_assigned():
                bound.add(symbol.get_name())
            if symbol.is_referenced() and (symbol.is_global() or scope is table):
                read.add(symbol.get_name())
    return frozenset(name for name in read - bound if not name.startswith("__"))


def _unbound_before(text: str) -> frozenset[str]:
    from accelify.obsolete_keywords import modernised

    try:
        return unbound(modernised(text))
    except (SyntaxError, ValueError):
        return frozenset()


def _tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for child in table.get_children():
        yield from _tables(child)


def _check_calls(old: Sequence[_File], new: Sequence[_File]) -> None:
    """Complain of a call that fitted its function and does not any more."""
    changed = {
        name
        for one, other in zip(old, new, strict=True)
        if one is not other
        for name in {getattr(stmt, "name", "") for stmt in other.changed_since(one)} & other.signatures.keys()
        if name in one.signatures and ast.dump(one.signatures[name]) != ast.dump(other.signatures[name])
    }
    misfits = list(_misfits(new, changed)) if changed else []
    earlier = Counter(name for name, _, _ in _misfits(old, changed)) if misfits else Counter[str]()
    for name, file, call in misfits:
        if not earlier[name]:
            raise EditError(
                f"the call `{_short(call)}` in {file} would not fit `{name}` any more: "
                f"call it from what the training reaches, or pass it what `{name}` takes by name with a default"
            )
        earlier[name] -= 1


def _short(call: ast.Call) -> str:
    text = ast.unparse(call)
    return text if len(text) <= _LONGEST_CALL else f"{text[: _LONGEST_CALL - 3]}..."


def _signatures(tree: ast.Module) -> Iterator[tuple[str, ast.arguments]]:
    """What the functions at the top of a file, and the classes, are called with."""
    for stmt in tree.body:
        if isinstance(stmt, (ast.FunctionDef, ast.AsyncFunctionDef)) and not stmt.decorator_list:
            yield stmt.name, stmt.args
        elif isinstance(stmt, ast.ClassDef):
            for inner in stmt.body:
                if isinstance(inner, ast.FunctionDef) and inner.name == "__init__" and inner.args.args:
                    known = {name: getattr(inner.args, name) for name in inner.args._fields}
                    yield stmt.name, ast.arguments(**{**known, "args": inner.args.args[1:]})


def _misfits(files: Sequence[_File], names: set[str]) -> Iterator[tuple[str, str, ast.Call]]:
    """The calls of functions of these names that do not fit them, in the files that define or import them."""
    everywhere = {name: one.signatures[name] for one in files for name in names & one.signatures.keys()}
    mentioned = re.compile(rf"\b(?:{'|'.join(map(re.escape, names))})\b")
    for file in files:
        calls: list[ast.Call] = []
        bound: set[str] = set()
        imported: set[str] = set()
        for node in (node for stmt, text in file.top if mentioned.search(text) for node in walk(stmt)):
            kind = type(node)
            if kind is ast.Call:
                calls.append(node)
            elif kind is ast.Name:
                if type(node.ctx) is not ast.Load:
                    bound.add(node.id)
            elif kind is ast.arg:
                bound.add(node.arg)
            elif kind is ast.ImportFrom:
                imported.update(alias.name for alias in node.names if alias.asname is None)
        # A name that the file binds in another way may represent something else.
        known = {
            name: everywhere[name] for name in names - bound if name in file.signatures or name in imported
        }
        for call in calls if known else ():
            if isinstance(call.func, ast.Name) and call.func.id in known:
                if not fits(call, known[call.func.id]):
                    yield call.func.id, file.name, call


def fits(call: ast.Call, signature: ast.arguments) -> bool:
    """Whether a call can be made of what a signature takes; where a star hides arguments, it can."""
    if any(isinstance(a, ast.Starred) for a in call.args) or any(kw.arg is None for kw in call.keywords):
        return True
    plain = [a.arg for a in (*signature.posonlyargs, *signature.args)]
    named = {kw.arg for kw in call.keywords}
    if len(call.args) > len(plain) and signature.vararg is None:
        return False
    free = {a.arg for a in signature.args} | {a.arg for a in signature.kwonlyargs}
    placed = plain[: len(call.args)]
    if (named - free and signature.kwarg is None) or named & set(placed):
        return False
    wanted = plain[len(call.args) : len(plain) - len(signature.defaults)]
    wanted += [a.arg for a, d in zip(signature.kwonlyargs, signature.kw_defaults, strict=True) if d is None]
    return all(name in named for name in wanted)
