"""Files and directories: made by the main process alone.

os.makedirs(path)                   ->  if accelerator.is_main_process:
                                            os.makedirs(path)
if not os.path.exists(path): ...    ->  if accelerator.is_main_process and not os.path.exists(path): ...
log = open(path, "w")               ->  log = open(path if accelerator.is_main_process else os.devnull, "w")

Files that samples of the batch give their names are written by each process, here and in a function that is given those
names, and the folder that is made for them there may exist already.
A folder that must not be there yet is made when every process has asked for it.
What is read, imported or asked for behind it is waited for: behind the `if` that asks whether it is there, where who
comes late finds it. Where such an `if` writes in one branch and reads in the other, one process runs it after the
other. A data set that does so for each sample is a finding where every process goes through all of its data.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator
from functools import partial

from accelify import edits as verbs
from accelify.analysis.files.array_files import dumps_to_file
from accelify.analysis.files.asked_paths import (
    asked_paths,
    bare_path,
    behind_questions,
    needed_at_once,
    reads_by_name,
)
from accelify.analysis.files.effect_sites import ASKING, LISTING, gives_text, makes_folder_again
from accelify.analysis.files.effects import READING
from accelify.analysis.files.folders import folder_made, folders_asked_for, makes_folder, path_text
from accelify.analysis.files.listed_beside import is_listed_beside
from accelify.analysis.files.listed_later import ListedLater
from accelify.analysis.files.only_written import is_only_written
from accelify.analysis.files.opened_paths import opened_path
from accelify.analysis.files.pictures import saves_picture
from accelify.analysis.files.read_later import ReadLater
from accelify.analysis.files.renderings import RENDERING, opens_window, renders
from accelify.analysis.files.sample_files import writes_own
from accelify.analysis.files.saved_objects import saved_to
from accelify.analysis.files.shell import run_for_all, writes_by_shell
from accelify.analysis.files.writing_calls import WRITING, WRITING_METHODS, opens_for_writing
from accelify.analysis.files.written_paths import paths_given
from accelify.analysis.modules.module_names import module_at
from accelify.analysis.scopes import Scope, handed_to
from accelify.analysis.statements.done import calls_done, closed_beside, statement_for
from accelify.analysis.statements.tolerated import is_tolerated, must_be_new
from accelify.analysis.syntax import call_argument, text_of, walk
from accelify.edits import Edit, Indent, InsertAfter, InsertBefore, Replace
from accelify.transforms.base import Change, Context, Rule
from accelify.transforms.waits import all_wait_next, made_one_by_one, read_in_functions

FILES = Rule("ACC203", "file-write", "Every process would write the same files.", effort=2)
SHOWN = Rule("ACC214", "shown-picture", "Every process would show the same picture.", effort=1)

_REARRANGING = ("os.rename", "os.replace", "os.remove", "os.unlink", "shutil.")
_LOG_FILES = frozenset({"logging.FileHandler", "logging.basicConfig", "logging.handlers.RotatingFileHandler"})
# Windows, and the places of notebooks that pictures are drawn in.
_SHOWING = frozenset("matplotlib.pyplot.show pylab.show cv2.imshow".split())
_FLUSHING = frozenset({"sys.stdout.flush", "sys.stderr.flush"})
_TERMINAL = _FLUSHING | ASKING | {"sys.stdout.write", "sys.stderr.write"}
_WRITING_ON_DISK = WRITING - _SHOWING - _TERMINAL
# How many calls are followed back from what writes a file to what names its folder.
_FARTHEST = 2
# What can be opened on nothing, so that the other processes write nowhere.
_STREAMS = frozenset("builtins.open io.open codecs.open gzip.open bz2.open lzma.open".split())


def transform(context: Context) -> Iterator[Change]:
    """Yield main-process guards for statements that write."""
    context.own_folders.update(_folders_of_own_files(context))
    yield from _in_turns(context)
    done: set[ast.stmt] = set()
    waited: set[ast.stmt] = set()
    later = ReadLater(context.script, context.effects.qualname)
    for stmt in _statements(context):
        if stmt in done or context.is_guarded(stmt):
            continue
        accelerator = context.accelerator(stmt)
        if accelerator is None:
            if not _only_flushes(context, stmt):
                yield from _too_early(context, stmt)
            continue
        run = context.run_of(stmt, lambda s: bool(_writes(context, s)) and not context.is_guarded(s))
        done.update(run)
        if all(_only_flushes(context, one) for one in run):
            continue
        edits, last = _guard(context, run, accelerator)
        first = run[0] if last is run[-1] else last
        if _read_before(context, run) and context.runs_everywhere(first):
            # Who is late must still find it.
            edits.append(InsertBefore(first, (f"{accelerator}.wait_for_everyone()",), order=-5))
        if _read_back(context, run) or _needed_at_once(context, run):
            # All of them go on to read what the main process is still writing.
            behind = behind_questions(context.tree, last)
            inside = behind is not last and _read_back(context, run, context.tree.end(behind))
            if inside or not context.runs_everywhere(behind):
                yield context.todo(
                    FILES, stmt, "every process would write this file, which is read again",
                    "the main process should write this, the others wait for it",
                )  # fmt: skip
                continue
            if behind not in waited and not all_wait_next(context, behind):
                edits.append(InsertAfter(behind, (f"{accelerator}.wait_for_everyone()",)))
            waited.add(behind)
        elif (around := _rearranged(context, run)) is not None and around not in waited:
            waited.add(around)
            edits.append(InsertAfter(around, (f"{accelerator}.wait_for_everyone()",)))
        elif (_makes_data(context, run) or _is_listed(context, run)) and context.runs_everywhere(
            behind := behind_questions(context.tree, last)
        ):
            edits.append(InsertAfter(behind, (f"{accelerator}.wait_for_everyone()",)))
        else:
            written = [path for one in run for path in _paths(context, one)]
            place = read_in_functions(context, later, written, last)
            place = place or made_one_by_one(context, run, written)
            if place is not None and place not in waited:
                waited.add(place)
                edits.append(InsertAfter(place, (f"{context.accelerator(place)}.wait_for_everyone()",)))
        context.guarded.update(run)
        command = any(_runs_command(context, call) for call in calls_done([stmt])[:1])
        shown = all(_shows(context, s) for s in run)
        does = "show this" if shown else "run this command" if command else "write this"
        yield context.change(SHOWN if shown else FILES, stmt, f"every process would {does}", edits)
    yield from _left_open(context)
    yield from _own_folders(context)
    yield from _in_values(context)


def _guard(context: Context, run: list[ast.stmt], accelerator: str) -> tuple[list[Edit], ast.stmt]:
    """The edits that leave statements to the main process, and the statement they end with then."""
    closing = [
        f"{context.tree.indent_unit()}{context.tree.segment(call)}"
        for call in closed_beside(run, lambda call: _is_writing(context, call))
    ]
    if not closing:
        edit, last = context.guard(run, accelerator)
        return [edit], last
    # What all have drawn before is closed by all.
    guard = Indent(run[0], run[-1], f"if {accelerator}.is_main_process:")
    return [guard, InsertAfter(run[-1], ("else:", *closing), order=-5)], run[-1]


def asked_first(context: Context) -> Iterator[Change]:
    """A folder that must not be there yet is made, and one that is there removed, when every process has asked.

    Asked before anything is guarded: no guard may be put around such a wait.
    """
    tree = context.tree
    done: set[ast.stmt] = set()
    for asked in folders_asked_for(context.script, context.plan.on_main_only):
        if asked.making in done:
            continue
        places = [asked.making, *(stmt for stmt in asked.removing if stmt not in done)]
        done.update(places)
        message = "the main process may make this folder before the others have asked whether it is there"
        edits: list[Edit] = []
        for place in places:
            accelerator = context.accelerator(place)
            if accelerator is None or not tree.own_line(place) or tree.is_elif(place):
                continue
            if context.runs_everywhere(place):
                context.waiting.add(place)
                edits.append(InsertBefore(place, (f"{accelerator}.wait_for_everyone()",), order=-5))
            elif place is not asked.making:
                removing = "the main process may remove this before the others have asked whether it is there"
                yield context.change(FILES, place, removing)
        yield context.change(FILES, asked.call, message, edits)


def _only_flushes(context: Context, stmt: ast.stmt) -> bool:
    """`sys.stdout.flush()`, by which a process that prints nothing writes nothing."""
    names = [context.script.qualname(call.func) for call in calls_done([stmt])]
    return bool(names) and _FLUSHING.issuperset(names)


def _too_early(context: Context, stmt: ast.stmt) -> Iterator[Change]:
    """What is written before there is an Accelerator: a folder may be there by then, all else is said."""
    scope, tree = context.script.scope_of(stmt), context.tree
    if scope.kind == "function" and not context.script.callers(scope):
        return
    if is_tolerated(tree, stmt) or context.plan.on_main_only(stmt):
        return
    reach = context.plan.reach
    early = scope.kind == "module" or (reach is not None and scope in (reach.root, reach.anchor.root))
    known = "yet" if early or context.at_hand.made_later(stmt) is not None else "here"
    message = f"every process would write this, and the Accelerator is not known {known}"
    written = [call for call in calls_done([stmt]) if _is_writing(context, call)]
    if not written or not all(makes_folder(call) for call in written):
        yield context.change(FILES, stmt, message)
        return
    edits = [_may_be_there(context, call) for call in written]
    whole = [edit for one in edits for edit in one] if all(edits) else []
    yield context.change(FILES, stmt, f"{message}: the folder may be there", whole)


def _may_be_there(context: Context, call: ast.Call) -> list[Edit]:
    """The edits after which a folder may be there already; none where they cannot be made."""
    tree = context.tree
    if must_be_new(tree, call):
        return []
    edits: list[Edit] = []
    plain = context.script.qualname(call.func) == "os.mkdir"
    with contextlib.suppress(verbs.EditError):
        edits.append(verbs.add_keyword(tree, call, "exist_ok=True"))
    if plain and isinstance(call.func, ast.Attribute):
        edits += [Replace(tree.end(call.func) - len("mkdir"), tree.end(call.func), "makedirs")]
    elif plain:
        edits = []
    return edits


def _own_folders(context: Context) -> Iterator[Change]:
    """Folders that samples give their names: each process makes those of its samples, and two may make the same."""
    for call in context.script.calls():
        stmt = statement_for(context.tree, call)
        if stmt is not None and makes_folder(call) and not makes_folder_again(call):
            shared = call in context.own_folders
            if shared or (_is_writing(context, call) and writes_own(context.plan, context.effects, call)):
                does = (
                    "writes the files of its own samples there"
                    if shared
                    else "makes the folders of its own samples"
                )
                message = f"each process {does}: another may have made {'it' if shared else 'one'} already"
                if edits := _may_be_there(context, call):
                    yield context.change(FILES, stmt, message, edits)


def _folders_of_own_files(context: Context) -> Iterator[ast.Call]:
    """The calls that make a folder into which processes write the files of their own samples: none waits for it."""
    script, tree = context.script, context.tree
    making = [call for call in script.calls() if makes_folder(call) and not makes_folder_again(call)]
    making = [call for call in making if statement_for(tree, call) is not None and _is_writing(context, call)]
    # Above the training all processes meet before the first file.
    making = [c for c in making if script.enclosing_loops(c) or script.scope_of(c).kind == "function"]
    if not making:
        return
    parts: set[tuple[Scope, str]] = set()
    for call in script.calls():
        name = script.qualname(call.func)
        writes = (
            _is_writing(context, call) or name == "torch.save" or opens_for_writing(call, name) is not None
        )
        if writes and not makes_folder(call) and writes_own(context.plan, context.effects, call):
            paths = paths_given(context.effects, call) or []
            parts.update(part for path in paths for part in _parts_of_path(context, path))
    for call in making:
        folder, scope = folder_made(call), script.scope_of(call)
        named = folder is not None and (scope, text_of(folder)) in parts
        if named and not context.plan.on_main_only(call) and _may_be_there(context, call):
            yield call


def _parts_of_path(context: Context, path: ast.expr, far: int = 0) -> Iterator[tuple[Scope, str]]:
    """What a path is put together of, as it is written in its function and in those that call it."""
    script, scope = context.script, context.script.scope_of(path)
    parts = [node for node in walk(path) if isinstance(node, ast.expr)]
    names = {node.id for node in parts if isinstance(node, ast.Name)}
    for stmt in (s for name in sorted(names) for s in context.tree.assigns(name)):
        if script.scope_of(stmt) is scope:
            parts += [node for node in walk(stmt.value) if isinstance(node, ast.expr)]
    yield from ((scope, text_of(part)) for part in parts)
    names = {node.id for node in parts if isinstance(node, ast.Name)}
    for call in script.callers(scope) if scope.kind == "function" and far < _FARTHEST else ():
        for argument, name in handed_to(call, scope):
            if name in names:
                yield from _parts_of_path(context, argument, far + 1)


def _in_values(context: Context) -> Iterator[Change]:
    """What is written where its call's value is used: `made = os.path.isdir(path) or os.makedirs(path)`."""
    for call in context.script.calls():
        name = context.script.qualname(call.func)
        if name not in _WRITING_ON_DISK and not makes_folder(call):
            continue
        if statement_for(context.tree, call) is not None or not _is_writing(context, call):
            continue
        around = context.tree.ancestors(call)
        if context.is_guarded(call) or any(isinstance(a, ast.Lambda) for a in around):
            continue
        if is_tolerated(context.tree, call):
            continue
        if not context.plan.on_main_only(call) and not writes_own(context.plan, context.effects, call):
            edits = _may_be_there(context, call) if makes_folder(call) else []
            yield context.change(FILES, call, "every process would write this: its result is used", edits)


