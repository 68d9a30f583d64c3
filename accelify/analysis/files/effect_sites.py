"""The places where code has side effects, and which of them a call reaches."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from accelify.analysis.program import Module
from accelify.analysis.scopes import Scope, handed_to
from accelify.analysis.script import ScriptModel
from accelify.analysis.statements.tolerated_errors import goes_on
from accelify.analysis.syntax import (
    Tree,
    call_argument,
    call_keyword,
    calls_in,
    dotted,
    hides_arguments,
    is_constant,
    names_in,
    walk,
)

FOLDERS, FILES, PICTURES, TERMINAL, DOWNLOADS = "folders", "files", "pictures", "terminal", "downloads"
LOGS = "logs"  # lines and figures added to what is open already

LISTING = ("glob.", "os.listdir", "os.scandir", "os.walk")
_DELETING = frozenset("remove unlink rmtree rmdir removedirs rename replace move".split())
# What asks the person at the terminal, whose answer one process gets.
ASKING = frozenset("builtins.input click.confirm click.prompt getpass.getpass".split())
# Functions that show their argument on the terminal; the second argument of some is a stream.
PRETTY = frozenset({"pprint.pprint", "pprint.pp", "pprint.PrettyPrinter.pprint"})
PRINTERS = PRETTY | {"rich.print", "click.echo", "typer.echo"}
_WRITTEN = frozenset({"builtins.print", "pprint", "sys.stdout.write", "sys.stderr.write"})
# Functions that return their text where they get no file.
_DUMPING = frozenset({"yaml.dump", "yaml.safe_dump"})
_TABLE_METHODS = frozenset({"to_csv", "to_json"})
_NOTHING = (None, False, "")


class Site(NamedTuple):
    """One place that does something: of which kind, by what, where.

    `missing` where the code tests first what exists; `asked` is the parameter without which it does not happen.
    """

    kind: str
    name: str
    path: str
    line: int
    missing: bool = False
    asked: str = ""

    @property
    def deletes(self) -> bool:
        """Whether it takes away what it finds, which another process may have written just before."""
        return self.kind in (FILES, FOLDERS) and is_deletion(self.name)


def prints_beside(call: ast.Call, name: str, attribute: str, taken: bool) -> bool:
    """Whether a call shows something by another function than `print`: `printer.pprint(options)`.

    Args:
        call: the call.
        name: of the library's function, "" where it is none.
        attribute: of a method, or "".
        taken: a function of the program is called.
    """
    if name and name not in PRINTERS:
        return False
    stated = any(kw.arg in ("stream", "file", None) for kw in call.keywords)
    if stated or taken or (name in PRETTY and len(call.args) > 1):
        return False
    return name in PRINTERS or (not name and attribute == "pprint")


def is_deletion(name: str) -> bool:
    """Whether a function that writes takes away what it finds."""
    return name.rpartition(".")[2] in _DELETING


def asks_first(module: Module, call: ast.Call, *, deletes: bool = False) -> bool:
    """Whether something is made only where it does not exist; what `deletes`, only where something else does not."""
    child: ast.AST = call
    for ancestor in module.tree.ancestors(call):
        if isinstance(ancestor, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return False
        # `exists(f) or makedirs(f)` asks in what is before.
        test = ancestor.values[0] if isinstance(ancestor, ast.BoolOp) else getattr(ancestor, "test", None)
        if isinstance(ancestor, (ast.If, ast.IfExp, ast.BoolOp)) and test is not None:
            words = {n.attr for n in walk(test) if isinstance(n, ast.Attribute)}
            words |= names_in(test)
            if words & {"exists", "isdir", "is_dir", "isfile"}:
                if not (deletes and _runs_on_no(ancestor, child) == _is_denied(test)):
                    return not _searches(module.tree, ancestor)
        if isinstance(ancestor, ast.Try) and not deletes:
            # In a handler it is made where it could not be read.
            if goes_on(ancestor) or not any(child is s for s in ancestor.body):
                return True
        child = ancestor
    return False


def _searches(tree: Tree, question: ast.AST) -> bool:
    """Whether the first name that is free ends a loop: who comes later finds it taken, and makes another one."""
    if not isinstance(question, ast.If) or not isinstance(question.body[-1], (ast.Return, ast.Break)):
        return False
    for ancestor in tree.ancestors(question):
        if isinstance(ancestor, (ast.For, ast.While, ast.FunctionDef, ast.AsyncFunctionDef)):
            return isinstance(ancestor, (ast.For, ast.While))
    return False


def stops_first(module: Module, call: ast.Call) -> bool:
    """Whether a function returns before a call where something is there: `if self._check_exists(): return`."""
    for ancestor in module.tree.ancestors(call):
        body = getattr(ancestor, "body", None)
        # That of a lambda, or of a conditional expression, is an expression.
        for stmt in body if isinstance(body, list) else []:
            if not isinstance(stmt, ast.If) or not isinstance(stmt.body[-1], ast.Return):
                continue
            asked = {
                n.attr if isinstance(n, ast.Attribute) else getattr(n, "id", "") for n in walk(stmt.test)
            }
            if module.tree.is_after(call, stmt) and any(
                word in name for name in asked for word in ("exist", "isdir", "is_dir", "isfile", "is_file")
            ):
                return True
        if isinstance(ancestor, (ast.FunctionDef, ast.AsyncFunctionDef)):
            break
    return False


def _runs_on_no(question: ast.If | ast.IfExp | ast.BoolOp, part: ast.AST) -> bool:
    """Whether a part of a question, or of a statement that asks one, is run where the answer is no."""
    if isinstance(question, ast.BoolOp):
        return isinstance(question.op, ast.Or)
    if isinstance(question, ast.IfExp):
        return part is question.orelse
    return any(part is stmt for stmt in question.orelse)


def _is_denied(test: ast.expr) -> bool:
    """`not os.path.exists(path)`, `os.path.exists(path) == False`."""
    return any(
        isinstance(n, ast.Not) or (isinstance(n, ast.Compare) and is_constant(n.comparators[0], False))
        for n in walk(test)
    )


def asked_for(module: Module, scope: Scope, call: ast.Call) -> str:
    """The parameter without which a function does not reach a call: `path` of `if path is not None:`; or ""."""
    parameters = defaults_of(scope)
    child: ast.AST = call
    for ancestor in module.tree.ancestors(call) if parameters else ():
        if isinstance(ancestor, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            break
        if isinstance(ancestor, ast.If) and any(child is s for s in ancestor.body):
            for name in needed_for(ancestor.test):
                if name in parameters and not is_stored(scope, name):
                    return name
        child = ancestor
    return ""


def as_called(sites: list[Site], call: ast.Call, callee: Scope, scope: Scope) -> Iterator[Site]:
    """The sites of a function that one of its calls reaches, as they apply to the scope around that call."""
    given = defaults_of(callee) | {name: argument for argument, name in handed_to(call, callee)}
    starred = hides_arguments(call)
    for site in sites:
        argument = given.get(site.asked)
        if site.asked and not starred and is_constant(argument, *_NOTHING):
            continue
        named = argument.id if isinstance(argument, ast.Name) and site.asked else ""
        yield site._replace(asked=named if named in defaults_of(scope) else "")


def as_called_within(
    sites: list[Site], module: Module, call: ast.Call, callee: Scope, scope: Scope
) -> Iterator[Site]:
    """The sites of a function that a call of another function reaches, which may test first whether to call it."""
    if not sites:
        return
    first = {deletes: asks_first(module, call, deletes=deletes) for deletes in (False, True)}
    asked = asked_for(module, scope, call)
    for site in as_called(sites, call, callee, scope):
        yield site._replace(missing=site.missing or first[site.deletes], asked=site.asked or asked)


def defaults_of(scope: Scope) -> dict[str, ast.expr | None]:
    """The parameters of a function, with their defaults."""
    if isinstance(scope.node, (ast.Module, ast.ClassDef)):
        return {}
    a = scope.node.args
    placed = [*a.posonlyargs, *a.args]
    found: dict[str, ast.expr | None] = {arg.arg: None for arg in placed}
    found |= {arg.arg: d for arg, d in zip(reversed(placed), reversed(a.defaults), strict=False)}
    return found | {arg.arg: d for arg, d in zip(a.kwonlyargs, a.kw_defaults, strict=True)}


def needed_for(test: ast.expr) -> Iterator[str]:
    """The names, dotted ones too, that must have a value for a test to be true."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        for part in test.values:
            yield from needed_for(part)
    elif isinstance(test, ast.Compare):
        if isinstance(test.ops[0], (ast.IsNot, ast.NotEq)) and is_constant(test.comparators[0], *_NOTHING):
            yield from needed_for(test.left)
    elif (name := dotted(test)) is not None:
        yield name


