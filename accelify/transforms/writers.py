"""Experiment writers: only one, on the main process.

writer = SummaryWriter(path)        ->  writer = SummaryWriter(path) if accelerator.is_main_process else None
writer.add_scalar("loss", x, i)     ->  if accelerator.is_main_process:
                                            writer.add_scalar("loss", x, i)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.files.effect_sites import needed_for
from accelify.analysis.files.folders import makings
from accelify.analysis.files.listed_later import ListedLater
from accelify.analysis.files.writer_folders import needs_folder_of
from accelify.analysis.statements.bindings import Bindings
from accelify.analysis.statements.statement_calls import calls_done, needed_beside, statement_for
from accelify.analysis.syntax import Tree, dotted, is_constant, target_names, walk
from accelify.analysis.values import Entity
from accelify.findings import Severity
from accelify.transforms.base import Change, Context, Rule
from accelify.writer import edits as verbs
from accelify.writer.edits import Edit, InsertAfter, InsertBefore, PutUnder

WRITER = Rule(
    "ACC204",
    "Every process would open and write a log of its own.",
    effort=3,
    done="left experiment logs to the main process",
)

_SCREENS = ("sys.stdout", "sys.stderr")
# What sets a run's configuration, which the process that calls it has from then on.
_SETTING = (".config.update", ".config.setdefaults")


def transform(context: Context) -> Iterator[Change]:
    """Yield guards for TensorBoard, visdom and Weights & Biases."""
    yield from _objects(context)
    yield from _wandb(context)


def _objects(context: Context) -> Iterator[Change]:
    script = context.script
    groups: list[tuple[list[ast.Call], set[Entity]]] = []
    for call in script.calls():
        if script.qualname(call.func) in k.WRITER_CLASSES:
            contained = {t for t in script.entities(call, v.WRITER) if t.qualname in k.WRITER_CLASSES}
        elif isinstance(context.tree.parent(call), (ast.Assign, ast.AnnAssign)):
            contained = _made_elsewhere(context, call)
        else:
            continue
        if contained:
            groups.append(([call], contained))
    # Writers that are used in the same place are there on the same processes.
    for call in script.calls():
        if isinstance(call.func, ast.Attribute):
            used = script.entities(call.func.value)
            together = [group for group in groups if group[1] & used]
            for other in together[1:]:
                together[0][0].extend(other[0])
                together[0][1].update(other[1])
                groups.remove(other)
    for made, contained in groups:
        yield from _group(context, made, contained)


def _made_elsewhere(context: Context, call: ast.Call) -> set[Entity]:
    """The writers, or objects of the project that keep a file open, which a call of another module's function gives."""
    script = context.script
    found = {t for t in script.entities(call, v.WRITER) if t.cls is not None and t.site is call}
    callees = script.callees(call)
    if not callees or any(script.interpreter.module_of(c) in script.modules for c in callees):
        return found
    return found | {
        t
        for t in script.entities(call)
        if (t.kind == v.WRITER and t.qualname in k.WRITER_CLASSES)
        or (t.kind == v.INSTANCE and t.cls is not None and context.effects.keeps_log(t.cls))
    }