def _needed_at_once(context: Context, run: list[ast.stmt]) -> bool:
    """Whether what some statements write or make is asked for, imported or read by its name behind them."""
    paths = {text_of(path) for stmt in run for path in _paths(context, stmt)}
    made = [call for call in calls_done(run) if makes_folder(call)]
    folders = {text_of(call.args[0]) for call in made if call.args}
    folders |= {text_of(c.func.value) for c in made if isinstance(c.func, ast.Attribute) and not c.args}
    if not paths and not folders:
        return False
    folder = [path for call in made if (path := folder_made(call)) is not None]
    later = ListedLater(context.script, context.effects.qualname, context.everywhere)
    if folder and later.is_listed(run[-1], folder):
        return True
    scope = context.script.scope_of(run[-1])
    return needed_at_once(context.script, scope, context.tree.end(run[-1]), paths, folders)


def _in_turns(context: Context) -> Iterator[Change]:
    """`if not os.path.exists(path): write it` with a read beside it: the main process writes, the others find it."""
    tree = context.tree
    for stmt in _statements(context):
        block = behind_questions(tree, stmt)
        if block is stmt or context.is_guarded(stmt) or (accelerator := context.accelerator(stmt)) is None:
            continue
        if not _read_back(context, [stmt], tree.end(block)) or not _can_take_turns(context, stmt, block):
            continue
        context.taking_turns.add(block)
        context.guarded.update(s for s in walk(block) if isinstance(s, ast.stmt) and _opens_in(context, s))
        guard = Indent(block, block, f"with {accelerator}.main_process_first():")
        yield context.change(FILES, stmt, "every process would write this, which is read beside it", [guard])