def is_stored(scope: Scope, name: str) -> bool:
    """Whether a function assigns another value to a name."""
    return any(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store) for n in scope.nodes)


def makes_folder_again(call: ast.Call) -> bool:
    """Whether a call that makes a folder may do so on every process: one that is there is right for it."""
    return is_constant(call_keyword(call, "exist_ok"), True)


def gives_text(call: ast.Call, name: str) -> bool:
    """Whether a call returns as text what it would write to a file argument: `yaml.dump(options)`, `table.to_csv()`.

    Args:
        call: of a function that is known for writing.
        name: of the function, or of the method.
    """
    if name in _DUMPING:
        starred = hides_arguments(call)
        return not starred and call_argument(call, 1, "stream") is None
    return name in _TABLE_METHODS and not call.args and not call.keywords


def goes_over_files(script: ScriptModel, node: ast.AST) -> bool:
    """Whether it is a loop over the files that are there, of which one process may see others than the next."""
    if not isinstance(node, (ast.For, ast.AsyncFor)):
        return False
    calls = calls_in(node.iter)
    return any((script.qualname(call.func) or "").startswith(LISTING) for call in calls)


def updates_namespace(func: ast.expr) -> bool:
    """`self.__dict__.update(...)`, `vars(options).update(...)`."""
    if not isinstance(func, ast.Attribute) or func.attr != "update":
        return False
    base = func.value
    called = dotted(base.func) if isinstance(base, ast.Call) else None
    return called in ("vars", "globals") or (dotted(base) or "").endswith("__dict__")
