"""The road that `convert` and `check` share: source, model, transforms, one application, report."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

from accelify.analysis.joined import JoinedTree
from accelify.analysis.modules.converted_before import (
    calls_without,
    imports_package,
    is_handed_an_accelerator,
)
from accelify.analysis.modules.evaluated_names import made_by_configuration, picks_by_name
from accelify.analysis.modules.joining_bases import placing_bases, writing_bases
from accelify.analysis.planning.anchors import NAME, node_of
from accelify.analysis.planning.plan import Blocker, Plan
from accelify.analysis.program import Module, Program
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import Tree, dotted
from accelify.applying import apply_changes
from accelify.conversion import (
    CONVERTED,
    FAILED,
    REFUSED,
    UNCHANGED,
    Conversion,
    ConvertOptions,
    GatheredConversions,
    left_alone,
    why_not,
)
from accelify.deep_nesting import deeply
from accelify.dropped_moves import MovePlace
from accelify.lowering import Plain, lower
from accelify.other_callers import OtherCallers, other_callers
from accelify.project import Imports
from accelify.screen import is_made_by_configuration, may_train
from accelify.source import Source
from accelify.transforms import DRAWN_ALONE, THREADING, TRANSFORMS
from accelify.transforms.base import Change, Context
from accelify.unread_imports import without_unread_imports

NO_LOOP = "it has no training loop (no call of backward)"
_PASS_IT = "pass it the Accelerator as that script does"


def convert_paths(paths: Iterable[Path], options: ConvertOptions | None = None) -> list[Conversion]:
    """Convert scripts; writes nothing.

    Raises:
        SourceError: when one of them cannot be read.
    """
    imports, scripts = Imports(), list(paths)
    imports.converting = {path.resolve() for path in scripts}
    while True:
        gathered = GatheredConversions()
        for path in scripts:
            if not gathered.has(path):
                gathered.add(convert_project(Source.read(path), options, imports))
        left = gathered.left_as_they_are(imports.converting)
        if not left:
            return gathered.conversions
        # They call what they have called before: that has to go on to fit.
        imports.converting -= left


def convert_source(
    source: Source,
    options: ConvertOptions | None = None,
    imports: Imports | None = None,
    models: list[ScriptModel] | None = None,
) -> Conversion:
    """Convert one script; writes nothing.

    Args:
        source: the script.
        options: what the user chose.
        imports: where to look whether a script without a training loop starts one of its project; None: nowhere.
        models: takes the script's model, for callers that query it further and release it then.

    Raises:
        SourceError: when it is not Python.
    """
    chosen = options or ConvertOptions()

    def again(moves: frozenset[MovePlace]) -> list[Conversion]:
        return [convert_source(source, chosen._replace(retained=chosen.retained | moves), imports)]

    try:
        found = deeply(lambda: _convert_source(source, chosen, imports, models))
    except RecursionError:
        return left_alone(source, FAILED, "it nests too deeply to be read")
    found.again = again if found.dropped else None
    return found


def _convert_source(
    source: Source, options: ConvertOptions, imports: Imports | None, models: list[ScriptModel] | None
) -> Conversion:
    name = str(source.path) if source.path else "<stdin>"
    if (
        not may_train(source.text)
        and not (
            imports is not None and source.path is not None and imports.leads_to_training(Path(source.path))
        )
        and not is_made_by_configuration(source.text)
    ):
        _ = source.tree  # a syntax error is reported even where nothing trains
        return _without_seen_loop(source, imports)
    tree = Tree(source.text, name, source.tree)
    done: list[ScriptModel] = []
    try:
        return _convert(source, tree, name, options, models if models is not None else done, imports)
    except RecursionError:
        raise
    except Exception as error:  # one odd script must not keep the others from being converted
        where = error.__traceback__
        while where is not None and where.tb_next is not None:
            where = where.tb_next
        place = (
            f" in {Path(where.tb_frame.f_code.co_filename).name}:{where.tb_lineno}"
            if where is not None
            else ""
        )
        reason = f"accelify itself failed on it ({type(error).__name__}: {error}{place}); please report this script"
        return left_alone(source, FAILED, reason)
    finally:
        for model in done:
            model.release()


def _convert(
    source: Source,
    tree: Tree,
    name: str,
    options: ConvertOptions,
    models: list[ScriptModel],
    imports: Imports | None,
) -> Conversion:
    for runtime in ("accelify", options.runtime):
        if imports_package(tree, runtime):
            return left_alone(source, UNCHANGED, f"it is converted already (it imports {runtime})")
    if is_handed_an_accelerator(tree):
        return left_alone(source, UNCHANGED, "it is converted already (its backward is an Accelerator's)")
    program = Program(tree, Path(source.path) if source.path else None)
    if not may_train(source.text) and not program.may_train() and program.unread_loop() is None:
        return _without_loop(source, tree, imports)  # it imports a module with a loop, and uses none
    script = ScriptModel(tree, program.entry.path, program=program)
    models.append(script)
    plain = lower(script, replace_ddp=options.replace_ddp) if _may_be_lowered(tree.text, options) else None
    if plain is not None:
        return _convert_plain(source, script, plain, name, options, imports)
    plan = _planned(script, options)
    if plan.blockers and plan.blockers[0].code == "ACC002":
        return _without_loop(source, tree, imports)
    if plan.blockers:
        refused = _blocked(source, script.tree, name, _as_asked(plan.blockers, options))
        return source.finished(refused, options.runtime)
    others = OtherCallers(script, [source], imports) if imports is not None else None
    context, changes = _changes(script, plan, name, options, others)
    found = apply_changes([source], script.tree, context, changes)[0]
    context.release()
    _leave_out_imports([found], others)
    if others is not None and found.status == CONVERTED:
        # Scripts that import its functions are converted without it, and call them as before.
        found.until = other_callers(others, plan, [found])
        found.remaining += [finding for finding, _ in found.until]
    return source.finished(found, options.runtime)


def _without_loop(source: Source, tree: Tree, imports: Imports | None) -> Conversion:
    """A script that calls no backward: it trains nothing, or by way of a class that only the run knows."""
    line = picks_by_name(tree)
    configured = made_by_configuration(tree) if line is None else None
    beside = imports.training_beside(Path(source.path)) if configured and imports and source.path else None
    if configured is not None and beside is not None:
        why = f"line {configured} makes what the configuration names, and its training loop may be in {beside.name}"
        return left_alone(source, REFUSED, f"{why}: write the class out, and import it")
    if (
        line is None
        or imports is None
        or source.path is None
        or not imports.leads_to_training(Path(source.path))
    ):
        return _without_seen_loop(source, imports)
    why = f"line {line} picks what it runs by a name that only the run knows, and its training loop may be there"
    return left_alone(source, REFUSED, f"{why}: convert the module that has it, or write the name out")


def _without_seen_loop(source: Source, imports: Imports | None) -> Conversion:
    """A script that trains nothing, or by way of a module that is imported by a name which only the run knows."""
    by_name = imports.training_by_name(Path(source.path)) if imports and source.path else None
    if by_name is None:
        return left_alone(source, UNCHANGED, NO_LOOP)
    path, line, beside = by_name
    where = (
        f"line {line}"
        if path == Path(source.path or "").resolve()
        else f"line {line} of {path.parent.name}/{path.name}"
    )
    why = f"{where} imports what it runs by a name that only the run knows, and its training loop may be in"
    return left_alone(source, REFUSED, f"{why} {beside.name}: write the import out")


def _planned(script: ScriptModel, options: ConvertOptions) -> Plan:
    """The plan of a script; a script that only evaluates, and cannot get the Accelerator, has its data whole in it."""
    plan = Plan(script, options.batch_size, options.runtime)
    beyond = plan.beyond_reach()
    return Plan(script, options.batch_size, options.runtime, beyond=beyond) if beyond else plan


def _may_be_lowered(text: str, options: ConvertOptions) -> bool:
    return "apex" in text or (options.replace_ddp and "istributed" in text)


def _convert_plain(
    source: Source,
    script: ScriptModel,
    plain: Plain,
    name: str,
    options: ConvertOptions,
    imports: Imports | None,
) -> Conversion:
    """Convert the plain form of a script that distributed or scaled by hand; places are those of the script itself."""
    if not plain.problems and plain.known.distributed and options.batch_size == "total":
        whole = script.tree.module.body[0]
        reason = "its batch sizes are those of one process, and --batch-size total would change them"
        plain.problems.append((whole, reason))
    if plain.problems:
        blockers = [Blocker("ACC011", text, node) for node, text in plain.problems]
        return _blocked(source, script.tree, name, blockers)
    try:
        tree = Tree(plain.text, name)
    except SyntaxError:
        whole = script.tree.module.body[0]
        return _blocked(source, script.tree, name, [Blocker("ACC011", "its plain form is not Python", whole)])
    plan = Plan(ScriptModel(tree, script.path), options.batch_size, options.runtime, plain.known)
    if plan.blockers:
        found = _blocked(source, tree, name, plan.blockers)
    else:
        changes = _changes(plan.script, plan, name, options)
        found = apply_changes([Source.from_text(plain.text, source.path)], tree, *changes)[0]
        found = replace(found, source=source, lowered=plain.text)
    if found.status == CONVERTED:
        applied = [plain.original(f) for f in found.applied]
        found.applied = sorted({*applied, *plain.findings})
        _leave_out_imports([found], OtherCallers(script, [source], imports) if imports is not None else None)
    else:
        found.new_text = source.text
    found.remaining = sorted({plain.original(f) for f in found.remaining})
    return source.finished(found, options.runtime)


def _changes(
    script: ScriptModel, plan: Plan, name: str, options: ConvertOptions, others: OtherCallers | None = None
) -> tuple[Context, list[Change]]:
    def stays_called(scope: Scope) -> bool:
        return others is not None and plan.reach is not None and others.stay(scope, plan.reach.threaded)

    context = Context(script, plan, name, stays_called)
    context.retained = options.retained
    changes: list[Change] = []
    for transform in TRANSFORMS:
        changes.extend(transform(context))
    changes.extend(DRAWN_ALONE(context, changes))
    changes.extend(THREADING(context, changes))
    return context, changes


def _leave_out_imports(conversions: Iterable[Conversion], others: OtherCallers | None) -> None:
    """Take out imports that the edits have left without a reader."""
    for one in conversions:
        if one.status != CONVERTED:
            continue
        read = partial(others.reading, one.source.path) if others is not None else set[str]().intersection
        one.new_text = without_unread_imports(one.source.text, one.new_text, read)


def _as_asked(blockers: list[Blocker], options: ConvertOptions) -> list[Blocker]:
    """The reasons without the advice to use an option that is set already."""
    advice = "--replace-ddp may convert it"
    alone = "--replace-ddp converts scripts whose loop is in their own file"
    if not options.replace_ddp:
        return blockers
    return [blocker._replace(message=blocker.message.replace(advice, alone)) for blocker in blockers]


def convert_project(
    source: Source, options: ConvertOptions | None = None, imports: Imports | None = None
) -> list[Conversion]:
    """Convert a script and, where its training loop is in other modules of its project, those with it.

    The files are one group: all of them are converted or none. The conversion of the script comes first; writes
    nothing.

    Args:
        source: the script.
        options: what the user chose.
        imports: shared by several scripts of one project, so that its files are searched once.

    Raises:
        SourceError: when the script is not Python.
    """
    models: list[ScriptModel] = []

    def again(moves: frozenset[MovePlace]) -> list[Conversion]:
        known = options or ConvertOptions()
        return convert_project(source, known._replace(retained=known.retained | moves), imports)

    def work() -> list[Conversion]:
        models.clear()
        return _convert_project(source, options or ConvertOptions(), imports or Imports(), models)

    try:
        found = deeply(work)
    except RecursionError:
        found = [left_alone(source, FAILED, "it nests too deeply to be read")]
    for model in models:
        model.release()
    found = [*found, *found[0].helpers]
    if any(one.dropped for one in found):
        found[0].again = again
    return found


def _convert_project(
    source: Source, options: ConvertOptions, imports: Imports, models: list[ScriptModel]
) -> list[Conversion]:
    alone = convert_source(source, options, imports, models)
    if source.path is None:
        return [alone]
    if any(f.code == "ACC009" for f in alone.remaining):
        return _convert_together(source, models, options, imports)
    if any(f.code == "ACC005" for f in alone.remaining):
        # What it trains may be stored by a class of another module, which can be converted with it.
        together = _convert_together(source, models, options, imports)
        return together if together[0].status == CONVERTED else [alone]
    if (
        alone.status == CONVERTED
        and not _may_be_lowered(source.text, options)
        and (models[0].trains_more_elsewhere() or placing_bases(models[0]))
    ):
        # Other modules train, too, or have the base class that places what trains: else only the script's loop trains.
        together = _convert_together(source, models, options, imports)
        if together[0].status == CONVERTED or together[0].reason.endswith(_PASS_IT):
            return together
    elif _done_by_all([alone]) and not _may_be_lowered(source.text, options):
        bases = {module.path for module in writing_bases(models[0])}
        together = _convert_together(source, models, options, imports) if bases else [alone]
        if any(c.place in bases for c in together) and _done_by_all(together) < _done_by_all([alone]):
            return together
    return [alone]


def _convert_together(
    source: Source, models: list[ScriptModel], options: ConvertOptions, imports: Imports
) -> list[Conversion]:
    """Convert a script with the modules of its project that train; adds the model of them all to that of the script."""
    assert source.path is not None
    try:
        script = ScriptModel(models[0].tree, Path(source.path), project=True, known=models[0])
        models.append(script)
        if bases := placing_bases(script):
            script.join(bases)
        found = _convert_group(source, script, options, imports)
        if (left := _done_by_all(found)) and (bases := writing_bases(script)):
            script.join(bases)
            more = _convert_group(source, script, options, imports)
            # Who else derives from such a class would have to pass it the Accelerator: it is only convenient.
            if more[0].status == CONVERTED and len(more[0].until) <= len(found[0].until):
                found = more if _done_by_all(more) < left else found
    except ValueError as error:
        return [left_alone(source, REFUSED, f"its files cannot be converted together: {error}")]
    except RecursionError:
        raise
    except Exception as error:
        return [left_alone(source, FAILED, f"accelify itself failed on it ({type(error).__name__}: {error})")]
    for conversion in found[1:]:
        if not conversion.changed:  # findings of an unchanged file are reported with the script
            found[0].remaining += conversion.remaining
    return [c for c in found if c is found[0] or c.changed]


def _done_by_all(found: list[Conversion]) -> int:
    """How much is left that all processes do where one would be enough, or load to one place."""
    return sum(f.code.startswith("ACC2") for c in found for f in c.remaining)


def _convert_group(
    source: Source, script: ScriptModel, options: ConvertOptions, imports: Imports
) -> list[Conversion]:
    """Convert the modules of a script that are joined, and those that turn out to have to come along."""
    name = str(source.path)
    while True:
        sources = _sources(source, script)
        converted = _converted_already(script, sources, options)
        if converted is not None:
            return [converted]
        plan = _planned(script, options)
        # What calls a function that cannot do without the Accelerator is converted with it.
        callers = list(plan.reach.elsewhere) if plan.blockers and plan.reach is not None else []
        if not callers or any(module.path is None for module in callers):
            break
        script.join(callers)
    if plan.blockers:
        refused = _blocked(source, script.tree, name, _as_asked(plan.blockers, options))
        return [source.finished(refused, options.runtime)]
    others = OtherCallers(script, sources, imports)
    context, changes = _changes(script, plan, name, options, others)
    found = apply_changes(sources, script.tree, context, changes)
    context.release()
    _leave_out_imports(found, others)
    found[0] = source.finished(found[0], options.runtime)
    if found[0].status == REFUSED:
        return [found[0]]
    found[0].until = other_callers(others, plan, found)
    found[0].remaining += [finding for finding, _ in found[0].until]
    for module, conversion in zip(script.modules, found, strict=False):
        conversion.functions = _functions(script, plan, module)
    return found


def _sources(source: Source, script: ScriptModel) -> list[Source]:
    """The files of a group, those of its modules named the way the script is named."""
    assert source.path is not None
    assert isinstance(script.tree, JoinedTree)
    sources = [source]
    for module in script.modules[1:]:
        assert module.path is not None
        sources.append(Source.read(_shown(source.path, module.path)))
    for part, one in zip(script.tree.trees, sources, strict=True):
        part.path = str(one.path)
    return sources


def _shown(script: Path | str, module: Path) -> Path:
    """The path of a module, written relative to the script as the user named it."""
    own = Path(script)
    return Path(os.path.normpath(own.parent / os.path.relpath(module, own.resolve().parent)))


def _converted_already(
    script: ScriptModel, sources: list[Source], options: ConvertOptions
) -> Conversion | None:
    """The message where a module that the script trains with was converted, for another script or before."""
    assert isinstance(script.tree, JoinedTree)
    taking = calls_without(script) if len(script.modules) > 1 else None
    if taking is not None:
        path = _shown(sources[0].path or "", taking.path) if taking.path is not None else taking.name
        return left_alone(sources[0], REFUSED, f"its module {path} is converted already: {_PASS_IT}")
    for module, part, one in zip(script.modules[1:], script.tree.trees[1:], sources[1:], strict=True):
        handed = any(
            (dotted(call.func) or "").endswith(f"{NAME}.backward") and script.module_of(call) is module
            for call in script.calls()
        )
        if handed or any(imports_package(part, r) for r in ("accelify", options.runtime)):
            reason = f"it is converted already, as its module {one.path} is"
            return left_alone(sources[0], UNCHANGED, reason)
    return None


def _functions(script: ScriptModel, plan: Plan, module: Module) -> dict[str, bool]:
    """The functions and classes of a module that the script reaches, and whether they take the Accelerator."""
    threaded = plan.reach.threaded if plan.reach is not None else []
    homes = {node_of(script, s) for s in module.scopes.functions() if s not in script.dormant}
    return {home.name: home in threaded for home in homes if home.kind != "module"}


def _blocked(source: Source, tree: Tree, name: str, blockers: list[Blocker]) -> Conversion:
    blocker = blockers[0]
    status = UNCHANGED if blocker.code in ("ACC000", "ACC002") else REFUSED
    found = left_alone(source, status, blocker.message)
    if status == REFUSED:
        for one in blockers:
            path, line, column = (
                tree.place(one.node)
                if one.node is not None and tree.parent(one.node) is not None  # else of a module it imports
                else (name, 1, 1)
            )
            effort = 0 if one.code == "ACC001" else 30
            found.remaining.append(why_not(path, line, column, one.code, one.message, effort))
    return found