def _group(context: Context, made: list[ast.Call], contained: set[Entity]) -> Iterator[Change]:
    """Writers that are there on the main process only, where every use of them is seen and needs no other process."""
    tree, script = context.tree, context.script
    uses = [
        c
        for c in script.calls()
        if isinstance(c.func, ast.Attribute) and script.entities(c.func.value) & contained
    ]
    screens = _in_place_of_the_screen(context, contained)
    seen = (
        all(context.is_guarded(c) or _can_be_guarded(context, c) for c in uses)
        and all(context.accelerator(c) is not None for c in uses)
        and not _hidden_use(context, made, contained)
        and not _taken_by_name(context, made)
        and not _handed_away(context, contained)
    )
    fits = (
        seen
        and all(context.accelerator(s) is not None for s in screens)
        and all(context.accelerator(c) is not None for c in made)
        and not _needed_by_all(context, contained)
    )
    if not fits:
        context.everywhere.update(made)
        for call in made:
            if script.qualname(call.func) not in k.WRITER_CLASSES:
                context.claim(call)
                maker = dotted(call.func) or context.tree.segment(call.func)
                message = (
                    f"every process opens a log of its own; have `{maker}` open and write it on one alone"
                )
                yield context.change(WRITER, call, message)
            elif seen and uses and not screens:
                # What is opened everywhere stays empty where nothing is written.
                message = "every process opens a log of its own, and only the main process writes to it"
                yield context.change(WRITER, call, message, severity=Severity.INFO)
        yield from _after_folders(context, made)
        if seen and not screens and all(script.qualname(c.func) in k.WRITER_CLASSES for c in made):
            yield from _guards(context, [tree.statement(c) for c in uses])
        return
    for call in made:
        stmt = tree.parent(call)
        if isinstance(stmt, ast.BoolOp) and isinstance(stmt.op, ast.And) and stmt.values[-1] is call:
            stmt = tree.parent(stmt)  # `writer = tensorboard and SummaryWriter()`
        if context.plan.on_main_only(call) or context.is_guarded(call):
            continue
        choice = stmt if isinstance(stmt, ast.IfExp) and stmt.test is not call else None
        stmt = tree.parent(choice) if choice is not None else stmt
        if not isinstance(stmt, (ast.Assign, ast.AnnAssign)) and not _is_appended(context, choice or call):
            continue
        accelerator = context.accelerator(call)
        if accelerator is None:
            continue
        context.claim(call)
        around = tree.parent(call)
        made_there = around if isinstance(around, ast.BoolOp) else call
        edit: Edit = verbs.replace(made_there, made_there, f" if {accelerator}.is_main_process else None")
        if choice is not None and choice.body is call:
            edit = context.main_process_too(choice, accelerator)  # `SummaryWriter() if tensorboard else None`
        if not isinstance(stmt, (ast.Assign, ast.AnnAssign)):
            yield context.change(WRITER, call, "every process would open a log of its own", [edit])
            continue
        target = stmt.targets[0] if isinstance(stmt, ast.Assign) else stmt.target
        if dotted(target) in _SCREENS:
            # The other processes keep theirs: everything shown goes through it.
            context.guarded.add(stmt)
            edit = PutUnder(stmt, stmt, f"if {accelerator}.is_main_process:")
        edits = [edit]
        if needs_folder_of(script, call) is not None and context.runs_everywhere(stmt):
            # The writer makes the folder that the log files of all processes are in.
            edits.append(InsertAfter(stmt, (f"{accelerator}.wait_for_everyone()",)))
        yield context.change(WRITER, call, "every process would open a log of its own", edits)
    yield from _guards(context, [*[tree.statement(c) for c in uses], *screens])


def _in_place_of_the_screen(context: Context, contained: set[Entity]) -> list[ast.stmt]:
    """The statements that have all that is shown go through a writer: `sys.stdout = log`. The others keep theirs."""
    if not any(context.tree.mentions(screen) for screen in _SCREENS):
        return []
    return [
        stmt
        for stmt in context.tree.nodes(ast.Assign)
        if all(dotted(target) in _SCREENS for target in stmt.targets)
        and isinstance(stmt.value, (ast.Name, ast.Attribute))
        and context.script.entities(stmt.value) & contained
    ]


def _after_folders(context: Context, made: list[ast.Call]) -> Iterator[Change]:
    """A wait before writers that all processes keep, where the main process makes the folder in a helper's call."""
    tree, script = context.tree, context.script
    making = [(c, p) for c, p, _ in makings(script) if context.is_guarded(c)] if context.guarded else []
    for call in made:
        stmt, later = tree.statement(call), ListedLater(script, context.effects.qualname, {call})
        accelerator = context.accelerator(stmt)
        if accelerator is None or not context.runs_everywhere(stmt):
            continue
        waited = [s for s in tree.block_of(stmt)[2] if s in context.waiting]
        for maker, path in making:
            if any(tree.is_after(one, maker) and not tree.is_before(stmt, one) for one in waited):
                continue
            if tree.is_after(stmt, maker) and later.is_listed(tree.statement(maker), [path]):
                wait = InsertBefore(stmt, (f"{accelerator}.wait_for_everyone()",), order=-5)
                yield context.change(WRITER, call, "the main process may still be making its folder", [wait])
                break


def _is_appended(context: Context, call: ast.expr) -> bool:
    """Whether a writer goes into a list: `writers.append(SummaryWriter(path))`."""
    parent = context.tree.parent(call)
    func = parent.func if isinstance(parent, ast.Call) and call in parent.args else None
    return isinstance(func, ast.Attribute) and func.attr == "append" and not context.script.callees(parent)  # type: ignore[arg-type]


