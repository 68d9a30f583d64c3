"""A program: the entry script and the modules of its project that it imports."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from accelify import files_read
from accelify.analysis.modules.evaluated_names import evaluated_names, names_begun
from accelify.analysis.modules.imported_by_name import imports_by_name
from accelify.analysis.modules.main_blocks import only_for_main
from accelify.analysis.modules.registries import WORD, registering
from accelify.analysis.modules.search_path import added_roots, module_file, roots_of
from accelify.analysis.scopes import Scope, Scopes
from accelify.analysis.syntax import Tree, is_constant, walk

# A project module beyond this size is data or generated; it is not read for roles.
_LARGEST_MODULE = 1_000_000
_MOST_MODULES = 600
# Words in modules that can be converted with the script.
TRAINING_WORDS = (".backward(", ".eval()", "no_grad")


@dataclass(eq=False)
class Module:
    """One parsed file of the program. `name` is how it is imported, `entry` whether the user asked for it.

    `used` are the functions and classes at its top that something of the program names, None where all of them are.
    """

    name: str
    tree: Tree
    scopes: Scopes
    path: Path | None = None
    entry: bool = False
    package: str = ""
    imports: dict[str, Module] = field(default_factory=dict)
    used: set[ast.AST] | None = None
    # Its calls that import a module by a name: that name, None where it is not known.
    named: dict[ast.Call, str | None] = field(default_factory=dict)

    def used_scopes(self) -> Iterator[Scope]:
        """The module's scope and those of what is used of it, outer ones first."""
        stack = [self.scopes.module]
        while stack:
            scope = stack.pop()
            yield scope
            stack.extend(child for child in reversed(scope.children.values()) if self.is_used(child.node))

    def is_used(self, definition: ast.AST) -> bool:
        """Whether the program can reach a definition: a named one at the top of a module, or what is inside of one."""
        return self.used is None or definition not in self.scopes.module.children or definition in self.used


Reader = Callable[[Path], str | None]


def _read(path: Path) -> str | None:
    """Text of a project file, None when it cannot be read as UTF-8."""
    try:
        data = files_read.read(path, _LARGEST_MODULE)
        return data.decode("utf-8-sig") if data is not None else None
    except (OSError, UnicodeDecodeError):
        return None


