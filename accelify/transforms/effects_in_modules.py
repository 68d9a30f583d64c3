"""Functions of other modules that write files, draw or print: called by the main process only.

save_pictures(images, path)    ->  if accelerator.is_main_process:
                                       save_pictures(images, path)

logger = new_log(path)         ->  logger = new_log(path if accelerator.is_main_process else os.devnull)

Where a function also does what all processes need, the call is not changed and is a finding.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis import values as v
from accelify.analysis.files.asked_paths import after_tests
from accelify.analysis.files.effect_sites import (
    ASKING,
    DOWNLOADS,
    FILES,
    FOLDERS,
    LOGS,
    PICTURES,
    TERMINAL,
    Site,
)
from accelify.analysis.files.folders import makings
from accelify.analysis.files.found_effects import Effects
from accelify.analysis.files.listed_later import ListedLater
from accelify.analysis.files.log_files import BEGUN_LOGS, begins_log, by_default
from accelify.analysis.files.reading_calls import READING
from accelify.analysis.files.sample_files import writes_own
from accelify.analysis.modules.module_names import module_at
from accelify.analysis.modules.reached import is_never_run
from accelify.analysis.scopes import handed_to, in_order
from accelify.analysis.statements.statement_calls import calls_done, statement_for
from accelify.analysis.syntax import call_argument, calls_in, walk
from accelify.transforms.base import Change, Context, Rule, file_name
from accelify.transforms.models_on_one_process import handed_alone
from accelify.transforms.waits import all_wait_next, is_image_writer
from accelify.writer import edits as verbs
from accelify.writer.edits import Edit, InsertAfter, InsertBefore, PutUnder

ELSEWHERE = Rule(
    "ACC210",
    "A function of another module would write the same files on every process.",
    effort=3,
    done="left writing files to the main process",
)
_WORDS = {
    FILES: "writes files",
    LOGS: "writes to a log",
    PICTURES: "draws pictures",
    FOLDERS: "makes folders",
    TERMINAL: "prints",
}


def transform(context: Context) -> Iterator[Change]:
    """Yield guards for calls of such functions, neighbours under one."""
    tree = context.tree
    wanted: dict[ast.stmt, tuple[ast.Call, Effects]] = {}
    for call, effects in _calls(context):
        own = statement_for(tree, call)
        if own is not None and not context.needs_all(own) and context.accelerator(own) is not None:
            wanted.setdefault(own, (call, effects))
        elif effects.kinds() - {TERMINAL, FOLDERS}:
            context.everywhere.add(call)
    done: set[ast.stmt] = set()
    for stmt in tree.in_order(wanted):
        if stmt in done:
            continue
        run = context.run_of(stmt, wanted.__contains__)
        done.update(run)
        yield from _guarded(context, run, wanted)


def left(context: Context) -> Iterator[Change]:
    """Yield a finding for the calls that all processes have to make. Run when the writers are known."""
    tree = context.tree
    for call, effects in _calls(context):
        if is_never_run(context.script, call):
            continue
        stmt = tree.statement(call)
        accelerator = context.accelerator(stmt)
        alone = statement_for(tree, call) is not None
        reason = context.needs_all(stmt) if alone else "its result is used"
        if accelerator is None:
            reason = "the Accelerator is not known there"
        asking = next((s for s in effects.sites if s.name in ASKING), None)
        if asking is not None and stmt not in context.guarded:
            where = f"{file_name(asking.path)}, line {asking.line}"
            how = asking.name.removeprefix("builtins.")
            message = (
                f"this call asks with {how}() ({where}): every process would, and one of them is answered"
            )
            yield context.todo(
                ELSEWHERE, call, message, "ask on the main process, and hand the answer to the others"
            )
        sites = [s for s in effects.sites if s.kind != TERMINAL]
        if not sites:
            continue
        # What is only made where it is missing, or downloaded: the main process makes it, and the others find it.
        guardable = isinstance(stmt, (ast.Assign, ast.Expr)) and accelerator is not None
        begun = [s for s in sites if s.name in BEGUN_LOGS]
        made = [s for s in sites if s not in begun]
        in_turns = any(n in context.taking_turns for n in (stmt, *tree.ancestors(stmt)))
        if in_turns:
            continue
        if guardable and made and all(s.missing for s in made) and not effects.lists:
            if context.runs_everywhere(stmt) and not (
                context.meets_others(stmt) or _runs_model(context, call)
            ):
                context.guarded.add(stmt)
                guard = PutUnder(stmt, stmt, f"with {accelerator}.main_process_first():")
                yield context.change(ELSEWHERE, call, f"{_does(made)} on every process", [guard])
                yield from _emptied(context, call, begun)
                continue
        if stmt not in context.guarded:
            if any(s.kind == FOLDERS and not s.missing for s in sites):
                reason += "; where one has made its folder, the others can fail"
            if any(s.deletes and not s.missing for s in sites):
                reason += "; each deletes what those before it have written"
            if made:
                yield context.change(ELSEWHERE, call, f"{_does(made)} on every process: {reason}")
            yield from _emptied(context, call, begun)


def _emptied(context: Context, call: ast.Call, begun: list[Site]) -> Iterator[Change]:
    """A log file that each process opens again, and so empties under those that write into it already."""
    if not begun:
        return
    place = f"{begun[0].name} in {file_name(begun[0].path)}, line {begun[0].line}"
    message = (
        f"this call begins a log file anew ({place}) on every process, which empties it under the others"
    )
    given = _only_file(context, call) if len(begun) == 1 else None
    accelerator = context.accelerator(call) if given is not None else None
    if given is None or accelerator is None or context.is_claimed(given):
        yield context.change(ELSEWHERE, call, f'{message}; have only one open it with mode "w"')
        return
    loose = isinstance(given, (ast.IfExp, ast.Lambda, ast.NamedExpr))
    text = f"({context.tree.segment(given)})" if loose else context.tree.segment(given)
    os, line = module_at(context.script, call, "os")
    edits: list[Edit] = [verbs.replace(given, f"{text} if {accelerator}.is_main_process else {os}.devnull")]
    if line is not None:
        edits.append(context.import_for(call, line))
    yield context.change(ELSEWHERE, call, message, edits)


def _only_file(context: Context, call: ast.Call) -> ast.expr | None:
    """What a call gives a parameter that is nothing but the name of the log file which the function begins."""
    callees = context.script.callees(call)
    callee = next(iter(callees)) if len(callees) == 1 else None
    module = context.script.interpreter.module_of(callee) if callee is not None else None
    if callee is None or module is None or any(isinstance(a, ast.Starred) for a in call.args):
        return None
    for opening in callee.calls:
        opens = context.effects.qualname(module, callee, opening.func)
        if begins_log(by_default(opening, callee), opens) is None:
            continue
        name = call_argument(opening, 0, "filename")
        if not isinstance(name, ast.Name):
            return None
        read = [n for n in walk(callee.node) if isinstance(n, ast.Name) and n.id == name.id]
        given = [argument for argument, parameter in handed_to(call, callee) if parameter == name.id]
        return given[0] if len(read) == 1 and len(given) == 1 else None
    return None


def _calls(context: Context) -> Iterator[tuple[ast.Call, Effects]]:
    """The calls of other modules' functions that do something to the world and are not taken care of."""
    for call in context.script.calls():
        effects = _effects(context, call)
        if effects is None or context.is_guarded(call) or context.is_claimed(call):
            continue
        if not context.plan.on_main_only(call) and not writes_own(context.plan, context.effects, call):
            yield call, effects


