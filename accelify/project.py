"""Which files of a project belong together, seen from the words of their imports: quick, before anything is parsed."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from accelify.analysis.modules.imported_by_name import imports_by_name
from accelify.analysis.modules.search_path import added_roots, module_file, roots_of
from accelify.analysis.syntax import Tree
from accelify.called_names import OWN, CalledNames, called_names
from accelify.files_read import Looks, is_file, listener, looking, names_in, note, read

_IMPORT = re.compile(
    rb"^[ \t]*(?:from[ \t]+([.\w]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n#;]*)|import[ \t]+([\w., \t]+))",
    re.MULTILINE,
)
_LOOP = b".backward("
# A module that is imported by a name which is not written out there.
_BY_NAME = re.compile(rb"""\bimport_module\s*\((?!\s*["'][\w.]+["']\s*[,)])""")
# Files that are looked through for one that a configuration may name.
_MOST_BESIDE = 200
# Beyond this a file is data or generated.
_LARGEST = 1_000_000
# Outputs make notebooks large.
_LARGEST_NOTEBOOK = 20_000_000
# Bytes of files that are not read again.
_MOST_REMEMBERED = 30_000_000


class Imports:
    """The imports between files. Reads a file once, however often it is asked about: make one for all that is
    converted together, and a new one where files may have changed since."""

    def __init__(self) -> None:
        self.converting: set[Path] = set()  # the scripts that are converted in one run, by their places
        # What was read, and what was looked at for it, where somebody listened.
        self._data: dict[Path, tuple[bytes, Looks | None]] = {}
        self._size = 0
        self._loops: dict[Path, bool] = {}
        self._places: dict[Path, Path] = {}
        self._folders: dict[str, str] = {}
        self._imported: dict[Path, tuple[list[Path], Looks]] = {}
        self._roots: dict[Path, list[Path]] = {}
        self._located: dict[tuple[str, Path], tuple[Path | None, Looks]] = {}
        self._looked_for: dict[Path, Looks] = {}
        self._trains: dict[Path, bool] = {}
        self._listener: Looks | None = None
        self._called: dict[Path, CalledNames | None] = {}

    def of(self, path: Path) -> list[Path]:
        """The files of the project that a file imports itself, in order."""
        path = self.place(path)
        if path not in self._imported:
            found: dict[Path, None] = {}
            with looking() as looks:
                for name in _names(self._read(path)):
                    target = self._locate(name, path)
                    if target is not None and target != path:
                        found[target] = None
            self._imported[path] = list(found), looks
        imported, looks = self._imported[path]
        note(looks)
        return imported

    def _locate(self, name: str, importer: Path) -> Path | None:
        """The file that an imported name means, where it is in the importer's project."""
        roots = self._roots_for(importer)
        alike = roots is self._roots.get(importer.parent)
        key = (name, importer.parent if alike else importer)
        if key not in self._located:
            dots = len(name) - len(name.lstrip("."))
            if 0 < dots <= len(importer.parents):
                roots = [importer.parents[dots - 1]]
            with looking() as looks:
                found = module_file([part for part in name.split(".") if part], roots)
            self._located[key] = self.place(found) if found is not None else None, looks
        place, looks = self._located[key]
        note(looks)
        return place

    def _roots_for(self, importer: Path) -> list[Path]:
        """Where an importer's names are looked for: as for all of its folder, and where it adds places itself."""
        if importer not in self._roots:
            with looking() as looks:
                shared = self._shared_roots(importer)
                added = added_roots(importer, self._text(importer), shared, self._text)
            self._roots[importer] = [shared[0], *added, *shared[1:]] if added else shared
            self._looked_for[importer] = looks
        note(self._looked_for[importer])
        return self._roots[importer]

    def _shared_roots(self, importer: Path) -> list[Path]:
        folder = importer.parent
        if folder not in self._roots:
            with looking() as looks:
                self._roots[folder] = roots_of(importer)
            self._looked_for[folder] = looks
        note(self._looked_for[folder])
        return self._roots[folder]

    def reached(self, path: Path) -> list[Path]:
        """Every file of the project that a file imports, itself or through others."""
        found: dict[Path, None] = {}
        queue = self.of(path)[:]
        for one in queue:  # which grows
            if one not in found:
                found[one] = None
                queue += self.of(one)
        return list(found)

    def started_with(self, path: Path) -> list[Path]:
        """Every file of the project that runs where a file is started: what it imports, and the packages of these."""
        found: dict[Path, None] = {self.place(path): None}
        queue = list(found)
        for one in queue:  # which grows
            package = one.parent / "__init__.py"
            if one.name == package.name:
                package = one.parent.parent / package.name
            for other in [*self.of(one), *([self.place(package)] if is_file(package) else [])]:
                if other not in found:
                    found[other] = None
                    queue.append(other)
        return [one for one in found if one != self.place(path)]

    def leads_to_training(self, path: Path) -> bool:
        """Whether a file that has no training loop imports one from its project."""
        path = self.place(path)
        self._noted_for(listener())
        known = self._trains.get(path)
        if known is None:
            reached: dict[Path, None] = {}
            known = self._reaches_loop(path, reached)
            if not known:
                # Nothing that it reaches can reach more.
                self._trains.update(dict.fromkeys(reached, False))
            self._trains[path] = known
        return known

    def leads_to_words(self, path: Path, words: Iterable[str]) -> bool:
        """Whether one of the files that a file imports, itself or through others, has one of some words."""
        found = [word.encode() for word in words]
        return any(word in self._read(one) for one in self.reached(path)[:_MOST_BESIDE] for word in found)

    def _reaches_loop(self, path: Path, reached: dict[Path, None]) -> bool:
        """Whether one of the files that a file reaches has a loop; it notes those that it has seen."""
        queue = self.of(path)[:]
        for one in queue:  # which grows
            if one not in reached:
                reached[one] = None
                if self._has_loop(one):
                    return True
                queue += self.of(one)
        return False

    def _has_loop(self, path: Path) -> bool:
        self._noted_for(listener())
        if path not in self._loops:
            self._loops[path] = _LOOP in self._read(path)
        return self._loops[path]

    def _noted_for(self, whom: Looks | None) -> None:
        """What was worked out from files has to be noted for each who listens."""
        if whom is not self._listener:
            self._listener = whom
            self._trains.clear()
            self._loops.clear()

    def training_beside(self, path: Path) -> Path | None:
        """The first file with a training loop in the folder of a file, or one level below it."""
        folder = self.place(path).parent
        near = sorted([*_scripts_in(folder), *_scripts_below(folder)])[:_MOST_BESIDE]
        return next((one for one in near if one != self.place(path) and self._has_loop(one)), None)

    def training_by_name(self, path: Path) -> tuple[Path, int, Path] | None:
        """Where a file, or one that it imports, imports a module by a name that it puts together.

        The file and line, and the first module beside it with a training loop; None where there is no such module.
        """
        for one in [self.place(path), *self.reached(path)]:
            by_name = _BY_NAME.search(self._read(one))
            beside = self.training_beside(one) if by_name is not None else None
            if by_name is not None and beside is not None:
                return one, self._read(one)[: by_name.start()].count(b"\n") + 1, beside
        return None

    def entries(self, paths: Iterable[Path]) -> list[Path]:
        """Those of some files that none of the others imports, in order."""
        every = list(paths)
        imported = {one for path in every for one in self.of(path)}
        return [path for path in every if self.place(path) not in imported]

    def naming_place(self, paths: Iterable[Path], module: Path) -> Iterator[Path]:
        """Those of some files that name a module, or its folder: a quick first look at far files."""
        names = [name.encode() for name in {module.stem, module.parent.name} - {"__init__"}]
        for path in paths:
            data = self._read(self.place(path))
            if any(name in data and _word(name).search(data) for name in names):
                yield path

    def mentioning(
        self, name: str, module: Path, paths: Iterable[Path], within: Iterable[Path] = (), method: str = ""
    ) -> list[Path]:
        """Those of some files that call a name of a module, or derive a class from it with an `__init__`.

        A class that is derived without one is constructed like its base: those that call it count as well. Those
        classes are looked for in some other files too. By way of a package that imports it counts, where a file has the
        name from there. With a static `method` it is calls of that, of the class or one derived without overriding it.
        """
        own = list(paths)
        every = list(dict.fromkeys([*own, *within]))
        found: set[Path] = set()
        asked = set(own)
        makers = [(name, module.resolve())]
        afterwards = rb"\s*\.\s*" + method.encode() if method else b""
        for name, module in makers:  # which grows
            text, word = re.escape(name.encode()), _word(name.encode())
            call = rb"(?<!class )(?<!def )\b" + text + afterwards + rb"\s*\("
            # `run = tools.train`, `from tools import train as run`: another name for it.
            again = rb"=[ \t(]*[\w.]*\b" + text + rb"\b|\b" + text + rb"[ \t]+as\b"
            for path in every:
                place = self.place(path)
                data = self._read(place)
                if not word.search(data):
                    continue
                # Files that are converted anyway are read for their classes alone.
                spelled = path in asked and (re.search(call, data) or re.search(again, data))
                if not spelled and not any(_derived(data, name, method or "__init__")):
                    continue
                if place != module and not self._has_from(path, name, module):
                    continue
                known = self._called_names(place)
                if known is None:
                    calls, classes = (
                        bool(re.search(call, data)),
                        list(_derived(data, name, method or "__init__")),
                    )
                else:
                    called = f"{name}.{method}" if method else name
                    calls = any(self._stands_for(place, one, called, module) for one in known.calls)
                    classes = [
                        (derived, (method or "__init__") in methods)
                        for derived, bases, methods in known.classes
                        if any(self._stands_for(place, base, name, module) for base in bases)
                    ]
                if calls:
                    found.add(path)
                for derived, makes in classes:
                    if makes:
                        if not method:  # which calls that of its base, where it is an `__init__`
                            found.add(path)
                    elif (derived, place) not in makers:
                        makers.append((derived, place))
        return [path for path in own if path in found]

    def _called_names(self, place: Path) -> CalledNames | None:
        """What a file calls, None where it does not parse."""
        if place not in self._called:
            self._called[place] = called_names(self._read(place))
        return self._called[place]

    def _stands_for(self, place: Path, dotted: str, name: str, module: Path) -> bool:
        """Whether a dotted name in a file is a name of a module, taken from there or from a file that passes it on."""
        if dotted.startswith(OWN):
            return place == module and dotted.removeprefix(OWN) == name
        if not dotted.endswith(f".{name}"):
            return False
        source = dotted[: -len(name)]
        target = self._locate(source.removesuffix(".") if source.strip(".") else source, place)
        if target is None or target == module:
            return target is not None
        known = self._called_names(target)
        if known is not None and name.partition(".")[0] in known.defined:
            return False
        return module in self.of(target) or module in self._through_packages(target)

    def _has_from(self, path: Path, name: str, module: Path) -> bool:
        """Whether a file imports a module, or has a name from a package that does."""
        if module in self.of(path):
            return True
        text = re.escape(name.encode())
        handed_on = rb"\.[ \t]*" + text + rb"\b|\bimport[ \t]*(\([^)]*|[^\n]*)(\b" + text + rb"\b|\*)"
        return module in self._through_packages(path) and bool(
            re.search(handed_on, self._read(self.place(path)))
        )

    def _through_packages(self, path: Path) -> set[Path]:
        """What packages import that a file imports, or that such packages do."""
        found: set[Path] = set()
        queue = [one for one in self.of(path) if one.name == "__init__.py"]
        while queue:
            new = set(self.of(queue.pop())) - found
            found |= new
            queue += [one for one in new if one.name == "__init__.py"]
        return found

    def place(self, path: Path) -> Path:
        """A file's path without links; the link of each folder is resolved once."""
        found = self._places.get(path)
        if found is None:
            parent, name = os.path.split(path)
            folder = self._folders.get(parent)
            if folder is None:
                folder = self._folders[parent] = os.path.realpath(parent)
            if os.path.islink(path) or name in ("", ".."):
                found = path.resolve()
            else:
                found = path if folder == parent else Path(folder, name)
            self._places[path] = found
        return found

    def _text(self, path: Path) -> str:
        return self._read(path).decode("utf-8", "replace")

    def _read(self, path: Path) -> bytes:
        data, looks = self._data.get(path, (None, None))
        if data is not None and looks is not None:
            note(looks)
        if data is not None and (looks is not None or listener() is None):
            return data
        if listener() is None:
            data = _code(path)
        else:
            self._size -= len(self._data.pop(path, (b"", None))[0])
            with looking() as looks:
                data = _code(path)
        self._size += len(data)
        while self._size > _MOST_REMEMBERED and self._data:
            self._size -= len(self._data.pop(next(iter(self._data)))[0])
        self._data[path] = data, looks
        return data


@lru_cache(maxsize=16)
def _word(name: bytes) -> re.Pattern[bytes]:
    """A word of its own in a text. What begins with plain letters is found many times faster."""
    text = re.escape(name)
    return re.compile(text + rb"(?<!\w" + text + rb")(?!\w)")


def _code(path: Path) -> bytes:
    """What a script, or the code cells of a notebook have in them; nothing for what cannot be read."""
    try:
        if path.name.endswith(".ipynb"):
            return _code_of(read(path, _LARGEST_NOTEBOOK) or b"")
        return read(path, _LARGEST) or b""
    except (OSError, ValueError, RecursionError):
        return b""


def _scripts_in(folder: Path) -> list[Path]:
    try:
        return [folder / name for name in names_in(folder)[1] if name.endswith(".py")]
    except OSError:
        return []


def _scripts_below(folder: Path) -> list[Path]:
    try:
        return [path for name in names_in(folder)[0] for path in _scripts_in(folder / name)]
    except OSError:
        return []


def _code_of(notebook: bytes) -> bytes:
    """The code cells of a notebook, one after the other. Raises ValueError where it is no notebook."""
    found = json.loads(notebook or b"null")
    cells = found.get("cells") if isinstance(found, dict) else None
    code = [
        cell.get("source")
        for cell in (cells if isinstance(cells, list) else [])
        if isinstance(cell, dict) and cell.get("cell_type") == "code"
    ]
    lines = [source if isinstance(source, list) else [source] for source in code]
    texts = ["".join(line for line in source if isinstance(line, str)) for source in lines]
    return "\n".join(texts).encode("utf-8", "replace")


def _derived(data: bytes, name: str, method: str) -> Iterator[tuple[str, bool]]:
    """The classes of a file that are derived from one of a name, and whether each defines a method itself."""
    header = rb"^([ \t]*)class[ \t]+(\w+)[ \t]*\([^)]*\b" + re.escape(name.encode()) + rb"\b[^)]*\).*$"
    for match in re.finditer(header, data, re.MULTILINE):
        afterwards = re.compile(rb"^(?!" + match[1] + rb"[ \t]|[ \t]*(?:#|\r?$))", re.MULTILINE)
        end = afterwards.search(data, match.end() + 1)
        body = data[match.end() : end.start() if end else len(data)]
        yield (
            match[2].decode("utf-8", "replace"),
            bool(re.search(rb"\bdef[ \t]+" + method.encode() + rb"\b", body)),
        )


def _names(data: bytes) -> list[str]:
    """Dotted names that a file imports; relative ones begin with their dots."""
    found = []
    for match in _IMPORT.finditer(data):
        base, names, plain = (part.decode("utf-8", "replace") if part else "" for part in match.groups())
        if plain:
            found += [part.split(" as ")[0].strip() for part in plain.split(",")]
            continue
        found.append(base)
        joint = "" if base.endswith(".") else "."
        for part in names.strip("() \t\r\n\\").split(","):
            name = part.split(" as ")[0].strip()
            if name.isidentifier():
                found.append(f"{base}{joint}{name}")
    return [name for name in [*found, *_named(data)] if name]


def _named(data: bytes) -> list[str]:
    """The modules that a file imports by a name in a variable, as far as these are known."""
    if b"import_module(" not in data:
        return []
    try:
        tree = Tree(data.decode("utf-8", "replace"))
    except (SyntaxError, ValueError, RecursionError):
        return []
    return [name for name in imports_by_name(tree).values() if name is not None]
