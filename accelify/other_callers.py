"""Who else calls what a script's conversion changed: files of the project that are not converted with it.

reader.py:     def load(path):      ->  def load(path, accelerator=None):
predictor.py:  Reader.load(path)        stays as it is, and fits

nets.py:       x = x.cuda()         ->  (gone: the prepared loader places its batches)
predictor.py:  nets.scores(x)           stays as it is, and is named (ACC409)

base.py:       self.accelerator = accelerator
other.py:      class Other(Base), whose __init__ does not call that of Base: named, too

net = DataParallel(net)    ->  (gone)    with its weights saved; files that read them with `module.` are named, too

agent.py:      def __init__(self):  ->  def __init__(self, accelerator=None):
               def restored(cls): return cls()
predictor.py:  Agent.restored()         which the script itself never calls
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from accelify import files_read
from accelify.analysis.modules.search_path import top_of_project, up_to_top
from accelify.analysis.planning.plan import Plan
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.calls_without_accelerator import calls_left
from accelify.conversion import Conversion
from accelify.findings import Finding, Safety
from accelify.project import Imports
from accelify.source import Source, SourceError, python_files
from accelify.weight_readers import reads_with_prefix
from accelify.writer.attributes import Attributes

# The code of the finding about scripts that call what was converted without them.
OTHER_CALLERS = "ACC409"
# That of the moves which prepare takes over.
_MOVE = "ACC104"
# And of the wrappers that it replaces.
_PARALLEL = "ACC109"
_MOVES_NOTHING = "no longer moves to the device what prepare places"
# Of a folder with more files than these, the first ones are looked at: conversion is to stay quick.
_MOST_FILES = 4000
# And of one around the script that no project marks, these.
_MOST_ABOVE = 100
_ENDINGS = (".py", ".ipynb")


class OtherCallers:
    """Who calls the functions and classes of a script's files, among files of the project outside of them.

    Args:
        script: the model of the files that are converted together.
        sources: those files, the entry script first.
        imports: who imports whom.
    """

    def __init__(self, script: ScriptModel, sources: list[Source], imports: Imports) -> None:
        self.script = script
        self._imports = imports
        self._entry = Path(sources[0].path) if sources[0].path is not None else None
        self._together = {Path(source.path).resolve() for source in sources if source.path is not None}
        self._files: dict[Path, list[Path]] = {}
        self._found: dict[Scope, list[Path]] = {}

    def of(self, scope: Scope) -> list[Path]:
        """The files that call a function or class, or derive a class from it that calls its `__init__`."""
        if scope not in self._found:
            self._found[scope] = self._callers(scope)
        return self._found[scope]

    def _callers(self, scope: Scope) -> list[Path]:
        module = _home(self.script, scope)
        if module is None or self._entry is None:
            return []
        if module not in self._files:
            self._files[module] = _files(self._entry, module, self._together, self._imports)
        name, method = _names(scope)
        return self._imports.mentioning(name, module, self._files[module], self._together, method)

    def reading_weights(self) -> list[Path]:
        """The files that load weights by the names that they have in a DataParallel."""
        if self._entry is None:
            return []
        found = []
        near = [p for folder in _folders(self._entry, {self._entry}) for p in python_files(folder, _ENDINGS)]
        for path in islice(dict.fromkeys(near), _MOST_FILES):
            with suppress(SyntaxError, ValueError, SourceError):
                if self._imports.place(path) in self._together:
                    continue
                source = Source.read(path)
                if "load_state_dict" in source.text and reads_with_prefix(source.tree):
                    found.append(path)
        return found

    def reading(self, module: Path | None, names: Collection[str]) -> set[str]:
        """Those of some names of a file that another file may import from it, or read as its attributes."""
        if module is None or self._entry is None:
            return set()
        if module.name == "__init__.py":
            return {*names}
        place = module.resolve()
        if place not in self._files:
            self._files[place] = _files(self._entry, place, self._together, self._imports)
        stem, found = re.escape(place.stem), set[str]()
        taken = re.compile(rf"\bfrom\s+[\w.]*\b{stem}\s+import\s*(\([^)]*\)|[^\n]*)".encode())
        renamed = re.compile(rf"\b{stem}\s+as\s".encode())
        for path in (*self._files[place], *(self._together - {place})):
            data = files_read.read(self._imports.place(path)) or b""
            parts = [match[1] for match in taken.finditer(data)]
            if any(b"*" in part for part in parts) or renamed.search(data):
                parts = [data]
            for name in map(str.encode, names):
                if any(re.search(rb"\b" + name + rb"\b", part) for part in parts) or re.search(
                    rb"\b" + stem.encode() + rb"\s*\.\s*" + name + rb"\b", data
                ):
                    found.add(name.decode())
        return found

    def stay(self, scope: Scope, threaded: Collection[Scope]) -> bool:
        """Whether calls that would need the Accelerator stay as they are: in other files that are not converted in this
        run either, or in functions that only those reach, or where none is seen.

        Args:
            scope: a function or class of the files.
            threaded: all that take the Accelerator.
        """
        outside = [path for path in self.of(scope) if path.resolve() not in self._imports.converting]
        unseen = [
            one
            for one in threaded
            if one.kind == "function" and one not in self.script.dormant and not self.script.callers(one)
        ]
        # Who calls such a one by a name made at run time may call its neighbours so.
        looked_up = scope.kind == "function" and scope.parent in {one.parent for one in unseen}
        left = any(called is scope for _, called in calls_left(self.script, threaded))
        return bool(outside) or looked_up or left


def other_callers(
    others: OtherCallers, plan: Plan, conversions: Collection[Conversion] = ()
) -> list[tuple[Finding, frozenset[Path]]]:
    """Functions that were changed for all who call them, where scripts outside of the group do: with those.

    Args:
        others: who calls them.
        plan: which functions take the Accelerator.
        conversions: what became of the files.
    """
    script = others.script
    applied = [finding for conversion in conversions for finding in conversion.applied]
    if plan.reach is None:
        return []
    fitting = {scope for scope in plan.reach.threaded if others.stay(scope, plan.reach.threaded)}
    taking = [scope for scope in plan.reach.threaded if scope not in fitting]
    changed = [(scope, "takes the Accelerator now") for scope in taking]
    known = {plan.reach.root, *taking}  # those that make the Accelerator lack nothing
    changed += [(scope, _MOVES_NOTHING) for scope in _without_moves(script, known, applied)]
    found: list[tuple[Finding, frozenset[Path]]] = []
    asked = [(scope, what, others.of(scope)) for scope, what in changed]
    for scope in (plan.reach.root, *plan.reach.threaded):
        asked += [(scope, what, [path]) for path, what in _left_without(others, scope, conversions)]
    for scope, what, callers in asked:
        if callers:
            name, method = _names(scope)
            shown = f"{name}.{method}" if method else name
            message = f"`{shown}` {what}; not converted with it: {_listed(callers)}"
            finding = _finding(script.tree.place(scope.node), message)
            found.append((finding, frozenset(caller.resolve() for caller in callers)))
    for removed in [one for one in applied if one.code == _PARALLEL][:1]:
        wraps = script.tree.mentions("DataParallel")  # `data_parallel(net, x)` leaves the names as they are
        if wraps and script.tree.mentions("save(") and (readers := others.reading_weights()):
            message = (
                f"weights are saved without `module.` before their names now, and read with it in {_listed(readers)}: "
                'let these take both, with `name.removeprefix("module.")`'
            )
            found.append(
                (
                    _finding((removed.path, removed.line, removed.column), message),
                    frozenset(one.resolve() for one in readers),
                )
            )
    return found


def _listed(files: Iterable[Path]) -> str:
    return ", ".join(map(str, files))


def _finding(place: tuple[str, int, int], message: str) -> Finding:
    return Finding(
        *place,
        OTHER_CALLERS,
        "other-callers",
        message,
        safety=Safety.MANUAL,
        effort=10,
        fixable=False,
    )


def _left_without(
    others: OtherCallers, scope: Scope, conversions: Iterable[Conversion]
) -> Iterator[tuple[Path, str]]:
    """The files with classes derived from one whose objects would lack an attribute, and the words for it."""
    home = _home(others.script, scope) if scope.kind == "class" else None
    changed = next((one for one in conversions if home is not None and one.place == home.resolve()), None)
    if changed is None or not changed.changed:
        return
    for path in others.of(scope):
        with suppress(SyntaxError, ValueError, SourceError):
            further = Source.read(path).tree.body
            before, after = (
                Attributes(ast.Module([*ast.parse(text).body, *further], []))
                for text in (changed.source.text, changed.new_text)
            )
            for derived, name in sorted(after.lacking - before.lacking):
                made = f"without which objects of `{derived}` are made"
                yield path, f"sets `{name}` in its `__init__` now, {made}"


def _without_moves(
    script: ScriptModel, threaded: Collection[Scope], applied: Iterable[Finding]
) -> Iterator[Scope]:
    """The functions and classes that lost a move, and that nobody is made to call with the Accelerator."""
    lines: dict[str, list[int]] = {}
    for finding in applied:
        if finding.code == _MOVE:
            lines.setdefault(finding.path, []).append(finding.line)
    for module in script.modules if lines else ():
        for scope in module.scopes.module.children.values():
            path, first, _ = script.tree.place(scope.node)
            last = script.tree.end_place(scope.node)[1]
            if scope not in threaded and any(first <= line <= last for line in lines.get(path, ())):
                yield scope


def _home(script: ScriptModel, scope: Scope) -> Path | None:
    """The file of a function or class that others can call by its name; None where there is none."""
    if isinstance(scope.node, ast.Module):
        return None
    outer = scope.parent if scope.is_method else scope
    if outer is None or outer.parent is None or outer.parent.kind != "module":
        return None
    return script.module_of(scope.node).path


def _names(scope: Scope) -> tuple[str, str]:
    """The name that others import, and that of its static method where this is one."""
    assert not isinstance(scope.node, ast.Module)
    if scope.is_method and scope.parent is not None and isinstance(scope.parent.node, ast.ClassDef):
        return scope.parent.node.name, scope.node.name
    return scope.node.name, ""


def _folders(script: Path, modules: Iterable[Path]) -> list[Path]:
    """Where callers can be: below the script's folder and the packages of the modules, and what holds them all.

    What holds them all is looked through only inside of one project: a module can be anywhere on the path.
    """
    own = script.resolve().parent
    found = [own]
    for module in modules:
        top = module.resolve().parent
        while files_read.exists(top / "__init__.py") and top.parent != top:
            top = top.parent
        inner = module.resolve().relative_to(top).parts
        found.append(top / inner[0] if len(inner) > 1 else top)
    project = top_of_project(own)
    together = Path(os.path.commonpath(found))
    if project is not None and together.is_relative_to(project):
        found = [together]
    outermost = [one for one in found if not any(one != o and one.is_relative_to(o) for o in found)]
    return [_beside(script, one) for one in dict.fromkeys(outermost)]


def _around(script: Path) -> Iterator[Path]:
    """Files farther away, which import a script by the name of its folder: those of the project around it, and where
    no file marks one, those that are right in the folders above."""
    own = script.resolve().parent
    project = top_of_project(own)
    if project is not None:
        yield from islice(python_files(_beside(script, project), _ENDINGS), _MOST_FILES)
    for folder in up_to_top(own)[1:] if project is None else ():
        with suppress(OSError):  # a folder that cannot be listed
            listed = (folder / name for name in files_read.names_in(folder)[1])
            files = (path for path in listed if files_read.is_file(path))
            yield from (_beside(script, path) for path in islice(files, _MOST_ABOVE))


def _beside(script: Path, place: Path) -> Path:
    """A place as a path of the form in which the script's was written."""
    return Path(os.path.normpath(script.parent / os.path.relpath(place, script.resolve().parent)))


def _files(script: Path, module: Path, together: set[Path], imports: Imports) -> list[Path]:
    """The files in which calls of what a module has can be, the nearest first."""
    near = [
        path
        for folder in _folders(script, {module})
        for path in islice(python_files(folder, _ENDINGS), _MOST_FILES)
    ]
    far = imports.naming_place(_around(script), module.resolve())
    return [path for path in dict.fromkeys([*near, *far]) if imports.place(path) not in together]