def _guarded(
    context: Context, run: list[ast.stmt], wanted: dict[ast.stmt, tuple[ast.Call, Effects]]
) -> Iterator[Change]:
    tree = context.tree
    call, effects = wanted[run[0]]
    accelerator = context.accelerator(run[0])
    assert accelerator is not None
    edit, last = context.guard(run, accelerator)
    edits: list[Edit] = [edit]
    listed = _is_listed_later(context, run, wanted)
    if listed or any(_is_read_later(context, stmt, wanted[stmt][1]) for stmt in run):
        wait = (f"{accelerator}.wait_for_everyone()",)
        # A process that asks late reaches a wait after the question, but not one in the branch.
        afterwards = after_tests(tree, last)
        if not context.runs_everywhere(afterwards):
            context.claim(*(wanted[stmt][0] for stmt in run))
            context.everywhere.update(wanted[stmt][0] for stmt in run)
            yield context.change(
                ELSEWHERE, call, f"{_does(effects.sites)} on every process, and it may be read again"
            )
            return
        if _reads_between(context, last, afterwards):
            edits.append(InsertBefore(run[0] if last is run[-1] else last, wait, order=-5))
            afterwards = last
        if not all_wait_next(context, afterwards):
            edits.append(InsertAfter(afterwards, wait))
            block = tree.block_of(afterwards)[2]
            context.waiting.update(block[block.index(afterwards) + 1 :][:1])
    for stmt in run:
        for model in _models(context, stmt):
            edits += handed_alone(context, model, accelerator)
    context.guarded.update(run)
    yield context.change(ELSEWHERE, call, f"{_does(effects.sites)} on every process", edits)