class Program:
    """The entry module and, read only, the modules of its project that it uses.

    Modules are read when a name of theirs is used, and of a module only what is used is looked at further: an import
    that leads to hundreds of modules costs what the script takes from them.

    Args:
        tree: the entry script.
        path: where it is; None for a script from stdin, whose imports are then not followed.
        read: how to read a file; replaced in tests.
    """

    def __init__(self, tree: Tree, path: Path | None = None, read: Reader = _read) -> None:
        self._read = read
        self.modules: dict[str, Module] = {}
        # Modules that are no Python of the running version, by name: the file, and the line that says so.
        self.unread: dict[str, tuple[Path, int | None]] = {}
        self._by_path: dict[Path, Module | None] = {}
        self._found: dict[str, Path | None] = {}
        self.entry = Module("__main__", tree, Scopes(tree), path, entry=True)
        self.modules["__main__"] = self.entry
        self.roots: list[Path] = []
        if path is not None:
            own = roots_of(path)
            if files_read.exists(own[0] / "__init__.py"):
                self.entry.package = ".".join(own[0].relative_to(own[-1]).parts)
            # What the script adds itself goes before the folders that are guessed.
            self.roots = list(dict.fromkeys([own[0], *added_roots(path, tree.text, own, read), *own[1:]]))
            Uses(self).follow()
            self._leave_out_other_mains()

    def _leave_out_other_mains(self) -> None:
        """Of an imported module, what it does only when it is started itself is no part of the program."""
        modules = list(dict.fromkeys(self.modules.values()))
        for module in modules:
            alone = set() if module.entry else only_for_main(module, modules)
            if alone:
                every = module.used if module.used is not None else module.scopes.module.children
                module.used = set(every) - alone

    def may_train(self) -> bool:
        """Whether the script, or a module that it uses, has the word for it."""
        return any(TRAINING_WORDS[0] in module.tree.text for module in self.modules.values())

    def unread_loop(self) -> str | None:
        """File and line of a module with the word for it that the script uses and that does not parse."""
        for path, line in self.unread.values():
            if TRAINING_WORDS[0] in (self._read(path) or ""):
                folder = self.entry.path.resolve().parent if self.entry.path is not None else Path.cwd()
                shown = Path(os.path.relpath(path, folder)).as_posix()
                return f"{shown}, line {line}" if line else shown
        return None

    def has(self, name: str) -> bool:
        """Whether a module of this name is in the project."""
        return self._place(name) is not None

    def is_file(self, name: str) -> bool:
        """Whether a name is that of a module in one file, which has no modules under it."""
        place = self._place(name)
        return place is not None and place.name != "__init__.py"

    def is_rebound(self, name: str) -> bool:
        """Whether `pack.Trainer` is a class that `pack/__init__.py` takes out of `pack/Trainer.py`, for example."""
        outer, _, last = name.rpartition(".")
        place = self._place(outer) if outer else None
        if place is None or place.name != "__init__.py":
            return False
        package = self._module_at(outer, place)
        if package is None:
            return False
        if last in package.scopes.module.locals:
            return _rebinds(package, outer, last)
        return self._place(name) is not None and self._star_rebinds(package, outer, last, {package})

    def _star_rebinds(self, module: Module, package: str, name: str, seen: set[Module]) -> bool:
        """Whether `from other import *` brings what a package's module of that name is hidden by."""
        for node in module.tree.nodes(ast.ImportFrom):
            base = absolute_name(node, module.package)
            place = self._place(base) if base and node.names[0].name == "*" else None
            other = self._module_at(base, place) if base and place is not None else None
            if other is None or other in seen or not _is_public(other, name):
                continue
            if _rebinds(other, package, name) or self._star_rebinds(other, package, name, seen | {other}):
                return True
        return False

    def load(self, name: str) -> Module | None:
        """The project's module of a dotted name, read now if it was not yet; None where there is none."""
        found = self.modules.get(name)
        if found is None and len(self.modules) < _MOST_MODULES:
            place = self._place(name)
            if place is not None:
                found = self._module_at(name, place)
                if found is not None:
                    self.modules[name] = found
        return None if found is self.entry else found

    def _module_at(self, name: str, place: Path) -> Module | None:
        """A file's module, read now if it was not yet, which makes it no part of the program."""
        if place not in self._by_path:
            self._by_path[place] = self._parse(name, place)
        return self._by_path[place]

    def _place(self, name: str) -> Path | None:
        if name not in self._found:
            self._found[name] = self._locate(name)
        return self._found[name]

    def _locate(self, name: str) -> Path | None:
        head, _, rest = name.partition(".")
        if not head:
            return None
        if (
            rest
            and self._place(name.rpartition(".")[0]) is None
            and not self._is_folder(name.rpartition(".")[0])
        ):
            return None
        found = module_file(name.split("."), self.roots)
        if found is None or not self._is_entry(found):
            return found
        # The script itself is not imported: a module of the same name may be further along the path.
        others = (module_file(name.split("."), [root]) for root in self.roots)
        return next((one for one in others if one is not None and not self._is_entry(one)), None)

    def _is_entry(self, path: Path) -> bool:
        """Whether a file is the script, however its path was written."""
        own = self.entry.path
        return own is not None and path.name == own.name and path.resolve() == own.resolve()

    def _is_folder(self, name: str) -> bool:
        """Whether a dotted name is a folder without `__init__.py`."""
        return any(files_read.is_folder(root / Path(*name.split("."))) for root in self.roots)

    def _parse(self, name: str, path: Path) -> Module | None:
        text = self._read(path)
        if text is None:
            return None
        try:
            tree = Tree(text, str(path))
        except (SyntaxError, ValueError, RecursionError) as error:
            self.unread[name] = (path, getattr(error, "lineno", None))
            return None
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        # Where something may be trained or evaluated, the module is converted with the script and looked at as a whole.
        whole = any(word in text for word in TRAINING_WORDS)
        return Module(name, tree, Scopes(tree), path, package=package, used=None if whole else set())