def _hidden_use(context: Context, made: list[ast.Call], contained: set[Entity]) -> bool:
    """Whether a writer's name is read where it is not known to be the writer (a global, a variable of a helper)."""
    names = {
        n
        for call in made
        for stmt in [context.tree.statement(call)]
        if isinstance(stmt, (ast.Assign, ast.AnnAssign))
        for t in (stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target])
        for n in target_names(t)
    }
    return any(
        isinstance(node.ctx, ast.Load)
        and node.id in names
        and not context.script.entities(node) & contained
        and not context.is_guarded(node)
        for node in context.tree.nodes(ast.Name)
    )


def _taken_by_name(context: Context, made: list[ast.Call]) -> bool:
    """Whether attributes are read by names that are built at run time: `getattr(self, mode + "_writer")`."""
    script = context.script
    homes = {script.scope_of(call).owner_class for call in made} - {None}
    return bool(homes) and any(
        dotted(call.func) == "getattr"
        and len(call.args) > 1
        and not isinstance(call.args[1], ast.Constant)
        and script.scope_of(call).owner_class in homes
        for call in script.calls()
    )


def _needed_by_all(context: Context, contained: set[Entity]) -> bool:
    """Whether a writer is used by more than calls of its methods, which fails on the other processes' None.

    `writer.log_dir` is read off it, `writer.trainer = self` set on it; `writer["loss"] = x`, `with writer:`.
    """
    tree, script = context.tree, context.script
    bindings = Bindings(tree)
    if any(
        _decides(context, stmt, bindings)
        for stmt in tree.nodes(ast.If)
        if any(script.entities(part) & contained for part in _asked_for(stmt.test))
    ):
        return True
    used: list[tuple[ast.AST, ast.expr]] = [(n, n.value) for n in tree.nodes(ast.Subscript)]
    used += [(n, n.func) for n in script.calls()]
    used += [(n, n.context_expr) for n in tree.nodes(ast.withitem)]
    for node in tree.nodes(ast.Attribute):
        parent = tree.parent(node)
        if not (isinstance(node.ctx, ast.Load) and isinstance(parent, ast.Call) and parent.func is node):
            used.append((node, node.value))
    return any(
        isinstance(base, (ast.Name, ast.Attribute))
        and script.entities(base) & contained
        and not context.is_guarded(node)
        for node, base in used
    )


def _asked_for(test: ast.expr) -> Iterator[ast.expr]:
    """The names that must have a value for a test to be true: `if writer and epoch % 10 == 0:`."""
    names = set(needed_for(test))
    yield from (n for n in walk(test) if isinstance(n, (ast.Name, ast.Attribute)) and dotted(n) in names)


