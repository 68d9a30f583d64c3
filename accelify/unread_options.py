"""Options and constants of a script that nothing reads any more once it is converted.

parser.add_argument("--gpu", type=int)
torch.cuda.set_device(args.gpu)              ->  (gone)      `--gpu` decides nothing: the launch chooses the devices
USE_AMP = True                               stays, and what read it is gone

What only a variable reads that nothing reads itself counts as unread, too: `amp = args.amp`.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from accelify.analysis.statements.option_defaults import option_name
from accelify.conversion import Conversion
from accelify.findings import Finding
from accelify.source import SourceError, parse

# What decides in their place, by the codes of the edits that took out what read them.
_PRECISION = (
    "mixed precision comes from `mixed_precision` of the Accelerator, "
    "or else from the launch (`--mixed_precision`)"
)
_DEVICES = "the launch chooses the devices (`--gpu_ids`, `--cpu`)"
_PROCESSES = "the launch starts the processes (`--num_processes`)"
_DECIDES = {
    **dict.fromkeys(("ACC110", "ACC111", "ACC117"), _PRECISION),
    **dict.fromkeys(("ACC103", "ACC104", "ACC113", "ACC118", "ACC126", "ACC207"), _DEVICES),
    **dict.fromkeys(("ACC109", "ACC116"), _PROCESSES),
    "ACC112": "batches are accumulated by the Accelerator's `gradient_accumulation_steps`",
}
_OTHERWISE = "the edits have taken out what it decided"
# How many variables may stand for each other.
_DEEPEST = 4
# A file, and the lines in which an edit takes out what is read there: of a test those of its branches, too.
_Place = tuple[Path | None, int, int]


@dataclass
class _Reads:
    """What some files define and read, by name: attributes and texts, and in each file its variables."""

    options: dict[str, tuple[str, Path | None, int]] = field(default_factory=dict)
    constants: dict[tuple[Path | None, str], int] = field(default_factory=dict)
    words: dict[str, list[_Place]] = field(default_factory=dict)
    names: dict[tuple[Path | None, str], list[_Place]] = field(default_factory=dict)
    # Where a variable that nothing reads itself reads an option, that variable.
    idle: dict[str, list[tuple[Path | None, str]]] = field(default_factory=dict)


def unread_options(
    conversions: Collection[Conversion], modules: Mapping[Path | None, str]
) -> list[tuple[Path | None, str]]:
    """Sentences about the options and constants that a conversion leaves without a reader, each with its file.

    Args:
        conversions: of a script and of the modules that are converted with it.
        modules: the texts of the other modules that it imports.
    """
    before = _reads({**modules, **{one.place: one.source.text for one in conversions}})
    after = _reads({**modules, **{one.place: one.new_text for one in conversions}}, before)
    if before is None or after is None:
        return []
    applied = {one.place: one.applied for one in conversions}
    found: dict[tuple[Path | None, str], list[str]] = {}
    for name, (shown, path, line) in before.options.items():
        lost = before.words.get(name, [])
        if lost and name in after.options and not after.words.get(name):
            lost = [
                *lost,
                *(place for one in after.idle.get(name, []) for place in before.names.get(one, [])),
            ]
            found.setdefault((path, _why(lost, applied)), []).append(f"`{shown}` (line {line})")
    for (path, name), line in before.constants.items():
        known = (path, name)
        lost = [*before.names.get(known, []), *before.words.get(name, [])]
        if lost and known in after.constants and not after.names.get(known) and not after.words.get(name):
            found.setdefault((path, _why(lost, applied)), []).append(f"`{name}` (line {line})")
    return [
        (path, f"{', '.join(those)} {'decide' if len(those) > 1 else 'decides'} nothing any more: {why}")
        for (path, why), those in found.items()
    ]


def _why(lost: Iterable[_Place], applied: Mapping[Path | None, Iterable[Finding]]) -> str:
    """What decides in the place of what was read at some lines."""
    codes = [
        one.code
        for path, first, last in lost
        for one in applied.get(path, ())
        if one.line <= last and first <= (one.end_line or one.line)
    ]
    return next((_DECIDES[code] for code in codes if code in _DECIDES), _OTHERWISE)


def _reads(texts: Mapping[Path | None, str], before: _Reads | None = None) -> _Reads | None:
    """What some files read; None where one of them is no Python."""
    found, trees = _Reads(), {}
    for path, text in texts.items():
        try:
            trees[path] = parse(text)
        except SourceError:
            return None
    passes = any(
        one.arg is None for tree in trees.values() for one in ast.walk(tree) if isinstance(one, ast.keyword)
    )
    idle: set[tuple[Path | None, str]] = set()
    for _ in range(_DEEPEST):
        found = _Reads()
        for path, tree in trees.items():
            _read(found, path, tree, idle, passes)
        # Variables alone, which the original has read.
        now = {
            (path, name)
            for path, name in _stored(trees)
            if (path, name) not in found.names
            and name not in found.words
            and (before is None or before.names.get((path, name)))
        }
        if now <= idle:
            break
        idle |= now
    return found


def _stored(trees: Mapping[Path | None, ast.Module]) -> set[tuple[Path | None, str]]:
    return {
        (path, node.targets[0].id)
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)
    }


def _read(
    found: _Reads, path: Path | None, tree: ast.Module, idle: set[tuple[Path | None, str]], passes: bool
) -> None:
    stores = Counter(n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    modules, imported, starred = set(), dict[str, str](), False
    for node in ast.walk(tree):
        for alias in node.names if isinstance(node, (ast.Import, ast.ImportFrom)) else ():
            starred |= alias.name == "*"
            if isinstance(node, ast.Import):
                modules.add(alias.asname or alias.name.partition(".")[0])
            else:
                imported[alias.asname or alias.name] = alias.name
    queue: list[tuple[ast.AST, str, int]] = [(tree, "", 0)]
    for node, variable, last in queue:  # which grows
        line = getattr(node, "lineno", 0)
        place, inner = (path, line, last or line), variable
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
            name = option_name(node)
            if name is not None:
                flags = [str(one.value) for one in node.args if isinstance(one, ast.Constant)]
                shown = next((flag for flag in flags if flag.startswith("--")), name)
                found.options[name] = shown, path, line
            queue += [(k.value, variable, last) for k in node.keywords if k.arg not in ("dest", "help")]
            continue
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            target = targets[0]
            if len(targets) == 1 and isinstance(target, ast.Name):
                if (path, target.id) in idle:
                    inner = target.id
                if stores[target.id] == 1 and node.value is not None and _is_literal(node.value):
                    found.constants[path, target.id] = line
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            if not variable:
                found.names.setdefault((path, node.id), []).append(place)
            if starred or node.id in imported:
                _note(found, imported.get(node.id, node.id), place, variable)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            if not (isinstance(node.value, ast.Name) and node.value.id in modules):
                _note(found, node.attr, place, variable)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            _note(found, node.value, place, variable)
        elif isinstance(node, ast.arg) and passes:
            _note(found, node.arg, place, "")
        for child in ast.iter_child_nodes(node):
            if isinstance(node, ast.If) and child is node.test:
                queue.append((child, inner, node.end_lineno or 0))
            else:
                queue.append((child, inner, 0 if isinstance(child, ast.stmt) else last))


def _note(found: _Reads, word: str, place: _Place, variable: str) -> None:
    if variable:
        found.idle.setdefault(word, []).append((place[0], variable))
    else:
        found.words.setdefault(word, []).append(place)


def _is_literal(value: ast.expr) -> bool:
    try:
        ast.literal_eval(value)
    except ValueError:
        return False
    return True
