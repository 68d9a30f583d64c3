"""Files and directories: made by the main process only.

os.makedirs(path)                   ->  if accelerator.is_main_process:
                                            os.makedirs(path)
if not os.path.exists(path): ...    ->  if accelerator.is_main_process and not os.path.exists(path): ...
log = open(path, "w")               ->  log = open(path if accelerator.is_main_process else os.devnull, "w")

Files that are named after samples of the batch are written by each process, here and in a function that gets those
names, and the folder that is made for them there may exist already.
A folder that must not exist yet is made after every process has tested for it.
Processes wait before what was written is read, imported or asked for: after the `if` that asks whether it exists, where
a process that comes late finds it. Where such an `if` writes in one branch and reads in the other, the processes run it
in turn. A data set that does so for each sample is a finding where every process reads all of its data.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator

from accelify.analysis.files.asked_paths import (
    after_tests,
    asked_paths,
)
from accelify.analysis.files.effect_sites import ASKING, makes_folder_again
from accelify.analysis.files.folders import folder_made, folders_asked_for, makes_folder
from accelify.analysis.files.opened_paths import opened_path
from accelify.analysis.files.read_later import ReadLater
from accelify.analysis.files.sample_files import writes_own
from accelify.analysis.files.writing_calls import WRITING, opens_for_writing
from accelify.analysis.files.written_paths import paths_given
from accelify.analysis.modules.module_names import module_at
from accelify.analysis.scopes import Scope, handed_to
from accelify.analysis.statements.statement_calls import calls_done, closed_beside, statement_for
from accelify.analysis.statements.tolerated_errors import is_tolerated, must_be_new
from accelify.analysis.syntax import Tree, call_argument, dotted, text_of, walk
from accelify.transforms.agreed_names import agreement_import
from accelify.transforms.base import Change, Context, Rule
from accelify.transforms.read_around import (
    is_listed,
    makes_data,
    needs_at_once,
    read_back,
    read_before,
    rearranged,
)
from accelify.transforms.waits import all_wait_next, made_one_by_one, read_in_functions
from accelify.transforms.writing_statements import (
    SHOWING,
    is_writing,
    needs_all,
    opens_in,
    runs_command,
    shows,
    writes,
    writing_statements,
    written_paths,
)
from accelify.writer import edits as verbs
from accelify.writer.edits import Edit, InsertAfter, InsertBefore, PutUnder

FILES = Rule(
    "ACC203", "Every process would write the same files.", done="left writing files to the main process"
)
SHOWN = Rule(
    "ACC214",
    "Every process would show the same picture.",
    effort=1,
    done="left showing pictures to the main process",
)

_FLUSHING = frozenset({"sys.stdout.flush", "sys.stderr.flush"})
_TERMINAL = _FLUSHING | ASKING | {"sys.stdout.write", "sys.stderr.write"}
_WRITING_ON_DISK = WRITING - SHOWING - _TERMINAL
# How many calls are followed back from what writes a file to what names its folder.
_FARTHEST = 2
# What can be opened on os.devnull, so that the other processes write nothing.
_STREAMS = frozenset("builtins.open io.open codecs.open gzip.open bz2.open lzma.open".split())


def transform(context: Context) -> Iterator[Change]:
    """Yield main-process guards for statements that write."""
    context.own_folders.update(_folders_of_own_files(context))
    yield from _in_turns(context)
    done: set[ast.stmt] = set()
    waited: set[ast.stmt] = set()
    later = ReadLater(context.script, context.effects.qualname)
    for stmt in writing_statements(context):
        if stmt in done or context.is_guarded(stmt):
            continue
        accelerator = context.accelerator(stmt)
        if accelerator is None:
            yield from _too_early(context, stmt)
            continue
        run = context.run_of(stmt, lambda s: bool(writes(context, s)) and not context.is_guarded(s))
        done.update(run)
        if all(_only_flushes(context, one) for one in run):
            continue
        edits, last = _guard(context, run, accelerator)
        first = run[0] if last is run[-1] else last
        if read_before(context, run) and context.runs_everywhere(first):
            # Who is late must still find it.
            edits.append(InsertBefore(first, (f"{accelerator}.wait_for_everyone()",), order=-5))
        if read_back(context, run) or needs_at_once(context, run):
            # All of them go on to read what the main process is still writing.
            afterwards = after_tests(context.tree, last)
            inside = afterwards is not last and read_back(context, run, afterwards)
            if inside or not context.runs_everywhere(afterwards):
                yield context.todo(
                    FILES, stmt, "every process would write this file, which is read again",
                    "the main process should write this, the others wait for it",
                )  # fmt: skip
                continue
            if afterwards not in waited and not all_wait_next(context, afterwards):
                edits.append(InsertAfter(afterwards, (f"{accelerator}.wait_for_everyone()",)))
            waited.add(afterwards)
        elif (around := rearranged(context, run)) is not None and around not in waited:
            waited.add(around)
            edits.append(InsertAfter(around, (f"{accelerator}.wait_for_everyone()",)))
        elif (makes_data(context, run) or is_listed(context, run)) and context.runs_everywhere(
            afterwards := after_tests(context.tree, last)
        ):
            edits.append(InsertAfter(afterwards, (f"{accelerator}.wait_for_everyone()",)))
        else:
            written = [path for one in run for path in written_paths(context, one)]
            place = read_in_functions(context, later, written, last)
            place = place or made_one_by_one(context, run, written)
            if place is not None and place not in waited:
                waited.add(place)
                edits.append(InsertAfter(place, (f"{context.accelerator(place)}.wait_for_everyone()",)))
        context.guarded.update(run)
        command = any(runs_command(context, call) for call in calls_done([stmt])[:1])
        shown = all(shows(context, s) for s in run)
        does = "show this" if shown else "run this command" if command else "write this"
        yield context.change(SHOWN if shown else FILES, stmt, f"every process would {does}", edits)
    yield from _left_open(context)
    yield from _own_folders(context)
    yield from _in_values(context)


def _guard(context: Context, run: list[ast.stmt], accelerator: str) -> tuple[list[Edit], ast.stmt]:
    """The edits that leave statements to the main process, and the statement they end with then."""
    closing = [
        context.tree.segment(call) for call in closed_beside(run, lambda call: is_writing(context, call))
    ]
    if not closing:
        edit, last = context.guard(run, accelerator)
        return [edit], last
    # What all have drawn before is closed by all.
    header = f"if {accelerator}.is_main_process:"
    return [PutUnder(run[0], run[-1], header, otherwise=tuple(closing))], run[-1]


def asked_first(context: Context) -> Iterator[Change]:
    """A folder that must not be there yet is made, and one that is there removed, when every process has tested for it.

    Run before anything is guarded: no guard may be put around such a wait.
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
    """Folders that are made before there is an Accelerator: another process may have made them by then."""
    scope = context.script.scope_of(stmt)
    if scope.kind == "function" and not context.script.callers(scope):
        return
    if is_tolerated(context.tree, stmt) or context.plan.on_main_only(stmt):
        return
    written = [call for call in calls_done([stmt]) if is_writing(context, call)]
    edits = [_may_be_there(context, call) for call in written if makes_folder(call)]
    if edits and len(edits) == len(written) and all(edits):
        message = "every process would write this: the folder may be there"
        yield context.change(FILES, stmt, message, [edit for one in edits for edit in one])


