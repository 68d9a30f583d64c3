"""Downloads: one process fetches, the others wait and find the files there.

dataset = MNIST(root, download=True)    ->  with accelerator.main_process_first():
                                                dataset = MNIST(root, download=True)
molecules = Molecules(root)             ->  with accelerator.main_process_first():    (an InMemoryDataset that
                                                molecules = Molecules(root)           defines process())
urlretrieve(url, "data.zip")            ->  if accelerator.is_main_process:
                                                urlretrieve(url, "data.zip")
                                            accelerator.wait_for_everyone()
if not os.path.exists(path):            ->  with accelerator.main_process_first():
    fetch(path)  # a function               if not os.path.exists(path):
                                                fetch(path)
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import NamedTuple

from accelify.analysis.data.fetch_options import asks_to_download
from accelify.analysis.data.fetches import is_download, makes_ready
from accelify.analysis.files.asked_paths import after_tests, asked_paths
from accelify.analysis.files.effect_sites import DOWNLOADS
from accelify.analysis.files.folders import folder_made, makes_folder
from accelify.analysis.files.renderings import fetches_repository
from accelify.analysis.files.writing_calls import opens_for_writing
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import call_keyword, calls_in, dotted, text_of, walk
from accelify.transforms.base import Change, Context, Rule
from accelify.writer.edits import Edit, InsertAfter, PutUnder

DOWNLOAD = Rule(
    "ACC205",
    "Every process would download the same files into the same place.",
    effort=3,
    done="let the main process download first",
)
_OPENING = frozenset(
    {"requests.get", "urllib.request.urlopen", "tarfile.open", "zipfile.ZipFile", "tarfile.TarFile.open"}
)


# What fetches or unpacks even if the files exist already: the others must neither do it again nor read meanwhile.
_EVERY_TIME = frozenset(
    """urllib.request.urlretrieve wget.download gdown.download torch.hub.download_url_to_file
    shutil.unpack_archive""".split()
)
_UNPACKING = frozenset({"extractall", "extract", "copyfileobj"})
_LOOKING = frozenset("exists isfile isdir is_file is_dir islink listdir".split())
# Calls through which functions are followed to a test for the file.
_FARTHEST = 3
# Calls whose result a script writes to a file itself.
_ANSWERING = frozenset({"requests.get", "urllib.request.urlopen"})
_MAKING = frozenset("extractall extract unpack_archive copyfileobj rename move replace copy copyfile".split())


# Functions that fetch what is missing, and where processes can run them one after the other.
#
# def fetch(path):                       (the function or its callers test for the file: a process that is late finds a
#     if os.path.exists(path):            file that the main process has begun, and reaches no wait)
#         return path
#     urlretrieve(url, path)


@dataclass
class _Turns:
    """How processes reach what some functions fetch.

    `places` are the statements to be run one after the other, each with the call in it and whether it fetches each
    time, whatever is there. `scopes` are the functions that are run so.
    """

    places: dict[ast.stmt, tuple[ast.Call, bool]] = field(default_factory=dict)
    scopes: set[Scope] = field(default_factory=set)


def _turns_of(script: ScriptModel, fetching: ast.stmt, seen: Set[Scope] = frozenset()) -> _Turns | None:
    """Where processes can take turns for a statement of a function that fetches; None where nobody looks before it."""
    scope = script.scope_of(fetching)
    calls = script.callers(scope) if scope.kind == "function" and not scope.is_method else []
    if not calls or scope in seen or len(seen) == _FARTHEST or not isinstance(scope.node, ast.FunctionDef):
        return None
    found = _Turns(scopes={scope})
    looks = _looks_early(script, scope.node, fetching)
    bare: list[tuple[ast.stmt, ast.Call]] = []
    for call in calls:
        own = script.tree.statement(call)
        look = after_tests(script.tree, own)
        if look is own and not isinstance(own, (ast.Assign, ast.AnnAssign, ast.Expr, ast.Return)):
            return None  # `for line in read(fetch(path)):` does more than that
        if any(isinstance(a, ast.Lambda) for a in script.tree.ancestors(call)):
            return None
        above = _turns_of(script, own, {*seen, scope}) if look is own else None
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


def _writes_answer(script: ScriptModel, call: ast.Call) -> bool:
    """Whether a call brings something from elsewhere that its function writes to a file by hand."""
    if script.qualname(call.func) not in _ANSWERING:
        return False
    return any(
        isinstance(n, ast.Call) and opens_for_writing(n, script.qualname(n.func)) is not None
        for n in script.scope_of(call).nodes
    )


def _makes_files(script: ScriptModel, stmt: ast.stmt) -> bool:
    """Whether a statement makes a folder or opens a file to write it."""
    calls = calls_in(stmt)
    return any(
        (makes_folder(c) and folder_made(c) is not None)
        or opens_for_writing(c, script.qualname(c.func)) is not None
        for c in calls
    )


class _Fetch(NamedTuple):
    """A statement that downloads: the call, whether it does so each time, and whether its result is used."""

    call: ast.Call
    every_time: bool = False
    used: bool = True
    does: str = "download"


def transform(context: Context) -> Iterator[Change]:
    """Yield guards for statements that download, neighbours under one."""
    tree = context.tree
    wanted = _wanted(context)
    done: set[ast.AST] = set()
    for stmt, fetch in tree.in_order(wanted.items(), itemgetter(0)):
        if stmt in done or any(a in done for a in tree.ancestors(stmt)):
            continue
        accelerator = context.accelerator(stmt)
        if accelerator is None:
            continue
        alone = fetch.every_time and not fetch.used
        run = context.run_of(stmt, partial(_is_alike, wanted, fetch))
        done.update(run)
        guard = f"if {accelerator}.is_main_process:" if alone else f"with {accelerator}.main_process_first():"
        edits: list[Edit] = [PutUnder(stmt, run[-1], guard)]
        if fetch.every_time and not isinstance(stmt, ast.Return):
            edits.append(InsertAfter(run[-1], (f"{accelerator}.wait_for_everyone()",)))
        (context.guarded if alone else context.taking_turns).update(run)
        message = f"every process would {fetch.does} this at the same time"
        yield context.change(DOWNLOAD, fetch.call, message, edits)


def _is_alike(wanted: dict[ast.stmt, _Fetch], fetch: _Fetch, stmt: ast.stmt) -> bool:
    """Whether a statement can be put under the guard of another one that fetches."""
    own = wanted.get(stmt)
    return own is not None and (own.every_time, own.used) == (fetch.every_time, fetch.used)


def _wanted(context: Context) -> dict[ast.stmt, _Fetch]:
    """What is to be guarded: the statements that download, or the tests around them that look what is there."""
    tree, script = context.tree, context.script
    wanted: dict[ast.stmt, _Fetch] = {}
    ready = any(module.tree.mentions("torch_geometric") for module in script.program.modules.values())
    for call in script.calls():
        name = script.qualname(call.func)
        if ready and makes_ready(script, call):
            made = tree.statement(call)
            if isinstance(made, ast.Assign) and _can_take_turns(context, made):
                wanted.setdefault(made, _Fetch(call, does="process"))
                continue
        asked = asks_to_download(tree, script.scope_of, call)
        if not asked and not is_download(call, name) and not _fetches_elsewhere(context, call):
            continue
        stmt: ast.stmt = tree.statement(call)
        if isinstance(stmt, (ast.Assign, ast.Expr, ast.AnnAssign, ast.Return)) and not context.is_claimed(
            stmt
        ):
            stated = asked or call_keyword(call, "download") is not None or fetches_repository(call, name)
            if stated or isinstance(stmt, (ast.Assign, ast.Expr)):
                unpacks = isinstance(call.func, ast.Attribute) and call.func.attr in _UNPACKING
                fetch = _Fetch(call, name in _EVERY_TIME or unpacks, not isinstance(stmt, ast.Expr))
                _note(context, wanted, stmt, fetch)
    for block in tree.nodes(ast.With):
        call = block.items[0].context_expr
        if not isinstance(call, ast.Call):
            continue
        name = script.qualname(call.func)
        if name in _OPENING and opens_for_writing(call, name) is None:
            nodes = [n for s in block.body for n in walk(s)]
            unpacks = any(isinstance(n, ast.Attribute) and n.attr in _UNPACKING for n in nodes)
            used = any(isinstance(n, (ast.Assign, ast.AugAssign, ast.Return)) for n in nodes)
            _note(context, wanted, block, _Fetch(call, unpacks, used))
    answers = [tree.statement(call) for call in script.calls() if _writes_answer(script, call)]
    for stmt in answers:
        afterwards = after_tests(tree, stmt)
        if afterwards is not stmt and _can_take_turns(context, afterwards):
            wanted.setdefault(afterwards, _Fetch(calls_in(stmt)[0]))
            _leave(context, [afterwards])
    _by_functions(context, wanted, answers)
    return wanted


def _by_functions(context: Context, wanted: dict[ast.stmt, _Fetch], answers: list[ast.stmt]) -> None:
    """Put the places where processes run whole functions that look what is there in the place of what these fetch."""
    script = context.script
    found: list[_Turns] = []
    for stmt in [*wanted, *answers]:
        turns = _turns_of(script, stmt) if script.scope_of(stmt).kind == "function" else None
        inside = [scope.node for scope in turns.scopes] if turns is not None else []
        if turns is not None and all(
            not (context.meets_others(node) or _saves(context, node)) for node in inside
        ):
            if all(_can_take_turns(context, place) for place in turns.places):
                found.append(turns)
    # What fetches each time would do so in every turn.
    each = {
        script.scope_of(s) for s, fetch in wanted.items() if fetch.every_time and not _turns_of(script, s)
    }
    found = [turns for turns in found if not turns.scopes & each]
    scopes = {scope for turns in found for scope in turns.scopes}
    for stmt in [stmt for stmt in wanted if script.scope_of(stmt) in scopes]:
        del wanted[stmt]
    for turns in found:
        for place, (call, every_time) in turns.places.items():
            if script.scope_of(place) not in scopes:
                wanted.setdefault(place, _Fetch(call, every_time, not isinstance(place, ast.Expr)))
                _leave(context, [place])
        for scope in turns.scopes:
            if isinstance(scope.node, ast.FunctionDef):
                _leave(context, scope.node.body)
                context.taking_turns.update(scope.node.body)


def _can_take_turns(context: Context, stmt: ast.stmt) -> bool:
    """Whether processes can run a statement one after the other."""
    return (
        context.accelerator(stmt) is not None
        and not context.is_claimed(stmt)
        and not context.is_guarded(stmt)
        and not context.tree.is_elif(stmt)
        and not context.script.trains_around(stmt)
        and not context.meets_others(stmt)
        and not _saves(context, stmt)
        and context.runs_everywhere(stmt)
    )


def _leave(context: Context, stmts: list[ast.stmt]) -> None:
    """Leave the files alone that only the first process makes."""
    inside = (s for stmt in stmts for s in walk(stmt) if isinstance(s, ast.stmt))
    plain = (s for s in inside if not isinstance(s, (ast.If, ast.For, ast.While, ast.Try, ast.FunctionDef)))
    context.guarded.update(s for s in plain if _makes_files(context.script, s))


def _note(context: Context, wanted: dict[ast.stmt, _Fetch], stmt: ast.stmt, fetch: _Fetch) -> None:
    """Take a statement, or the outermost test around it that looks whether it is needed: who comes late must not miss
    the others in there."""
    for ancestor in context.tree.ancestors(stmt):
        if isinstance(ancestor, (ast.Try, ast.ExceptHandler)):
            if isinstance(ancestor, ast.Try) and _only_calls(ancestor) and not fetch.used:
                # Where it fails on the main process, nobody must be left waiting in there.
                stmt = ancestor
            continue
        if not isinstance(ancestor, ast.If) or ancestor is context.script.main_guard:
            break
        if _saves(context, ancestor):
            break  # saving waits for the others, who have all come in here by then
        if _looks_first(ancestor.test) and not context.meets_others(ancestor):
            stmt, fetch = ancestor, _Fetch(fetch.call)
    if context.tree.is_elif(stmt):
        return
    wanted.setdefault(stmt, fetch)


def _saves(context: Context, block: ast.AST) -> bool:
    calls = calls_in(block)
    return any(context.script.qualname(call.func) == "torch.save" for call in calls)


def _only_calls(block: ast.Try) -> bool:
    handled = [s for handler in block.handlers for s in handler.body]
    return all(
        isinstance(s, (ast.Expr, ast.Pass)) for s in [*block.body, *handled, *block.orelse, *block.finalbody]
    )


def _looks_first(test: ast.expr) -> bool:
    names = {n.attr if isinstance(n, ast.Attribute) else getattr(n, "id", "") for n in walk(test)}
    return bool(names & _LOOKING)


def _fetches_elsewhere(context: Context, call: ast.Call) -> bool:
    """Whether a call runs a function of another module that downloads, and nothing for which processes have to meet."""
    script = context.script
    if not script.callees(call) or not any(
        script.interpreter.module_of(callee) not in script.modules
        and any(site.kind == DOWNLOADS for site in context.effects.sites_of(call, callee))
        for callee in script.callees(call)
    ):
        return False
    stmt = context.tree.statement(call)
    return not (context.is_guarded(stmt) or script.trains_around(stmt) or context.meets_others(stmt))