def _can_take_turns(context: Context, stmt: ast.stmt, block: ast.stmt) -> bool:
    """Whether processes can run an `if` one after the other that asks for what is written or made in it."""
    inside = walk(block)
    calls = [n for n in inside if isinstance(n, ast.Call)]
    made = {text_of(path) for path in _paths(context, stmt)}
    made |= {text_of(call.args[0]) for call in calls if makes_folder(call) and call.args}
    asked = asked_paths(block.test) if isinstance(block, ast.If) else set()
    return (
        bool(asked & made)
        and context.runs_everywhere(block)
        and not any(context.script.qualname(call.func) == "torch.save" for call in calls)
        and not context.needs_all(block)
        and not any(n in context.guarded for n in inside)
    )


def _opens_in(context: Context, stmt: ast.stmt) -> bool:
    return not isinstance(stmt, ast.If) and (
        _writes(context, stmt) or any(True for _ in _paths(context, stmt))
    )


def _read_back(context: Context, written: list[ast.stmt], until: int | None = None) -> bool:
    """Whether a file that some statements write is read behind them, here or in a function that is told where it is."""
    tree, script = context.tree, context.script
    paths = {tree.segment(path) for stmt in written for path in _paths(context, stmt)}
    calls = calls_done(written)
    # What a command writes cannot be seen, and in a new folder every process may open its log.
    anything = any(_runs_command(context, call) for call in calls)
    folders = {tree.segment(call.args[0]) for call in calls if makes_folder(call) and call.args}
    folder = any(makes_folder(call) for call in calls)
    if not paths and not anything and not folder:
        return False
    end, scope = tree.end(written[-1]), script.scope_of(written[-1])
    for node in scope.nodes:
        if not isinstance(node, ast.Call) or tree.start(node) < end or tree.in_fstring(node):
            continue
        if until is not None and tree.start(node) > until:
            continue
        given = [tree.segment(a) for a in [*node.args, *[kw.value for kw in node.keywords]]]
        name = script.qualname(node.func) or ""
        if folder and name in _LOG_FILES:
            return True
        if name.startswith(LISTING) and folders.intersection(given[:1]):
            return True
        if anything and (
            name.startswith(READING) or any(context.effects.of(s).reads for s in script.callees(node))
        ):
            return True
        if name.startswith(READING) and opens_for_writing(node, name) is None:
            if any(path in text for path in paths for text in given):
                return True
        callees = script.callees(node)
        if not callees and reads_by_name(name) and opens_for_writing(node, name) is None:
            if paths & {tree.segment(bare_path(a)) for a in node.args}:
                return True
        if any(context.effects.of(callee).reads for callee in callees):
            if any(path == text or path.startswith(f"{text}.") for path in paths for text in given):
                return True
    return False