def _may_be_there(context: Context, call: ast.Call) -> list[Edit]:
    """The edits after which a folder may be there already; none where they cannot be made."""
    tree = context.tree
    name = context.script.qualname(call.func) or "pathlib"
    # What a function of another library or of the project takes is not known.
    if must_be_new(tree, call) or not name.startswith(("os.", "pathlib")) or context.script.callees(call):
        return []
    edits: list[Edit] = []
    plain = name == "os.mkdir"
    with contextlib.suppress(verbs.EditError):
        edits.append(verbs.AddArgument(call, "exist_ok=True"))
    if plain and isinstance(call.func, ast.Attribute):
        edits += [verbs.replace(call.func, call.func.value, ".makedirs")]
    elif plain:
        edits = []
    return edits


def _own_folders(context: Context) -> Iterator[Change]:
    """Folders that samples give their names: each process makes those of its samples, and two may make the same."""
    for call in context.script.calls():
        stmt = statement_for(context.tree, call)
        if stmt is not None and makes_folder(call) and not makes_folder_again(call):
            shared = call in context.own_folders
            if shared or (is_writing(context, call) and writes_own(context.plan, context.effects, call)):
                does = (
                    "writes the files of its own samples there"
                    if shared
                    else "makes the folders of its own samples"
                )
                message = f"each process {does}: another may have made {'it' if shared else 'one'} already"
                if edits := _may_be_there(context, call):
                    yield context.change(FILES, stmt, message, edits)