def _effects(context: Context, call: ast.Call) -> Effects | None:
    """What the functions of other modules that a call runs do to the world; None where they do nothing."""
    script = context.script
    callees, shown = script.callees(call), context.effects.shown_in_losses(call)
    if not callees and not shown:
        return None
    found = Effects()
    for callee in in_order(callees):
        if script.interpreter.module_of(callee) in script.modules:
            return None  # guarded inside
        inner = context.effects.of(callee)
        found.sites += context.effects.sites_of(call, callee)
        found.lists = found.lists or inner.lists
    found.sites += shown
    found.sites = [s for s in found.sites if s.kind != DOWNLOADS]
    return found if found.sites else None


def _runs_model(context: Context, call: ast.Call) -> bool:
    """Whether a call can run a prepared model, for whose steps all processes meet: none of them may come first."""
    callees = context.script.callees(call)
    if not any(context.effects.of_call(call, callee).calls_model for callee in callees):
        return False
    given = [*call.args, *[kw.value for kw in call.keywords]]
    return any(callee.is_method for callee in callees) or any(
        isinstance(a, (ast.Name, ast.Attribute)) and context.plan.is_prepared(a, v.MODEL) for a in given
    )


def _is_read_later(context: Context, stmt: ast.stmt, effects: Effects) -> bool:
    """Whether what a statement writes can be needed right after it: data that is made before the training."""
    images = any(s.kind == PICTURES and is_image_writer(s.name) for s in effects.sites)
    if not (images or FILES in effects.kinds()) or context.script.enclosing_loops(stmt):
        return False
    body = context.script.scope_of(stmt).nodes
    later = (s for s in body if isinstance(s, ast.stmt) and context.tree.is_after(s, stmt))
    return any(map(context.script.trains, later))


def _reads_between(context: Context, last: ast.stmt, afterwards: ast.stmt) -> bool:
    """Whether the rest of a branch reads files: they all wait within it then, once each has asked."""
    return any(
        name.startswith(READING) or any(context.effects.of(s).reads for s in context.script.callees(call))
        for call in calls_in(afterwards)
        if context.tree.is_after(call, last)
        for name in [context.script.qualname(call.func) or ""]
    )


def _is_listed_later(
    context: Context, run: list[ast.stmt], wanted: dict[ast.stmt, tuple[ast.Call, Effects]]
) -> bool:
    """Whether all processes list a folder after the calls that make it."""
    calls = {wanted[stmt][0] for stmt in run if FOLDERS in wanted[stmt][1].kinds()}
    made = [path for call, path, _ in makings(context.script) if call in calls] if calls else []
    later = ListedLater(context.script, context.effects.qualname, context.everywhere)
    return bool(made) and later.is_listed(run[-1], made)


def _models(context: Context, stmt: ast.stmt) -> list[ast.expr]:
    """The prepared models among the arguments of a statement, and the one whose method it calls."""
    if not context.plan.after_prepare(stmt):
        return []
    given: list[ast.expr] = []
    for call in calls_done([stmt]):
        given += [*call.args, *[kw.value for kw in call.keywords]]
        given += [call.func.value] if isinstance(call.func, ast.Attribute) else []
    return [
        a
        for a in given
        if not context.is_claimed(a)
        and isinstance(a, (ast.Name, ast.Attribute))
        and context.plan.is_prepared(a, v.MODEL)
    ]


def _does(sites: list[Site]) -> str:
    """`this call writes files (numpy.save in utils.py, line 3)`."""
    order = (FILES, LOGS, PICTURES, FOLDERS, TERMINAL)
    site = min(sites, key=lambda s: (order.index(s.kind), s.path, s.line))
    return f"this call {_WORDS[site.kind]} ({site.name} in {file_name(site.path)}, line {site.line})"
