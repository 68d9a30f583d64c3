"""What is written, looked at before it is used: it is Python, its names are bound and its calls fit."""

from __future__ import annotations

import ast
import builtins
import symtable
from collections import Counter
from collections.abc import Iterator, Sequence

from accelify.analysis.syntax import walk
from accelify.writer.errors import EditError

_LONGEST_CALL = 60
_KNOWN = frozenset({*dir(builtins), *vars(builtins), "__file__", "__path__", "__annotations__", "__class__"})


def check(
    before: Sequence[str], after: Sequence[str], modules: Sequence[ast.Module], files: Sequence[str]
) -> None:
    """Look at some files that are edited together.

    Args:
        before: their texts as they were; `async=` of old releases of torch may stand in them.
        after: their texts as they are to be written, in the same order.
        modules: what was read of the texts as they were.
        files: what the files are called.

    Raises:
        EditError: when one binds a name no longer, or a call does not fit its function any more.
        SyntaxError: when one is not Python.
        ValueError: when one is not Python.
    """
    trees = [ast.parse(text) for text in after]
    for old, new, tree, file in zip(before, after, trees, files, strict=True):
        if old == new:
            continue
        try:
            compile(tree, "<converted>", "exec", dont_inherit=True)
        except SyntaxError:
            if _compiles(old):  # else it is no worse than it was
                raise
        missing = unbound(new)
        if missing and (missing := missing - _unbound_before(old)):
            name = min(missing)
            line = next((n.lineno for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id == name), 1)
            where = f"{file}, where line {line} of what would be written reads it"
            raise EditError(f"`{name}` would be bound nowhere in {where}: bind that name above it")
    _check_calls(modules, trees, files)


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
        for symbol in scope.get_symbols():
            name = symbol.get_name()
            if symbol.is_declared_global() and symbol.is_assigned():
                bound.add(name)
            top = scope is table
            if symbol.is_referenced() and (symbol.is_global() or top):
                read.add(name)
    return frozenset(name for name in read - bound - _KNOWN if not name.startswith("__"))


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


def _check_calls(old_trees: Sequence[ast.Module], trees: Sequence[ast.Module], files: Sequence[str]) -> None:
    """Complain of a call that fitted its function and does not any more."""
    new = [dict(_signatures(tree)) for tree in trees]
    old = [dict(_signatures(tree)) for tree in old_trees]
    changed = {
        name
        for one, other in zip(old, new, strict=True)
        for name, signature in other.items()
        if name in one and ast.dump(one[name]) != ast.dump(signature)
    }
    if not changed:
        return
    misfits = list(_misfits(trees, new, changed))
    earlier = Counter(name for name, _, _ in _misfits(old_trees, old, changed)) if misfits else Counter[str]()
    for name, index, call in misfits:
        if not earlier[name]:
            raise EditError(
                f"the call `{_short(call)}` in {files[index]} would not fit `{name}` any more: "
                f"call it from what the training comes to, or give it what `{name}` takes by name with a default"
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
                    a = inner.args
                    yield (
                        stmt.name,
                        ast.arguments(
                            a.posonlyargs,
                            a.args[1:],
                            a.vararg,
                            a.kwonlyargs,
                            a.kw_defaults,
                            a.kwarg,
                            a.defaults,
                        ),
                    )


def _misfits(
    trees: Sequence[ast.Module], signatures: Sequence[dict[str, ast.arguments]], names: set[str]
) -> Iterator[tuple[str, int, ast.Call]]:
    """The calls of functions of these names that do not fit them, in the files that define or import them."""
    everywhere = {name: one[name] for one in signatures for name in names & one.keys()}
    for index, (tree, defined) in enumerate(zip(trees, signatures, strict=True)):
        calls: list[ast.Call] = []
        bound: set[str] = set()
        imported: set[str] = set()
        for node in walk(tree):
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
        # A name that the file binds in another way may stand for something else.
        known = {name: everywhere[name] for name in names - bound if name in defined or name in imported}
        for call in calls if known else ():
            if isinstance(call.func, ast.Name) and call.func.id in known:
                if not fits(call, known[call.func.id]):
                    yield call.func.id, index, call


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
