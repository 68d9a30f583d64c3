"""The road that `convert` and `check` share: source, model, transforms, one application, report."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from accelify import edits as verbs
from accelify.analysis.joined import JoinedTree
from accelify.analysis.plan import Plan
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import Tree
from accelify.edits import Edit
from accelify.findings import Finding, Safety, Severity
from accelify.notebook import finished
from accelify.source import Source
from accelify.transforms import TRANSFORMS
from accelify.transforms.base import Change, Context

CONVERTED, UNCHANGED, REFUSED, FAILED = "converted", "unchanged", "refused", "failed"


@dataclass(frozen=True)
class ConvertOptions:
    """What the user chose.

    `batch_size`: `per-process` (each process takes the script's batch size) or `total` (the script's batch is split
    over the processes).
    """

    batch_size: str = "per-process"


@dataclass
class Conversion:
    """What became of one script.

    `status` is converted, unchanged, refused or failed; `reason` is one sentence for the last three. `applied` are the
    findings that an edit mended, `remaining` those that a person has to look at.
    """

    source: Source
    status: str
    reason: str = ""
    applied: list[Finding] = field(default_factory=list)
    remaining: list[Finding] = field(default_factory=list)
    new_text: str = ""

    @property
    def changed(self) -> bool:
        """Whether the new text differs from the old one."""
        return self.new_text != self.source.text


def convert_paths(paths: Iterable[Path], options: ConvertOptions | None = None) -> list[Conversion]:
    """Convert scripts; writes nothing.

    Raises:
        SourceError: when one of them cannot be read.
    """
    found: dict[Path | None, Conversion] = {}
    for path in paths:
        for conversion in convert_project(Source.read(path), options):
            known = found.get(conversion.source.path)
            if known is None or (conversion.changed and not known.changed):
                found[conversion.source.path] = conversion
    return list(found.values())


def convert_source(source: Source, options: ConvertOptions | None = None) -> Conversion:
    """Convert one script; writes nothing.

    Raises:
        SourceError: when it is not Python.
    """
    options = options or ConvertOptions()
    name = str(source.path) if source.path else "<stdin>"
    if not _may_train(source.text):
        _ = source.tree  # what is not Python is said even where nothing trains
        return _left_alone(source, UNCHANGED, "it has no training loop (no call of backward)")
    try:
        tree = Tree(source.text, name, source.tree)
    except RecursionError:
        return _left_alone(source, FAILED, "it nests too deeply to be read")
    try:
        return _convert(source, tree, name, options)
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
        return _left_alone(source, FAILED, reason)


def _convert(source: Source, tree: Tree, name: str, options: ConvertOptions) -> Conversion:
    if _imports_accelify(tree):
        return _left_alone(source, UNCHANGED, "it is converted already (it imports accelify)")
    script = ScriptModel(tree, Path(source.path) if source.path else None)
    plan = Plan(script, options.batch_size)
    if plan.blockers:
        return _blocked(source, script.tree, name, plan)
    return finished(_apply([source], script.tree, *_changes(script, plan, name))[0])


def _imports_accelify(tree: Tree) -> bool:
    return any(
        (name or "").split(".")[0] == "accelify"
        for node in tree.nodes(ast.Import, ast.ImportFrom)
        for name in ([a.name for a in node.names] if isinstance(node, ast.Import) else [node.module])
    )


def _changes(script: ScriptModel, plan: Plan, name: str) -> tuple[Context, list[Change]]:
    context = Context(script, plan, name)
    changes: list[Change] = []
    for transform in TRANSFORMS:
        changes.extend(transform(context))
    return context, changes


def convert_project(source: Source, options: ConvertOptions | None = None) -> list[Conversion]:
    """Convert a script and, where its training loop stands in other modules of its project, those with it.

    The files are one group: all of them are converted or none. The script's own conversion comes first; writes
    nothing.

    Raises:
        SourceError: when the script is not Python.
    """
    options = options or ConvertOptions()
    alone = convert_source(source, options)
    if source.path is None or not any(f.code == "ACC009" for f in alone.remaining):
        return [alone]
    name = str(source.path)
    try:
        script = ScriptModel(Tree(source.text, name), Path(source.path), project=True)
        folder = Path(source.path).resolve().parent
        sources = [source]
        for module in script.modules[1:]:
            assert module.path is not None
            # Named the way the script is named.
            shown = Path(source.path).parent / os.path.relpath(module.path, folder)
            sources.append(Source.read(shown))
        assert isinstance(script.tree, JoinedTree)
        for part, one in zip(script.tree.trees, sources, strict=True):
            part.path = str(one.path)
        plan = Plan(script, options.batch_size)
        if plan.blockers:
            return [_blocked(source, script.tree, name, plan)]
        found = _apply(sources, script.tree, *_changes(script, plan, name))
    except ValueError as error:
        return [_left_alone(source, REFUSED, f"its files cannot be converted together: {error}")]
    except Exception as error:
        return [
            _left_alone(source, FAILED, f"accelify itself failed on it ({type(error).__name__}: {error})")
        ]
    return [c for c in found if c is found[0] or c.changed]


def _may_train(text: str) -> bool:
    """The prefilter: a script with neither a backward nor an optimizer has nothing to convert."""
    return "torch" in text and ("backward" in text or "optim" in text)


def _left_alone(source: Source, status: str, reason: str) -> Conversion:
    return Conversion(source, status, reason, new_text=source.text)


def _blocked(source: Source, tree: Tree, name: str, plan: Plan) -> Conversion:
    blocker = plan.blockers[0]
    status = UNCHANGED if blocker.code in ("ACC000", "ACC002") else REFUSED
    found = _left_alone(source, status, blocker.message)
    if status == REFUSED:
        for one in plan.blockers:
            path, line, column = (
                tree.locate(tree.start(one.node))
                if one.node is not None and hasattr(one.node, "lineno")
                else (name, 1, 1)
            )
            found.remaining.append(
                Finding(
                    path,
                    line,
                    column,
                    one.code,
                    "left-alone",
                    f"left alone: {one.message}",
                    severity=Severity.ERROR,
                    safety=Safety.MANUAL,
                    effort=0 if one.code == "ACC001" else 30,
                    fixable=False,
                )
            )
    return found


def _apply(sources: list[Source], tree: Tree, context: Context, changes: list[Change]) -> list[Conversion]:
    """Make the edits: the core ones all or none, the others as far as they fit; a conversion for each file."""
    core = [c for c in changes if c.core]
    rest = [c for c in changes if not c.core]
    for change in core:
        if change.problem:
            return [_core_failed(sources[0], context, change.problem)]
    kept = [e for c in core for e in c.edits]
    try:
        data = _checked(tree, kept)
    except (verbs.EditError, SyntaxError, ValueError) as error:
        return [_core_failed(sources[0], context, _sentence(error))]
    applied, remaining = list(core), [c for c in rest if not c.edits]
    wanted = [c for c in rest if c.edits]
    try:
        # All at once first, which is the rule; one by one only where two of them collide.
        data = _checked(tree, [*kept, *[e for c in wanted for e in c.edits]])
        applied += wanted
    except (verbs.EditError, SyntaxError, ValueError):
        for change in wanted:
            try:
                data = _checked(tree, [*kept, *change.edits])
                kept += change.edits
                applied.append(change)
            except (verbs.EditError, SyntaxError, ValueError) as error:
                remaining.append(change.without_edits(_sentence(error)))
        data = _checked(tree, kept)
    done = {c.finding for c in applied if c.finding.fixable}
    left = {c.finding for c in [*remaining, *applied] if not c.finding.fixable}
    conversions = []
    for source, text in zip(sources, _texts(tree, data), strict=True):
        path = str(source.path) if source.path else "<stdin>"
        conversion = Conversion(source, CONVERTED, new_text=text)
        conversion.applied = sorted(f for f in done if f.path == path or len(sources) == 1)
        conversion.remaining = sorted(f for f in left if f.path == path or len(sources) == 1)
        conversions.append(conversion)
    return conversions


def _texts(tree: Tree, data: bytes) -> list[str]:
    parts = tree.cut(data) if isinstance(tree, JoinedTree) else [data]
    return [part.decode("utf-8") for part in parts]


def _checked(tree: Tree, edits: Iterable[Edit]) -> bytes:
    """The edited bytes, after a look whether they are still Python."""
    data = verbs.apply(tree, edits)
    for text in _texts(tree, data):
        compile(text, "<converted>", "exec", flags=ast.PyCF_ONLY_AST, dont_inherit=True)
    return data


def _sentence(error: Exception) -> str:
    """Why edits cannot be made, without the parser's words for a text that the user never sees."""
    return str(error) if isinstance(error, verbs.EditError) else "its edits do not fit together with others"


def _core_failed(source: Source, context: Context, message: str) -> Conversion:
    found = _left_alone(source, REFUSED, f"the core edits cannot be made: {message}")
    path, line, _ = context.tree.locate(context.tree.start(context.script.backwards[0].call))
    found.remaining.append(
        Finding(
            path,
            line,
            1,
            "ACC008",
            "left-alone",
            f"left alone: {message}",
            severity=Severity.ERROR,
            safety=Safety.MANUAL,
            effort=30,
            fixable=False,
        )
    )
    return found