def _read_before(context: Context, run: list[ast.stmt]) -> bool:
    """Whether something is removed that all processes have just read."""
    tree, script = context.tree, context.script
    removed = {
        tree.segment(call.args[0])
        for call in calls_done(run)
        if call.args and (script.qualname(call.func) or "").startswith(_REARRANGING)
    }
    scope, start = script.scope_of(run[0]), tree.start(run[0])
    for node in scope.nodes if removed else ():
        if not isinstance(node, ast.Call) or tree.start(node) > start or tree.in_fstring(node):
            continue
        name = script.qualname(node.func) or ""
        reads = name.startswith(READING) and opens_for_writing(node, name) is None
        reads = reads or any(context.effects.of(s).reads for s in script.callees(node))
        if reads and any(tree.segment(a) in removed for a in [*node.args, *[k.value for k in node.keywords]]):
            return True
    return False


def _rearranged(context: Context, run: list[ast.stmt]) -> ast.stmt | None:
    """The statement behind which all have to wait where files are moved or removed before the training: what goes
    through the folders next must not find them half done."""
    tree, script = context.tree, context.script
    if not any((script.qualname(call.func) or "").startswith(_REARRANGING) for call in calls_done(run)):
        return None
    around = run[-1]
    for ancestor in tree.ancestors(run[-1]):
        if not isinstance(ancestor, (ast.For, ast.While, ast.If)) or ancestor is script.main_guard:
            break
        around = ancestor
    block = tree.block_of(around)[2]
    trains_later = any(script.trains(s) for s in block[block.index(around) + 1 :])
    return around if trains_later and not script.trains(around) and context.runs_everywhere(around) else None


