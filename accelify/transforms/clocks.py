"""Names made from the clock, or from random ids: all processes use the name that the main process made.

run = datetime.now().strftime("%H-%M-%S")    ->  run = broadcast_object_list([datetime.now().strftime("%H-%M-%S")])[0]

    def run_name():
        return strftime("%H-%M-%S")
    run = os.path.join("runs", run_name())   ->  run = broadcast_object_list([os.path.join("runs", run_name())])[0]

    run = str(uuid.uuid4())[:8]              ->  run = broadcast_object_list([str(uuid.uuid4())[:8]])[0]

    fit(model, strftime("%H"))  ->  fit(model, broadcast_object_list([strftime("%H")])[0])    (a path in `fit`)

    run = utils.new_folder()    ->  (where that also makes the folder, in a module that stays as it is)
    run = broadcast_object_list([utils.new_folder() if accelerator.is_main_process else None])[0]

The processes read the clock at different moments, and `uuid4` does not follow a seed. Only a name counts where the
text of a time, or such an id, becomes part of a path. A folder that a function of another module makes and numbers by
its siblings becomes the same for all processes, too. Where there is no Accelerator by then, ACC703 names what every
process makes or reads by its own clock.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial

from accelify.analysis.files.clock_texts import ClockTexts, is_text_of_time
from accelify.analysis.files.effect_sites import TERMINAL
from accelify.analysis.files.folders import folder_made, makes_folder
from accelify.analysis.files.numbered_folders import gives_numbered
from accelify.analysis.files.writer_folders import opens_log
from accelify.analysis.planning.anchors import node_of
from accelify.analysis.scopes import Scope, in_order
from accelify.analysis.syntax import calls_in, dotted
from accelify.transforms.agreed_names import agreed_later, agreement_import
from accelify.transforms.base import Change, Context, Rule, short, where
from accelify.transforms.clock_paths import (
    Naming,
    hands_path_on,
    is_path_in,
    names_path,
    naming_target,
    within_statement,
)
from accelify.writer import edits as verbs
from accelify.writer.edits import Edit

CLOCK = Rule(
    "ACC211",
    "Every process would name a file or folder by its own clock or id, or by what it finds there.",
    done="made names that differ by process those of the main one",
)
ADVICE = "broadcast_object_list([...])[0] makes it the main process's"
_LOOKING_WORDS = (b"listdir", b"glob", b"scandir", b"os.walk", b"exists", b"isdir", b"is_dir")
_READS = frozenset({"torch.load", "glob.glob", "glob.iglob", "os.listdir", "os.scandir"})


def transform(context: Context) -> Iterator[Change]:
    """Yield the broadcasts, and a finding where the Accelerator is not there yet."""
    script, texts = context.script, ClockTexts(context.script)
    if context.plan.anchor is None:
        return
    yield from _numbered_elsewhere(context)
    if not texts.is_near:
        return
    # The functions whose texts are equal on all processes, and so what they return.
    agreed: set[Scope] = set()
    own, given = [], []
    for stmt, value in _namings(context):
        if is_text_of_time(value):
            if not _makes_object(context, value):
                own.append((stmt, value))
        elif isinstance(_whole(value), (ast.Call, ast.BinOp, ast.JoinedStr, ast.BoolOp, ast.IfExp)):
            times = texts.times_in(script.scope_of(stmt))
            if texts.is_text(value, times) and dotted(naming_target(stmt)) not in times:
                given.append((stmt, value))
    # What a function returns is looked at after what it does itself, callees first.
    given.sort(key=lambda naming: -script.depth(script.scope_of(naming[0])))
    for stmt, value in [*own, *given]:
        if script.scope_of(stmt) in script.dormant or context.is_claimed(stmt) or context.is_guarded(stmt):
            continue
        if (
            context.plan.on_main_only(stmt)
            or script.enclosing_loops(stmt)
            or any(script.trains_around(call) for call in script.callers(script.scope_of(stmt)))
            or _is_agreed(texts, value, agreed)
            or not names_path(context, texts, stmt, value)
        ):
            continue
        if is_run_once(context, stmt):
            for change in _agree(context, texts, stmt, value, context.tree.segment(naming_target(stmt))):
                agreed.add(script.scope_of(stmt))
                yield change
    yield from _handed_on(context, texts, agreed)


def _handed_on(context: Context, texts: ClockTexts, agreed: set[Scope]) -> Iterator[Change]:
    """Text of the clock that a call passes to a function which makes a path of it."""
    script = context.script
    for call in script.calls():
        callees = in_order(script.callees(call))
        if not callees or script.enclosing_loops(call) or not is_run_once(context, call):
            continue
        for given in [*call.args, *[kw.value for kw in call.keywords]]:
            if not texts.is_text(given, set()) or context.is_claimed(given):
                continue
            if not _is_agreed(texts, given, agreed) and is_path_in(context, texts, call, given):
                stmt, name = context.tree.statement(call), short(context.tree.segment(given))
                yield from _agree(context, texts, stmt, given, name)


def _makes_object(context: Context, value: ast.expr) -> bool:
    """Whether a call makes an object, of the program or of a library, which is no text itself."""
    callees = context.script.callees(value) if isinstance(value, ast.Call) else set()
    name = (dotted(value.func) or "").rpartition(".")[2] if isinstance(value, ast.Call) else ""
    if not callees and name[:1].isupper() and not name.endswith("Path"):
        return True  # a library's class: `SummaryWriter(folder)`
    return any(callee.is_method and callee.name.endswith("__init__") for callee in callees)


def _agree(
    context: Context, texts: ClockTexts, stmt: ast.stmt, value: ast.expr, name: str
) -> Iterator[Change]:
    """Make the name that a statement reads from the clock one for all."""
    tree, script = context.tree, context.script
    tests = [a.test for a in tree.ancestors(stmt) if isinstance(a, ast.If) and a is not script.main_guard]
    early = not _is_after_anchor(context, stmt)
    message = f"every process would name `{name}` by its own clock or id"
    if early or not all(script.is_uniform(test) for test in tests):
        if not reads_files(context) and not _is_opened_by_all(context, texts, stmt):
            return  # only the main process names what is only written
        edits = agreed_later(context, stmt) if early and isinstance(stmt, Naming) else []
        if edits:
            yield context.change(CLOCK, stmt, message, edits)
        return
    making = [call for call in calls_in(value) if _makes_files(context, call)]
    start, end = "broadcast_object_list([", "])[0]"
    if making:
        accelerator = context.accelerator(stmt)
        if context.needs_all(stmt) or accelerator is None or making != [value]:
            return
        end = f" if {accelerator}.is_main_process else None{end}"
    context.claim(value)
    edits = [
        verbs.replace(value, start, value, end),
        agreement_import(context, stmt),
    ]
    yield context.change(CLOCK, stmt, message, edits)


def _numbered_elsewhere(context: Context) -> Iterator[Change]:
    """Calls of functions, which are not converted, that make a folder numbered by its siblings."""
    script, tree = context.script, context.tree
    for call in script.calls():
        for callee in in_order(script.callees(call)):
            module = script.interpreter.module_of(callee)
            if module in script.modules or not module.tree.mentions("dir"):
                continue
            if not any(map(module.tree.mentions, _LOOKING_WORDS)):
                continue
            made = [n for n in callee.calls if makes_folder(n)]
            if not made or script.enclosing_loops(call):
                continue
            if context.is_settled(call):
                continue
            paths = [path for making in made if (path := folder_made(making)) is not None]
            listing = gives_numbered(callee, paths, partial(context.effects.qualname, module, callee))
            if listing is None:
                continue
            place = where(module, listing)
            message = f"every process would make a folder of its own, numbered by what lies there ({place})"
            stmt, accelerator = tree.statement(call), context.accelerator(call)
            edits: list[Edit] = []
            if (
                isinstance(stmt, ast.Assign)
                and stmt.value is call
                and accelerator is not None
                and _is_after_anchor(context, stmt)
                and is_run_once(context, stmt)
                and context.runs_everywhere(stmt)
                and not context.needs_all(stmt)
                and not context.effects.not_alone(context.effects.of_call(call, callee))
            ):
                end = f" if {accelerator}.is_main_process else None])[0]"
                edits = [
                    verbs.replace(call, "broadcast_object_list([", call, end),
                    agreement_import(context, stmt),
                ]
                context.claim(call)
            advice = "" if edits else f": after the Accelerator, {ADVICE}"
            yield context.change(CLOCK, call, f"{message}{advice}", edits)
            break


def _is_agreed(texts: ClockTexts, value: ast.expr, agreed: set[Scope]) -> bool:
    """Whether the functions that compute an expression already return the same on every process."""
    given = [s for call in calls_in(value) for s in texts.given_by(call)]
    return any(texts.calls_one_of(function, agreed) for function in given)


def _makes_files(context: Context, call: ast.Call) -> bool:
    """Whether a call of a function that is not converted writes or makes folders."""
    callees = context.script.callees(call)
    return any(
        site.kind != TERMINAL
        for callee in callees
        if context.script.interpreter.module_of(callee) not in context.script.modules
        for site in context.effects.sites_of(call, callee)
    )


def reads_files(context: Context) -> bool:
    """Whether the script reads files or folders: if it only writes, only the main process uses the name."""
    return bool(context.script.calls_to(_READS))


def is_run_once(context: Context, node: ast.AST, seen: frozenset[Scope] = frozenset()) -> bool:
    """Whether a node runs once, as far as can be seen, and on every process: no loop and no choice around it."""
    script, anchor = context.script, context.plan.anchor
    assert anchor is not None
    scope = script.scope_of(node)
    if script.enclosing_loops(node) or context.is_guarded(node) or not _is_evaluated(context, node):
        return False
    if context.plan.on_main_only(node) or scope in seen:
        return False
    if node_of(script, scope) is anchor.root or scope in script.training_scopes or scope.kind == "module":
        return True
    calls = script.callers(scope)
    return (
        len(calls) == 1
        and not script.called_from_elsewhere(scope)
        and is_run_once(context, calls[0], seen | {scope})
        and context.runs_everywhere(context.tree.statement(calls[0]))
    )


def _is_evaluated(context: Context, node: ast.AST) -> bool:
    """Whether a node is evaluated wherever its statement is: `given or run_name()` by an option that all share."""
    inner: ast.AST = node
    for ancestor in context.tree.ancestors(node):
        if isinstance(inner, ast.stmt):
            break
        if isinstance(ancestor, ast.BoolOp) and inner is not ancestor.values[0]:
            before = [value for value in ancestor.values if context.tree.is_after(inner, value)]
            if not all(map(context.script.is_uniform, before)):
                return False
        if isinstance(ancestor, ast.IfExp) and not context.script.is_uniform(ancestor.test):
            return False
        if isinstance(ancestor, (ast.Lambda, ast.comprehension)):
            return False
        inner = ancestor
    return True


def _is_after_anchor(context: Context, node: ast.AST) -> bool:
    """Whether the Accelerator is made when a node runs that is run once."""
    script, anchor = context.script, context.plan.anchor
    assert anchor is not None
    scope = script.scope_of(node)
    home = node_of(script, scope)
    if home is anchor.root:
        return context.accelerator(node) is not None
    calls = script.callers(scope)
    if scope.kind == "function" and len(calls) == 1 and scope not in script.training_scopes:
        return _is_after_anchor(context, calls[0])
    return context.accelerator(node) is not None


def _is_opened_by_all(context: Context, texts: ClockTexts, stmt: ast.stmt) -> bool:
    """Whether a log file of that name is opened by every process, in a function that stays as it is, for example."""
    name = dotted(naming_target(stmt)) if isinstance(stmt, Naming) else None
    return any(
        opens_log(call)
        or (
            any(opens_log(n) for callee in context.script.callees(call) for n in callee.calls)
            and hands_path_on(context, texts, call, node)
        )
        for node in context.tree.nodes(ast.Name)
        if node.id == name and isinstance(node.ctx, ast.Load)
        for call in within_statement(context, node)
        if isinstance(call, ast.Call) and not context.is_settled(call)
    )


def _namings(context: Context) -> list[tuple[Naming, ast.expr]]:
    """The statements that bind a name, each with the value that it gets."""
    tree = context.tree
    stmts = [*tree.nodes(ast.Assign), *tree.nodes(ast.AugAssign), *tree.nodes(ast.AnnAssign)]
    return [(stmt, stmt.value) for stmt in stmts if stmt.value is not None]


def _whole(value: ast.expr) -> ast.expr:
    """What a part is taken of: `paths()` of `paths()[0]`."""
    while isinstance(value, ast.Subscript):
        value = value.value
    return value
