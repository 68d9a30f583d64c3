"""A program: the entry script and the modules of its project that it imports."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from accelify.analysis.scopes import Scopes
from accelify.analysis.syntax import Tree

# A project module beyond this size is data or generated; it is not read for roles.
_LARGEST_MODULE = 1_000_000
_MOST_MODULES = 600
# How far up a project's root is looked for, and what says that it is found.
_MOST_ROOTS = 4
_TOP_OF_PROJECT = (".git", "setup.py", "pyproject.toml")
# Libraries are known by name; their own source says nothing about a script's roles.
_NEVER_FOLLOWED = frozenset({"accelify", "torch", "torchvision", "numpy", "matplotlib", "transformers"})


@dataclass(eq=False)
class Module:
    """One parsed file of the program. `name` is how it is imported, `entry` whether the user asked for it."""

    name: str
    tree: Tree
    scopes: Scopes
    path: Path | None = None
    entry: bool = False
    package: str = ""
    imports: dict[str, Module] = field(default_factory=dict)


Reader = Callable[[Path], str | None]


def _read(path: Path) -> str | None:
    """Text of a project file, None when it cannot be read as UTF-8."""
    try:
        if path.stat().st_size > _LARGEST_MODULE:
            return None
        return path.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return None


def roots_of(path: Path) -> list[Path]:
    """The folders under which a script's imports from its own project lie: its own first."""
    folder = path.resolve().parent
    top = folder
    while (top / "__init__.py").exists() and top.parent != top:
        top = top.parent
    if top != folder:
        return [folder, top]
    # A script in `tools/` or `examples/vision/` imports from the project's root.
    roots = [folder]
    while len(roots) < _MOST_ROOTS and roots[-1].parent != roots[-1]:
        if any((roots[-1] / name).exists() for name in _TOP_OF_PROJECT):
            break
        roots.append(roots[-1].parent)
    return [*roots, *(root / "src" for root in roots if (root / "src").is_dir())]


class Program:
    """The entry module and, read only, what it imports from its own project.

    Args:
        tree: the entry script.
        path: where it lies; None for a script from stdin, whose imports are then not followed.
        read: how to read a file; replaced in tests.
    """

    def __init__(self, tree: Tree, path: Path | None = None, read: Reader = _read) -> None:
        self._read = read
        self.modules: dict[str, Module] = {}
        self._by_path: dict[Path, Module | None] = {}
        self.entry = Module("__main__", tree, Scopes(tree), path, entry=True)
        self.modules["__main__"] = self.entry
        self.roots: list[Path] = []
        if path is not None:
            self.roots = roots_of(path)
            top = self.roots[-1]
            if (self.roots[0] / "__init__.py").exists():
                self.entry.package = ".".join(self.roots[0].relative_to(top).parts)
            self._follow()

    def _follow(self) -> None:
        queue = [self.entry]
        while queue:
            module = queue.pop()
            for node in [*module.tree.nodes(ast.Import), *module.tree.nodes(ast.ImportFrom)]:
                for name in _imported_names(node, module.package):
                    if len(self.modules) >= _MOST_MODULES:
                        return
                    found = self._locate(name)
                    if found is not None and name not in self.modules:
                        self.modules[name] = found
                        queue.append(found)
                    if found is not None:
                        module.imports[name] = found

    def _locate(self, name: str) -> Module | None:
        if name.split(".")[0] in _NEVER_FOLLOWED:
            return None
        relative = Path(*name.split("."))
        for root in self.roots:
            for candidate in (root / relative.with_suffix(".py"), root / relative / "__init__.py"):
                if candidate in self._by_path:
                    return self._by_path[candidate]
                if candidate.is_file() and candidate != self.entry.path:
                    module = self._parse(name, candidate)
                    self._by_path[candidate] = module
                    return module
        return None

    def _parse(self, name: str, path: Path) -> Module | None:
        text = self._read(path)
        if text is None:
            return None
        try:
            tree = Tree(text, str(path))
        except (SyntaxError, ValueError, RecursionError):
            return None
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        return Module(name, tree, Scopes(tree), path, package=package)


def _imported_names(node: ast.Import | ast.ImportFrom, package: str) -> list[str]:
    """Dotted names of the modules an import can load, relative ones made absolute."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    base = absolute_name(node, package)
    if base is None:
        return []
    return ([base] if base else []) + [
        f"{base}.{a.name}" if base else a.name for a in node.names if a.name != "*"
    ]


def absolute_name(node: ast.ImportFrom, package: str) -> str | None:
    """The module that a `from` import names, from the root; None when it climbs above it."""
    if not node.level:
        return node.module or ""
    parts = package.split(".") if package else []
    if node.level - 1 > len(parts):
        return None
    base = parts[: len(parts) - (node.level - 1)]
    return ".".join([*base, *(node.module.split(".") if node.module else [])])