def _is_listed(context: Context, run: list[ast.stmt]) -> bool:
    paths = [path for stmt in run for path in _paths(context, stmt)]
    return is_listed_beside(context.script, run[-1], paths)


def _makes_data(context: Context, run: list[ast.stmt]) -> bool:
    """Whether a command is run before the training, which may need what it leaves."""
    tree, script = context.tree, context.script
    if not any(_runs_command(context, call) for call in calls_done(run)) or script.enclosing_loops(run[0]):
        return False
    end = tree.end(run[-1])
    body = script.scope_of(run[0]).nodes
    return any(isinstance(s, ast.stmt) and tree.start(s) > end and script.trains(s) for s in body)


def _paths(context: Context, stmt: ast.stmt) -> Iterator[ast.expr]:
    for call in walk(stmt):
        if not isinstance(call, ast.Call):
            continue
        name = context.script.qualname(call.func) or ""
        path = opens_for_writing(call, name)
        if path is None and call.args and name.startswith(("numpy.save", "scipy.io.savemat")):
            path = call.args[0]
        attribute = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if path is None and not name and dumps_to_file(call, partial(path_text, context.script)):
            path = call.args[0]
        if path is None and call.args and attribute.startswith("to_") and attribute in WRITING_METHODS:
            path = call.args[0]
        path = path or saved_to(context.script, call)
        if path is not None:
            yield path


