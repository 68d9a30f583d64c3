"""The road that `convert` and `check` share: source, model, transforms, one application, report."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from accelify import edits as verbs
from accelify.analysis.plan import Plan
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import Tree
from accelify.findings import Finding, Safety, Severity
from accelify.notebook import finished
from accelify.source import Source, SourceError
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
    return [convert_source(Source.read(path), options) for path in paths]


def convert_source(source: Source, options: ConvertOptions | None = None) -> Conversion:
    """Convert one script; writes nothing.

    Raises:
        SourceError: when it is not Python.
    """
    options = options or ConvertOptions()
    name = str(source.path) if source.path else "<stdin>"
    try:
        tree = Tree(source.text, name)
    except (SyntaxError, ValueError) as error:
        raise SourceError(f"{name}: not Python of this version: {error}") from error
    except RecursionError:
        return _left_alone(source, FAILED, "it nests too deeply to be read")
    if not _may_train(source.text):
        return _left_alone(source, UNCHANGED, "it has no training loop (no call of backward)")
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
    script = ScriptModel(tree, Path(source.path) if source.path else None)
    plan = Plan(script, options.batch_size)
    if plan.blockers:
        return _blocked(source, tree, name, plan)
    context = Context(script, plan, name)
    changes: list[Change] = []
    for transform in TRANSFORMS:
        changes.extend(transform(context))
    return finished(_apply(source, tree, context, changes))


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
            line, column = (
                tree.position(tree.start(one.node))
                if one.node is not None and hasattr(one.node, "lineno")
                else (1, 1)
            )
            found.remaining.append(
                Finding(
                    name,
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


def _apply(source: Source, tree: Tree, context: Context, changes: list[Change]) -> Conversion:
    core = [c for c in changes if c.core]
    rest = [c for c in changes if not c.core]
    for change in core:
        if change.problem:
            return _core_failed(source, tree, context, change.problem)
    kept = [e for c in core for e in c.edits]
    try:
        data = verbs.apply(tree, kept)
        _check(data)
    except (verbs.EditError, SyntaxError, ValueError) as error:
        return _core_failed(source, tree, context, str(error))
    applied, remaining = list(core), []
    # All at once first, which is the rule; one by one only where two of them collide.
    everything = [*kept, *[e for c in rest for e in c.edits]]
    try:
        data = verbs.apply(tree, everything)
        _check(data)
        applied += [c for c in rest if c.edits]
        remaining = [c for c in rest if not c.edits]
    except (verbs.EditError, SyntaxError, ValueError):
        for change in rest:
            if not change.edits:
                remaining.append(change)
                continue
            try:
                data = verbs.apply(tree, [*kept, *change.edits])
                _check(data)
                kept += change.edits
                applied.append(change)
            except (verbs.EditError, SyntaxError, ValueError) as error:
                remaining.append(change.without_edits(str(error)))
        data = verbs.apply(tree, kept)
    conversion = Conversion(source, CONVERTED, new_text=data.decode("utf-8"))
    conversion.applied = sorted({c.finding for c in applied if c.finding.fixable})
    conversion.remaining = sorted({c.finding for c in [*remaining, *applied] if not c.finding.fixable})
    return conversion


def _core_failed(source: Source, tree: Tree, context: Context, message: str) -> Conversion:
    found = _left_alone(source, REFUSED, f"the core edits cannot be made: {message}")
    line = context.script.backwards[0].call.lineno
    found.remaining.append(
        Finding(
            context.name,
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


def _check(data: bytes) -> None:
    text = data.decode("utf-8")
    compile(text, "<converted>", "exec", flags=ast.PyCF_ONLY_AST, dont_inherit=True)