def _folders_of_own_files(context: Context) -> Iterator[ast.Call]:
    """The calls that make a folder for files of one process's samples: no process waits for it."""
    script, tree = context.script, context.tree
    making = [call for call in script.calls() if makes_folder(call) and not makes_folder_again(call)]
    making = [call for call in making if statement_for(tree, call) is not None and is_writing(context, call)]
    # Above the training all processes meet before the first file.
    making = [c for c in making if script.enclosing_loops(c) or script.scope_of(c).kind == "function"]
    if not making:
        return
    parts: set[tuple[Scope, str]] = set()
    for call in script.calls():
        name = script.qualname(call.func)
        writes = (
            is_writing(context, call) or name == "torch.save" or opens_for_writing(call, name) is not None
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
        if statement_for(context.tree, call) is not None or not is_writing(context, call):
            continue
        around = context.tree.ancestors(call)
        if context.is_guarded(call) or any(isinstance(a, ast.Lambda) for a in around):
            continue
        if is_tolerated(context.tree, call):
            continue
        if not context.plan.on_main_only(call) and not writes_own(context.plan, context.effects, call):
            if edits := _may_be_there(context, call) if makes_folder(call) else []:
                yield context.change(FILES, call, "every process would write this: its result is used", edits)


def _in_turns(context: Context) -> Iterator[Change]:
    """`if not os.path.exists(path): write it` and a read: the main process writes, the others find the file."""
    tree, agreed = context.tree, set[ast.stmt]()
    for stmt in writing_statements(context):
        block = after_tests(tree, stmt)
        if block is stmt or context.is_guarded(stmt) or (accelerator := context.accelerator(stmt)) is None:
            continue
        if block in agreed or not _can_take_turns(context, stmt, block):
            continue
        if isinstance(block, ast.If) and _goes_on_otherwise(tree, block):
            agreed.add(block)
            yield _agreed(context, block)
            continue
        if not read_back(context, [stmt], block):
            continue
        context.taking_turns.add(block)
        context.guarded.update(s for s in walk(block) if isinstance(s, ast.stmt) and opens_in(context, s))
        guard = PutUnder(block, block, f"with {accelerator}.main_process_first():")
        yield context.change(FILES, stmt, "every process would write this, which is read beside it", [guard])


def _agreed(context: Context, block: ast.If) -> Change:
    """The test of an `if` asked by all before one makes what it asks for, and its answer that of the main process."""
    edits = [
        verbs.replace(block.test, "broadcast_object_list([", block.test, "])[0]"),
        agreement_import(context, block),
    ]
    # All come to the test; who writes alone is asked after it.
    context.waiting.update(block.body[:1])
    for call in [n for n in walk(block) if isinstance(n, ast.Call) and makes_folder(n)]:
        if may_be_there := _may_be_there(context, call):
            edits += may_be_there
            context.guarded.add(context.tree.statement(call))
    message = "each process would ask for this when another may have made it, and go another way"
    return context.change(FILES, block.test, message, edits)


def _goes_on_otherwise(tree: Tree, block: ast.If) -> bool:
    """Whether more than what is found depends on a branch: names of before that one of its sides alone sets."""
    sides = [
        {dotted(n) for s in part for n in walk(s) if isinstance(getattr(n, "ctx", None), ast.Store)}
        for part in (block.body, block.orelse)
    ]
    single = (sides[0] ^ sides[1]) - {None}
    others = [
        n for n in [*tree.nodes(ast.Name), *tree.nodes(ast.Attribute)] if single and dotted(n) in single
    ]
    before = {dotted(n) for n in others if isinstance(n.ctx, ast.Store) and tree.is_before(n, block)}
    return any(
        isinstance(n.ctx, ast.Load) and tree.is_after(n, block) and not tree.is_within(n, {block})
        for n in others
        if dotted(n) in before
    )


def _can_take_turns(context: Context, stmt: ast.stmt, block: ast.stmt) -> bool:
    """Whether processes can run an `if` in turn that tests for what is written or made in it."""
    inside = walk(block)
    calls = [n for n in inside if isinstance(n, ast.Call)]
    made = {text_of(path) for path in written_paths(context, stmt)}
    made |= {text_of(call.args[0]) for call in calls if makes_folder(call) and call.args}
    asked = asked_paths(block.test) if isinstance(block, ast.If) else set()
    return (
        bool(asked & made)
        and context.runs_everywhere(block)
        and not any(context.script.qualname(call.func) == "torch.save" for call in calls)
        and not context.needs_all(block)
        and not any(n in context.guarded for n in inside)
    )


def _left_open(context: Context) -> Iterator[Change]:
    """Files that stay open, where the statement cannot go under a guard: the other processes write to nothing."""
    for call in context.tree.in_order(context.script.calls()):
        name = context.script.qualname(call.func)
        stmt = context.tree.statement(call)
        if isinstance(stmt, ast.Expr) and call in calls_done([stmt]) and is_writing(context, call):
            reason = needs_all(context, stmt)
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
        plain = plain and "+" not in str(getattr(mode, "value", ""))
        again = read_back(context, [stmt])
        if accelerator is None:
            continue
        if not plain:
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
    """Edits that open a file on the main process only; `method` is the call where the path itself opens it."""
    tree = context.tree
    text = tree.segment(path)
    if isinstance(path, (ast.IfExp, ast.Lambda, ast.NamedExpr)):
        text = f"({text})"
    os, line = module_at(context.script, path, "os")
    text = f"{text} if {accelerator}.is_main_process else {os}.devnull"
    edits: list[Edit] = [verbs.replace(path, text)]
    if method is not None:
        assert isinstance(method.func, ast.Attribute)
        edits = [verbs.replace(method.func, "open"), verbs.AddArgument(method, text, first=True)]
    if line is not None:
        edits.append(context.import_for(path, line))
    return edits