def _left_open(context: Context) -> Iterator[Change]:
    """Files that stay open, where the statement cannot go under a guard: the other processes write to nothing."""
    for call in sorted(context.script.calls(), key=context.tree.start):
        name = context.script.qualname(call.func)
        stmt = context.tree.statement(call)
        if isinstance(stmt, ast.Expr) and call in calls_done([stmt]) and _is_writing(context, call):
            reason = _needs_all(context, stmt)
            if reason and not context.is_guarded(stmt):
                mark = "compute this on every process, and let the main process write it"
                yield context.todo(FILES, stmt, f"every process would write this: {reason}", mark)
            continue
        if name in ASKING and not context.is_guarded(call) and not context.plan.on_main_only(call):
            mark = "ask on the main process, and hand the answer to the others"
            yield context.todo(FILES, call, "every process would ask this, and one of them is answered", mark)
            continue
        opened = opened_path(context.script, call)
        path = opened or opens_for_writing(call, name)
        if path is None or context.is_guarded(call) or context.is_claimed(call):
            continue
        if (
            context.plan.on_main_only(call)
            or context.effects.into_memory(call)
            or writes_own(context.plan, context.effects, call)
        ):
            continue
        accelerator = context.accelerator(call)
        mode = call_argument(call, 1 if opened is None else 0, "mode")
        plain = (name in _STREAMS or opened is not None) and isinstance(mode, ast.Constant)
        plain = plain and (
            "+" not in str(getattr(mode, "value", "")) or is_only_written(context.script, call)
        )
        again = _read_back(context, [stmt])
        if accelerator is None:
            yield context.change(FILES, call, "every process would write this file")
        elif not plain or context.tree.in_fstring(call):
            message = "every process would write this file, and what is made here is used by all of them"
            yield context.todo(FILES, stmt, message, "let one process write this file")
        elif again and not (isinstance(stmt, ast.With) and context.runs_everywhere(stmt)):
            message = "every process would write this file, which is read again"
            yield context.todo(
                FILES, stmt, message, "let one process write this file, and the others wait for it"
            )
        else:
            edits = _on_nothing(context, path, accelerator, None if opened is None else call)
            if again:
                edits.append(InsertAfter(stmt, (f"{accelerator}.wait_for_everyone()",)))
            yield context.change(FILES, call, "every process would write this file", edits)


def _on_nothing(context: Context, path: ast.expr, accelerator: str, method: ast.Call | None) -> list[Edit]:
    """Edits that open a file on the main process alone; `method` is the call where the path itself opens it."""
    tree = context.tree
    text = tree.segment(path)
    if isinstance(path, (ast.IfExp, ast.Lambda, ast.NamedExpr)):
        text = f"({text})"
    os, line = module_at(context.script, path, "os")
    text = f"{text} if {accelerator}.is_main_process else {os}.devnull"
    edits: list[Edit] = [verbs.replace(tree, path, text)]
    if method is not None:
        first = min(tree.start(given) for given in [*method.args, *method.keywords])
        edits = [Replace(tree.start(method), first, f"open({text}, ")]
    if line is not None:
        edits.append(context.import_for(path, line))
    return edits


def _statements(context: Context) -> Iterator[ast.stmt]:
    found = [s for s in [*context.tree.nodes(ast.Expr), *context.tree.nodes(ast.With)] if _writes(context, s)]
    yield from sorted(found, key=context.tree.start)


def _writes(context: Context, stmt: ast.stmt) -> bool:
    if isinstance(stmt, ast.Expr):
        written = [call for call in calls_done([stmt]) if _is_writing(context, call)]
        return (
            bool(written)
            and not _needs_all(context, stmt)
            and not context.own_folders.issuperset(written)
            and not any(writes_own(context.plan, context.effects, call) for call in written)
        )
    if isinstance(stmt, ast.With):
        return any(
            _opens_for_writing(context, item.context_expr)
            and not writes_own(context.plan, context.effects, item.context_expr)  # type: ignore[arg-type]
            for item in stmt.items
        ) and _keeps_to_itself(context, stmt)
    return False


def _shows(context: Context, stmt: ast.stmt) -> bool:
    """Whether a statement shows a picture and writes nothing."""
    calls = calls_done([stmt])
    return bool(calls) and all(
        context.script.qualname(call.func) in _SHOWING or _opens_window(context, call) for call in calls
    )


def _opens_window(context: Context, call: ast.Call) -> bool:
    func = call.func
    if not isinstance(func, ast.Attribute) or func.attr != "render":
        return False
    return opens_window(call, context.tree.parent(call), context.script.values(func.value))