class Uses:
    """What a program uses of its project's modules, by name: wherever a name could be meant, it counts as used."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._indexed: dict[Module, _Names] = {}
        self._asked: set[tuple[Module, tuple[str, ...]]] = set()
        self._queue: list[tuple[Module, ast.AST]] = []

    def follow(self) -> None:
        """Load what the entry script uses, and what that uses."""
        self._names(self.program.entry)
        while self._queue:
            module, node = self._queue.pop(0)
            for chain in _chains(node, module.tree):
                self._use(module, chain)
            for begin in names_begun(module.tree, node):
                for name in sorted(n for n in module.scopes.module.locals if n.startswith(begin)):
                    self._use(module, (name,))
            if not self._queue:
                self._use_registered()

    def _use_registered(self) -> None:
        """Use what modules hand to a registry of the program: who imports one means that, and may name none of it."""
        modules = list(dict.fromkeys(self.program.modules.values()))
        if not any(WORD in module.tree.text.lower() for module in modules):
            return
        for module in modules:
            for targets in self._names(module).imports.values():
                for target in targets:
                    self._import_registering(module, target)

    def _import_registering(self, module: Module, target: tuple[str, ...]) -> None:
        for cut in range(len(target), 0, -1):
            name = ".".join(target[:cut])
            found = self._import(module, name)
            if found is None:
                continue
            for node in found.scopes.module.children if WORD in found.tree.text.lower() else ():
                if registering(node):
                    self._use(found, (getattr(node, "name", ""),))
            return

    def _names(self, module: Module) -> _Names:
        """The names of a module; what its code uses is looked at from then on."""
        found = self._indexed.get(module)
        if found is None:
            found = self._indexed[module] = _Names(module)
            for stmt in module.tree.module.body:
                if module.used is None or stmt not in found.defined:
                    self._queue.append((module, stmt))
            if module.used is not None and found.nested:
                module.used.update(found.nested)
            module.named = imports_by_name(module.tree)
            for call, name in module.named.items():
                self._use_named(module, call, name)
        return found

    def _use_named(self, module: Module, call: ast.Call, name: str | None) -> None:
        """Use what `import_module("train").Trainer` takes of a module, or all of it."""
        target = self._import(module, name) if name is not None else None
        parent = module.tree.parent(call)
        if target is None:
            if not isinstance(call.args[0], ast.Constant):  # else it is a library's
                module.named[call] = None
        elif isinstance(parent, ast.Attribute):
            self._use(target, (parent.attr,))
        else:
            self._use_whole(target)

    def _use(self, module: Module, chain: tuple[str, ...]) -> None:
        if (module, chain) in self._asked:
            return
        self._asked.add((module, chain))
        names = self._names(module)
        for node in names.definitions.get(chain[0], ()):
            if module.used is not None and node not in module.used:
                module.used.add(node)
                self._queue.append((module, node))
        for target in names.imports.get(chain[0], ()):
            self._use_dotted(module, (*target, *chain[1:]), len(target))
        if chain[0] not in module.scopes.module.locals:
            for star in names.stars:
                other = self._import(module, star)
                if other is not None and self._provides(other, chain[0], {module}):
                    self._use(other, chain)
                    break

    def _provides(self, module: Module, name: str, seen: set[Module]) -> bool:
        """Whether `from module import *` brings a name."""
        if name in module.scopes.module.locals:
            return True
        others = [self._import(module, star) for star in self._names(module).stars if module not in seen]
        return any(self._provides(other, name, seen | {module}) for other in others if other is not None)

    def _use_dotted(self, module: Module, parts: tuple[str, ...], named: int) -> None:
        """Use `a.b.c`: the module that the longest beginning names, and of it the rest.

        `named` is how much of it an import names: of a package's module and what the package itself calls so, it
        means the latter.
        """
        for cut in range(len(parts), 0, -1):
            if self._is_name_of_file(module, parts[:cut]):
                continue
            if cut >= named and self.program.is_rebound(".".join(parts[:cut])):
                continue
            target = self._import(module, ".".join(parts[:cut]))
            if target is not None:
                if parts[cut:]:
                    self._use(target, parts[cut:])
                else:
                    self._use_whole(target)
                return
            if self.program.is_file(".".join(parts[:cut])):
                return  # it cannot be read: its package would send what it imports from there back here

    def _is_name_of_file(self, module: Module, parts: tuple[str, ...]) -> bool:
        """Whether `a.b` is what a file `a.py` calls `b`: with `foo/foo.py`, `foo.foo` is no module beside `foo`."""
        outer = ".".join(parts[:-1])
        if not outer or not self.program.is_file(outer):
            return False
        target = self._import(module, outer)
        return target is not None and self._provides(target, parts[-1], {module})

    def _use_whole(self, module: Module) -> None:
        """A module that is itself a value: any of its names may be meant."""
        if (module, ("*",)) in self._asked:
            return
        self._asked.add((module, ("*",)))
        names = self._names(module)
        for name in [*names.definitions, *names.imports]:
            self._use(module, (name,))
        for star in names.stars if not names.definitions else ():
            other = self._import(module, star)
            if other is not None:
                self._use_whole(other)  # what a package only passes on

    def _import(self, module: Module, name: str) -> Module | None:
        found = self.program.load(name)
        if found is not None and found is not module:
            module.imports[name] = found
            self._names(found)
        return found


class _Names:
    """Where the names of a module come from: definitions at its top, imports anywhere in it, and stars."""

    def __init__(self, module: Module) -> None:
        self.definitions: dict[str, list[ast.AST]] = {}
        self.defined: set[ast.AST] = set(module.scopes.module.children)
        self.imports: dict[str, list[tuple[str, ...]]] = {}
        self.stars: list[str] = []
        top = set(module.tree.module.body)
        # Definitions under an `if` or `try` are looked at with the statement around them.
        self.nested = self.defined - top
        for node in module.scopes.module.children:
            assert isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
            self.definitions.setdefault(node.name, []).append(node)
        for node in module.tree.nodes(ast.Import):
            for alias in node.names:
                target = alias.name.split(".") if alias.asname else alias.name.split(".")[:1]
                name = alias.asname or target[0]
                self.imports.setdefault(name, []).append(tuple(target))
        for node in module.tree.nodes(ast.ImportFrom):
            base = absolute_name(node, module.package)
            if base is None:
                continue
            for alias in node.names:
                if alias.name == "*":
                    self.stars.append(base)
                else:
                    parts = (*base.split("."), alias.name) if base else (alias.name,)
                    self.imports.setdefault(alias.asname or alias.name, []).append(parts)


def _rebinds(module: Module, package: str, name: str) -> bool:
    """Whether a module's statements bind a name to something else than a package's module of that name."""
    if any(getattr(node, "name", "") == name for node in module.scopes.module.children):
        return True
    return any(
        (alias.asname or alias.name) == name and absolute_name(node, module.package) != package
        for node in module.tree.nodes(ast.ImportFrom)
        for alias in node.names
    )


def _is_public(module: Module, name: str) -> bool:
    """Whether `from module import *` may bring a name: `__all__` has it, where that is written out once."""
    listed = [stmt.value for stmt in module.tree.assigns("__all__")]
    if not listed:
        return not name.startswith("_")
    stated = getattr(listed[0], "elts", None)
    touched = sum(node.id == "__all__" for node in module.tree.nodes(ast.Name))
    return stated is None or touched > 1 or any(is_constant(part, name) for part in stated)


def _chains(node: ast.AST, tree: Tree) -> Iterator[tuple[str, ...]]:
    """Every name read or written in some code, with the attributes that follow it: `a.b.c` as (a, b, c).

    Of `a.__dict__[name]` any name of `a` may be meant, of `eval(TABLE[name])` those in the table.
    """
    for name in walk(node):
        if type(name) is ast.Name:
            if name.id == "eval" and isinstance(call := tree.parent(name), ast.Call):
                yield from ((text,) for text in evaluated_names(tree, call))
            chain, current = [name.id], tree.parent(name)
            while type(current) is ast.Attribute and current.attr != "__dict__":
                chain.append(current.attr)
                current = tree.parent(current)
            yield tuple(chain)


def absolute_name(node: ast.ImportFrom, package: str) -> str | None:
    """The module that a `from` import names, from the root; None when it climbs above it."""
    if not node.level:
        return node.module or ""
    parts = package.split(".") if package else []
    if node.level - 1 > len(parts):
        return None
    base = parts[: len(parts) - (node.level - 1)]
    return ".".join([*base, *(node.module.split(".") if node.module else [])])
