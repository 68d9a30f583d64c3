"""Functions that fetch what is missing, and where processes can run them one after the other.

def fetch(path):                       (the function or its callers test for the file: a process that is late finds a
    if os.path.exists(path):            file that the main process has begun, and reaches no wait)
        return path
    urlretrieve(url, path)
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, field

from accelify.analysis.files.asked_paths import after_tests, asked_paths
from accelify.analysis.files.folders import folder_made, makes_folder
from accelify.analysis.files.writing_calls import opens_for_writing
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import calls_in, dotted, text_of, walk

# Calls through which functions are followed to a test for the file.
_FARTHEST = 3
# Calls whose result a script writes to a file itself.
_ANSWERING = frozenset({"requests.get", "urllib.request.urlopen"})
_MAKING = frozenset("extractall extract unpack_archive copyfileobj rename move replace copy copyfile".split())


@dataclass
class Turns:
    """How processes reach what some functions fetch.

    `places` are the statements to be run one after the other, each with the call in it and whether it fetches each
    time, whatever is there. `scopes` are the functions that are run so.
    """

    places: dict[ast.stmt, tuple[ast.Call, bool]] = field(default_factory=dict)
    scopes: set[Scope] = field(default_factory=set)


def turns_of(script: ScriptModel, fetching: ast.stmt, seen: Set[Scope] = frozenset()) -> Turns | None:
    """Where processes can take turns for a statement of a function that fetches; None where nobody looks before it."""
    scope = script.scope_of(fetching)
    calls = script.callers(scope) if scope.kind == "function" and not scope.is_method else []
    if not calls or scope in seen or len(seen) == _FARTHEST or not isinstance(scope.node, ast.FunctionDef):
        return None
    found = Turns(scopes={scope})
    looks = _looks_early(script, scope.node, fetching)
    bare: list[tuple[ast.stmt, ast.Call]] = []
    for call in calls:
        own = script.tree.statement(call)
        look = after_tests(script.tree, own)
        if look is own and not isinstance(own, (ast.Assign, ast.AnnAssign, ast.Expr, ast.Return)):
            return None  # `for line in read(fetch(path)):` does more than that
        if any(isinstance(a, ast.Lambda) for a in script.tree.ancestors(call)):
            return None
        above = turns_of(script, own, {*seen, scope}) if look is own else None
        if look is not own:
            found.places[look] = (call, False)
        elif above is not None:
            found.places.update(above.places)
            found.scopes |= above.scopes
        else:
            bare.append((own, call))
    if not looks and len(bare) == len(calls):
        return None
    found.places.update({own: (call, not looks) for own, call in bare})
    return found


def _looks_early(script: ScriptModel, function: ast.FunctionDef, fetching: ast.stmt) -> bool:
    """Whether `if os.path.exists(path): return` is before a statement, where what follows writes there."""
    around = {fetching, *script.tree.ancestors(fetching)}
    end = next((i for i, stmt in enumerate(function.body) if stmt in around), 0)
    for i, stmt in enumerate(function.body[:end]):
        if not isinstance(stmt, ast.If) or stmt.orelse or not isinstance(stmt.body[-1], ast.Return):
            continue
        if isinstance(stmt.test, ast.UnaryOp):
            continue
        if _parts(asked_paths(stmt.test)) & _parts(_stated(script, fetching, function.body[i + 1 :])):
            return True
    return False


def _stated(script: ScriptModel, fetching: ast.stmt, afterwards: Iterable[ast.stmt]) -> Iterator[str]:
    """The arguments of a statement that fetches, and of calls after a test for the file that make files of it."""
    for stmt in afterwards:
        for call in calls_in(stmt):
            last = dotted(call.func) or str(getattr(call.func, "attr", ""))
            if (
                script.tree.statement(call) is fetching
                or last.rpartition(".")[2] in _MAKING
                or makes_folder(call)
                or opens_for_writing(call, script.qualname(call.func)) is not None
            ):
                yield from (text_of(a) for a in [*call.args, *(kw.value for kw in call.keywords)])


def _parts(texts: Iterable[str]) -> set[str]:
    """The names and texts that paths are made of."""
    nodes = [n for text in texts for n in walk(ast.parse(text.lstrip("*"), mode="eval"))]
    names = {n.id for n in nodes if isinstance(n, ast.Name)} - {"os", "osp"}
    return names | {repr(n.value) for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}


def writes_answer(script: ScriptModel, call: ast.Call) -> bool:
    """Whether a call brings something from elsewhere that its function writes to a file by hand."""
    if script.qualname(call.func) not in _ANSWERING:
        return False
    return any(
        isinstance(n, ast.Call) and opens_for_writing(n, script.qualname(n.func)) is not None
        for n in script.scope_of(call).nodes
    )


def makes_files(script: ScriptModel, stmt: ast.stmt) -> bool:
    """Whether a statement makes a folder or opens a file to write it."""
    calls = calls_in(stmt)
    return any(
        (makes_folder(c) and folder_made(c) is not None)
        or opens_for_writing(c, script.qualname(c.func)) is not None
        for c in calls
    )