def _decides(context: Context, stmt: ast.If, bindings: Bindings) -> bool:
    """Whether what runs where there is a writer sets what is read without one: `if writer: score = total / n`."""
    script, inside = context.script, {n for part in stmt.body for n in walk(part)}
    stored = [n for n in inside if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    added = {n.id for n in stored if isinstance(script.tree.parent(n), ast.AugAssign)}
    reads = [
        read
        for name, scope in {(n.id, script.scope_of(n).resolve(n.id)) for n in stored}
        for read in (script.reads(name, scope) if scope is not None else ())
        if read not in inside
    ]
    gives = any(isinstance(n, ast.Return) and n.value is not None for n in inside)
    return gives or any(read.id in added or not inside.isdisjoint(bindings.of(read)) for read in reads)


def _handed_away(context: Context, contained: set[Entity]) -> bool:
    """Whether a writer is passed to a function that is not converted with this script and uses it there."""
    script = context.script
    for call in script.calls():
        callees = script.callees(call)
        if context.is_guarded(call) or (not callees and not _is_stated(context, call.func)):
            continue
        if callees and all(script.interpreter.module_of(c) in script.modules for c in callees):
            continue
        given = [*call.args, *[kw.value for kw in call.keywords]]
        if any(script.entities(a) & contained for a in given if isinstance(a, (ast.Name, ast.Attribute))):
            return True
    return False


def _is_stated(context: Context, function: ast.expr) -> bool:
    """Whether a function is a parameter of its caller, of which nothing is known: `train(..., summary_fn)`."""
    scope = context.script.scope_of(function)
    if isinstance(function, ast.Attribute):
        own = scope.self_name()
        return own is not None and dotted(function) == f"{own}.{function.attr}"
    if not isinstance(function, ast.Name) or context.script.qualname(function) is not None:
        return False
    owner = scope.resolve(function.id)
    return owner is not None and owner.takes(function.id)


def _can_be_guarded(context: Context, call: ast.Call) -> bool:
    stmt = statement_for(context.tree, call)
    return stmt is not None and not _meets(context, stmt)


def _meets(context: Context, stmt: ast.stmt) -> bool:
    return bool(context.meets_others(stmt) or needed_beside(context.effects, stmt))


def _guards(context: Context, statements: list[ast.stmt]) -> Iterator[Change]:
    tree = context.tree
    wanted = set(statements)
    done: set[ast.stmt] = set()
    for stmt in tree.in_order(wanted):
        if stmt in done or context.is_guarded(stmt):
            continue
        run = context.run_of(stmt, lambda s: s in wanted and not context.is_guarded(s))
        done.update(run)
        call = next(iter(calls_done([stmt])), None)
        accelerator = context.accelerator(stmt) if call is None else context.accelerator(call)
        context.guarded.update(run)
        assert accelerator is not None
        edits: list[Edit] = [context.guard(run, accelerator)[0]]
        yield context.change(WRITER, stmt, "every process would write to the log", edits)


def _uses_of(context: Context, made: ast.Assign) -> list[ast.stmt] | None:
    """The statements that do nothing but call the run's methods; None where it is used in another way."""
    tree, script = context.tree, context.script
    target = dotted(made.targets[0])
    found: list[ast.stmt] = []
    for node in tree.nodes(ast.Name, ast.Attribute):
        if not isinstance(node.ctx, ast.Load) or dotted(node) != target:
            continue
        if isinstance(node, ast.Name) and script.scope_of(node).resolve(node.id) is not script.scope_of(
            made
        ).resolve(node.id):
            continue
        stmt = tree.statement(node)
        if isinstance(stmt, ast.If) and not stmt.orelse and target in set(needed_for(stmt.test)):
            if not _meets(context, stmt):
                continue  # `if run is not None:`, which the other processes skip
        call = stmt.value if isinstance(stmt, ast.Expr) else None
        if not isinstance(call, ast.Call) or context.accelerator(stmt) is None:
            return None
        if not (dotted(call.func) or "").startswith(f"{target}."):
            return None
        found.append(stmt)
    return found


def _is_written(tree: Tree, node: ast.Attribute) -> bool:
    """Whether what belongs to a run is only set: `wandb.config.lr = 1`, `wandb.config.update(...)`."""
    parent = tree.parent(node)
    if isinstance(parent, ast.Subscript):
        return parent.value is node and isinstance(parent.ctx, ast.Store)
    if isinstance(parent, ast.Call) and parent.func is node:
        return isinstance(tree.parent(parent), ast.Expr)
    return isinstance(node.ctx, ast.Store) and not isinstance(parent, ast.AugAssign)


def _wandb(context: Context) -> Iterator[Change]:
    tree, script = context.tree, context.script
    calls = script.calls_named(lambda name: name.startswith(("wandb.", "mlflow.")))
    if not calls:
        return
    reads = [
        n for n in tree.nodes(ast.Attribute)
        if isinstance(n.value, (ast.Name, ast.Attribute))
        and (script.qualname(n.value) or "") in ("wandb.config", "wandb.run")
    ]  # fmt: skip
    written = [n for n in reads if _is_written(tree, n)]
    reads = [n for n in reads if n not in written]
    statements: list[ast.stmt] = []
    for node in written if not reads else ():
        setting = tree.statement(node)
        alone = isinstance(setting, ast.Assign) and len(setting.targets) == 1 and not _meets(context, setting)
        if alone and context.accelerator(setting) is not None and not context.plan.on_main_only(setting):
            statements.append(setting)
    for call in calls:
        name = script.qualname(call.func) or ""
        parent = tree.parent(call)
        choice = parent if isinstance(parent, ast.IfExp) and parent.body is call else None
        parent = tree.parent(choice) if choice is not None and is_constant(choice.orelse, None) else parent
        accelerator = context.accelerator(call)
        if accelerator is None or context.plan.on_main_only(call):
            continue
        stmt = statement_for(tree, call)
        if stmt is not None:
            # What all read of a run, all set: `wandb.config.update(...)`.
            if not _meets(context, stmt) and not (reads and name.endswith((".init", *_SETTING))):
                statements.append(stmt)
        elif isinstance(parent, ast.Assign) and name.endswith((".init", ".start_run")) and not reads:
            uses = _uses_of(context, parent)
            if uses is None:
                continue
            statements += uses
            edit: Edit = verbs.replace(call, call, f" if {accelerator}.is_main_process else None")
            if choice is not None:
                edit = context.main_process_too(choice, accelerator)
            yield context.change(WRITER, call, "every process would start a run of its own", [edit])
    yield from _guards(context, statements)
