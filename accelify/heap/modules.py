"""Modules: found as `Program` finds them, run when something of them is first asked for."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from accelify.analysis.modules.search_path import NEVER_FOLLOWED, added_roots, module_file, roots_of
from accelify.domains.reasons import Reason
from accelify.domains.replacing import replace
from accelify.files_read import read
from accelify.heap.values import Library, ModuleRef, Ref, Value
from accelify.source import SourceError, parse

if TYPE_CHECKING:
    from accelify.heap.interpreter import Interpreter

_LARGEST = 1_000_000
# Modules that are imported and of which nothing is used.
_MOST_IMPORTED = 40


class Modules:
    """The script and the modules of its project that something of it reaches."""

    def __init__(
        self, engine: Interpreter, path: Path | None, read: Callable[[Path], str | None] | None
    ) -> None:
        self.engine = engine
        self.run = engine.run
        self.path = path
        self.folder = path.resolve().parent if path is not None else Path()
        self._read = read or text_of
        self._roots: list[Path] = []
        self._known: dict[Path, ModuleRef] = {}
        self._places: dict[str, Path | None] = {}
        # The names of modules that were imported and not looked for yet, in their order.
        self._later: dict[str, None] = {}
        self._copied: dict[str, bool] = {}
        # Names of modules by their last word, and whether the first that imports them is a function or a loop, and not
        # a module.
        self._in_passing: dict[str, dict[str, bool]] = {}

    def start(self, text: str) -> ModuleRef:
        """Run the script's own module, and give it."""
        tree = self._parsed(text, self.path)
        entry = ModuleRef("__main__", self.path.name if self.path is not None else "", tree, text)
        if self.path is not None:
            roots = roots_of(self.path)
            self._roots = list(
                dict.fromkeys([roots[0], *added_roots(self.path, text, roots, self._read), *roots[1:]])
            )
            self._known[self.path.resolve()] = entry
        self._go(entry)
        self._imported_only()
        return entry

    def _parsed(self, text: str, path: Path | None) -> ast.Module:
        tree = parse(text, path)
        if self.engine.moves is not None:
            self.run.moved.marks.update(self.engine.moves(path, tree))
        return tree

    def run_ones(self) -> list[ModuleRef]:
        """The modules that were run."""
        return [module for module in self._known.values() if module.state == "run"]

    def _imported_only(self) -> None:
        """Run what was imported and never asked for anything: what it does at its import, it does all the same."""
        read = 0
        for _ in range(_MOST_IMPORTED):
            module = self._new()
            if module is None or read > _LARGEST:
                break
            self.ready(module)
            read += len(module.text)

    def _new(self) -> ModuleRef | None:
        """The first module that was imported and not run yet."""
        while self._later:
            name = next(iter(self._later))
            del self._later[name]
            module = self._module(name)
            if module is not None and module.state == "new":
                return module
        return next((one for one in self._known.values() if one.state == "new"), None)

    @contextmanager
    def within(self, module: ModuleRef) -> Iterator[None]:
        """Go through something that stands in a module which was run."""
        self.run.modules.append(module)
        try:
            yield
        finally:
            self.run.modules.pop()

    def _go(self, module: ModuleRef) -> None:
        module.state = "run"
        self.run.modules.append(module)
        try:
            if module.tree is not None:
                self.engine.statements.block(module.tree.body, module)
        finally:
            self.run.modules.pop()

    def ready(self, module: ModuleRef) -> None:
        """Run a module, once."""
        if module.state != "new":
            return
        path = Path(module.path)
        text = self._read(path)
        module.state = "run"
        if text is None or len(text) > _LARGEST:
            return
        try:
            module.tree = self._parsed(text, path)
        except SourceError as error:
            self.run.unread[str(error)] = Reason(str(error), self._shown(path), error.line or 1)
            return
        module.text = text
        module.path = self._shown(path)
        module.copied = self._is_copied(module.name.partition(".")[0])
        # What a module does when it is imported happens before all, whoever asks for it, but where a function or a loop
        # imports it.
        before_all = not self._is_in_passing(path, module.name)
        guards, self.run.guards = self.run.guards, []
        loops, self.run.loops = self.run.loops, []
        events, self.run.events = self.run.events, []
        try:
            with self.run.store.outside():
                self._go(module)
        finally:
            self.run.guards, self.run.loops = guards, loops
            if before_all:
                self.run.imported += self.run.events
                self.run.events = events
            else:
                self.run.events = [*events, *self.run.events]

    def _is_copied(self, root: str) -> bool:
        """Whether a package is a known library's, of which the project has a copy: it says its version."""
        if root not in self._copied:
            place = self._place(root) if self.run.knowledge.knows(root) else None
            text = self._read(place) if place is not None and place.name == "__init__.py" else None
            self._copied[root] = "__version__" in (text or "")
        return self._copied[root]

    def _is_in_passing(self, path: Path, name: str) -> bool:
        """Whether the first that imports a module is a function or a loop."""
        words = (path.parent.name if path.name == "__init__.py" else path.stem, name.rpartition(".")[2])
        names = (one for word in dict.fromkeys(words) for one in self._in_passing.get(word, {}).items())
        return next((passing for base, passing in names if self._place(base) == path), False)

    def _shown(self, path: Path) -> str:
        """A file, relative to the script's folder."""
        if self.path is None:
            return str(path)
        return Path(os.path.relpath(path, self.folder)).as_posix()

    def imported(self, name: str, loaded: str) -> Value:
        """What `import name` binds."""
        place = self._place(name)
        if place is not None:
            self._module(loaded)
            return Value(refs=(self._at(place, name),))
        self._looked_for(name)
        return Value(refs=(Library(name),))

    def listed(self, name: str | None) -> Value | None:
        """What `sys.modules[name]` is, None where it is no module of the project."""
        if name == self.run.module.name:
            return Value(refs=(self.run.module,))
        return self.imported(name, name) if name and self._place(name) is not None else None

    def _looked_for(self, name: str) -> None:
        """Note a module that is neither in the project nor a library of which something is known."""
        root = name.partition(".")[0]
        known = root in sys.stdlib_module_names or root == "accelify" or self.run.knowledge.knows(root)
        if not known and self._place(root) is None:
            self.run.unknown_modules.setdefault(root)

    def import_from(self, stmt: ast.ImportFrom, scope: Ref) -> None:
        """`from base import names`."""
        base = self._absolute(stmt)
        # Within a package of the project nothing is looked for before it is asked for: it may import hundreds.
        in_project = self._place(base.split(".")[0]) is not None or self._place(base) is not None
        if in_project:
            self._later[base] = None
            alike = self._in_passing.setdefault(base.rpartition(".")[2], {})
            alike.setdefault(base, bool(self.run.calls or self.run.loops))
        else:
            self._looked_for(base)
        for alias in stmt.names:
            if alias.name == "*":
                module = self._module(base) if in_project else None
                if module is not None:
                    self.ready(module)
                    for name, value in list(module.fields.items()):
                        if not name.startswith("_"):
                            self.engine.names.write(name, value, scope)
                continue
            bound = alias.asname or alias.name
            if in_project:
                value = Value(refs=(_Later(base, alias.name),))
            else:
                value = Value(refs=(Library(f"{base}.{alias.name}" if base else alias.name),))
            self.engine.names.write(bound, value, scope)

    def loaded(self, value: Value, asked: frozenset[tuple[str, str]] = frozenset()) -> Value:
        """A value, with names of modules that were only imported so far looked up there, those in `asked` no more.

        Of several ways to import a name (`try` and its handler) those count that find it.
        """
        for ref in value.refs:
            if isinstance(ref, _Later):
                break
        else:
            return value
        found = [
            self._found(ref, asked) if isinstance(ref, _Later) else replace(value, refs=(ref,))
            for ref in value.refs
            if not (isinstance(ref, Library) and ref.name.partition(".")[0] in self.run.unknown_modules)
        ]
        there = [one for one in found if one is not None]
        if there:
            return there[0] if len(there) == 1 else self.engine.together(there)
        return Value(refs=tuple(Library(f"{later.base}.{later.name}") for later in value.of(_Later)))

    def named(self, base: str, name: str) -> Value:
        """What a name of a module is, for one that a text names."""
        return self.loaded(Value(refs=(_Later(base, name),)))

    def _found(self, later: _Later, asked: frozenset[tuple[str, str]]) -> Value | None:
        """What a name of a module is, None where the project has neither."""
        module = self._module(later.base)
        if module is None:
            return None
        self.ready(module)
        key = later.base, later.name
        # `from . import x` in a package binds x to its own submodule.
        value = None if key in asked else self.run.read(module, later.name)
        if value is not None:
            return self.loaded(value, asked | {key})
        sub = self._module(f"{module.name}.{later.name}")
        return Value(refs=(sub,)) if sub is not None else None

    def part(self, module: ModuleRef, name: str) -> Value:
        """A submodule of a package, or an unknown value."""
        sub = self._module(f"{module.name}.{name}")
        if sub is not None:
            return Value(refs=(sub,))
        return Value(refs=(Library(f"{module.name}.{name}"),))

    def _absolute(self, stmt: ast.ImportFrom) -> str:
        base = stmt.module or ""
        if not stmt.level:
            return base
        package = self.run.module.name.split(".")
        is_package = self.run.module.path.endswith("__init__.py")
        up = stmt.level - (1 if is_package else 0)
        parts = package[: max(len(package) - up, 0)] if up else package
        if up > len(package):
            # Of the script itself, or a module that is imported by less than its whole name: by its folder.
            folder = Path(self.run.module.path if package != ["__main__"] else self.path or "").resolve()
            above = folder.parents[up - 1] if up <= len(folder.parents) else folder
            roots = [root for root in self._roots if above.is_relative_to(root)]
            parts = [*above.relative_to(roots[0]).parts] if roots else []
        return ".".join([*parts, *([base] if base else [])])

    def _module(self, name: str) -> ModuleRef | None:
        place = self._place(name)
        return None if place is None else self._at(place, name)

    def _at(self, place: Path, name: str) -> ModuleRef:
        found = self._known.get(place)
        if found is None:
            found = self._known[place] = ModuleRef(name, str(place))
        return found

    def _folder_of(self, name: str) -> Path | None:
        """The folder that a package without `__init__.py` is, where no library is called so, which comes first."""
        root = name.partition(".")[0]
        if root in sys.stdlib_module_names or root in NEVER_FOLLOWED or self.run.knowledge.knows(root):
            return None
        places = (folder.joinpath(*name.split(".")) for folder in self._roots)
        return next((place for place in places if place.is_dir() and any(place.glob("*.py"))), None)

    def _place(self, name: str) -> Path | None:
        if name not in self._places:
            found = None
            if name and self._roots:
                parts = name.split(".")
                found = module_file(parts, self._roots) or self._folder_of(name)
                if found is not None and self.path is not None and found.resolve() == self.path.resolve():
                    # A script that imports a module of its own name means another file.
                    found = module_file(parts, [one for one in self._roots if one != self.folder]) or found
            self._places[name] = found.resolve() if found is not None else None
        return self._places[name]


class _Later(Ref):
    """A name that was imported from a module which has not been looked for yet."""

    __slots__ = ("base", "name")

    def __init__(self, base: str, name: str) -> None:
        super().__init__()
        self.base = base
        self.name = name


def text_of(path: Path) -> str | None:
    """The text of a file, None for one that cannot be read."""
    try:
        return (read(path) or b"").decode("utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return None


def asks_for_main(test: ast.expr) -> bool:
    """Whether a test asks if the module is the script that was started: another run goes the other way."""
    return any(isinstance(node, ast.Name) and node.id == "__name__" for node in ast.walk(test))