def _needs_all(context: Context, stmt: ast.Expr) -> str:
    """Why every process has to come to a call that writes; "" where one may do it alone."""
    kept = context.effects.kept_by(stmt)
    return context.needs_all(stmt) or (f"it sets `{kept}`, which is read elsewhere" if kept else "")


def _is_writing(context: Context, call: ast.Call) -> bool:
    if not _may_write(context, call):
        return False
    return not makes_folder_again(call) and not context.effects.into_memory(call)


def _may_write(context: Context, call: ast.Call) -> bool:
    """Whether a call writes to what it is told, wherever that lies."""
    name = context.script.qualname(call.func)
    if gives_text(call, name or str(getattr(call.func, "attr", ""))):
        return False
    if name in WRITING and any(_takes_its_name(context, s) for s in context.script.callees(call)):
        return False  # what the function writes stands in it
    if name in WRITING or _runs_command(context, call) or _opened_and_left(context, call):
        return True
    if not isinstance(call.func, ast.Attribute) or context.script.callees(call):
        return False
    if call.func.attr in WRITING_METHODS:
        return True
    if call.func.attr in RENDERING and renders(context.script.values(call.func.value)):
        return True
    if _opens_window(context, call):
        return True
    if name is None and dumps_to_file(call, partial(path_text, context.script)):
        return True
    if saved_to(context.script, call) is not None:
        return True
    return saves_picture(context.script, context.locations[1].bindings, call)


def _takes_its_name(context: Context, function: Scope) -> bool:
    """Whether a function of the script is bound to its name whatever happens: one that was imported before is gone."""
    module = function.parent
    if module is None or module.kind != "module" or function not in context.script.functions():
        return False
    body = module.node.body
    name = getattr(function.node, "name", "")
    imports = [
        index
        for index, stmt in enumerate(body)
        if isinstance(stmt, (ast.Import, ast.ImportFrom))
        and any((alias.asname or alias.name) == name for alias in stmt.names)
    ]
    return function.node in body and max(imports, default=-1) < body.index(function.node)


def _runs_command(context: Context, call: ast.Call) -> bool:
    """Whether a call hands a command to the shell that one process runs for all, or one that writes."""
    name, scope = context.script.qualname(call.func), context.script.scope_of(call)
    if writes_by_shell(call, name, scope):
        return True
    # Where there is no Accelerator yet, what is not known to write is not spoken of. (Asking for it hands it on to the
    # function: only for what needs it.)
    return run_for_all(call, name, scope) and context.accelerator(call) is not None


def _opened_and_left(context: Context, call: ast.Call) -> bool:
    """`open(path, "w").write(text)`."""
    return (
        isinstance(call.func, ast.Attribute)
        and call.func.attr in ("write", "writelines", "close")
        and _opens_for_writing(context, call.func.value)
    )


def _opens_for_writing(context: Context, node: ast.expr) -> bool:
    if not isinstance(node, ast.Call):
        return False
    if opens_for_writing(node, context.script.qualname(node.func)) is not None:
        return True
    return opened_path(context.script, node) is not None


def _keeps_to_itself(context: Context, stmt: ast.With) -> bool:
    """Whether nothing inside is needed by the other processes: no training, no gathering, no name used afterwards."""
    if context.needs_all(stmt) or context.changes_outside(stmt) or context.effects.kept_by(stmt):
        return False
    stored = {
        n.id for s in stmt.body for n in walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    if not stored:
        return True
    end = context.tree.end(stmt)
    scope = context.script.scope_of(stmt)
    return not any(
        n.id in stored
        and isinstance(n.ctx, ast.Load)
        and context.tree.start(n) > end
        and context.script.scope_of(n).resolve(n.id) is scope.resolve(n.id)
        and not _bound_again(context, n)
        for n in context.tree.nodes(ast.Name)
    )


def _bound_again(context: Context, read: ast.Name) -> bool:
    """Whether a `with` or `for` around a read gives the name a value of its own first."""
    return any(
        isinstance(ancestor, (ast.With, ast.For))
        and any(
            isinstance(n, ast.Name)
            and n.id == read.id
            and isinstance(n.ctx, ast.Store)
            and context.tree.start(n) < context.tree.start(read)
            for n in walk(ancestor)
        )
        for ancestor in context.tree.ancestors(read)
    )
