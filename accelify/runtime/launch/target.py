"""The script or module that is launched: whether it exists, can be run, and knows of other processes."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from accelify.runtime.launch.settings import LaunchError

# A file that has one of these words knows, or uses something that knows, of other processes.
_KNOWS = re.compile(
    r"accelify|accelerate|distributed|deepspeed|lightning|transformers|horovod|composer|torch_xla|"
    r"\bray\b|\bjax\b|mpi4py|WORLD_SIZE|\bRANK\b|LOCAL_RANK|SLURM_PROCID"
)
_TRAINS = re.compile(r"^\s*(?:import|from)\s+torch\b", re.MULTILINE)
_MOST_FILES = 200


def check_target(script: str, module: bool) -> None:
    """See that a script or module can be started.

    Args:
        script: a path, or a module's name with `module`.
        module: which of them.

    Raises:
        LaunchError: it is not there, cannot be read, or is a notebook.
    """
    if module:
        top = script.partition(".")[0]
        with _folder_on_path():
            try:
                found = importlib.util.find_spec(top)
            except (ImportError, ValueError):
                found = None
        if found is None:
            raise LaunchError(f"No module named {top!r} from here: give -m a module that Python finds.")
        return
    path = Path(script)
    if path.is_dir() and not (path / "__main__.py").is_file():
        raise LaunchError(f"{script} is a directory without a __main__.py: name the training script itself.")
    if not path.exists():
        hint = "; a module's name needs -m before it" if not script.endswith(".py") else ""
        raise LaunchError(f"{script} does not exist: check the path{hint}.")
    if path.is_file() and not os.access(path, os.R_OK):
        raise LaunchError(f"{script} cannot be read: change its permissions.")
    if path.suffix == ".ipynb":
        raise LaunchError(
            f"{script} is a notebook, which is started from inside: call "
            "accelify.runtime.notebook_launcher(function, num_processes=...) in a cell of it, or export it with "
            f"jupyter nbconvert --to script {script}."
        )
    if package := _package_of(path):
        raise LaunchError(
            f"{script} imports from its own package, which Python knows only of a module: start it as one, "
            f"`-m {package}` in place of {script}."
        )


def _package_of(path: Path) -> str:
    """The name as a module of a script that cannot run as a file, as its first lines import relatively; else empty."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):
        return ""
    if not any(isinstance(one, ast.ImportFrom) and one.level for one in tree.body):
        return ""
    parts = [path.stem]
    folder = path.resolve().parent
    while (folder / "__init__.py").is_file() and folder != Path.cwd():
        parts.insert(0, folder.name)
        folder = folder.parent
    return ".".join(parts) if len(parts) > 1 else f"{folder.name}.{path.stem}"


def joins_by_itself(script: str, module: bool) -> bool:
    """Whether a script calls `init_process_group`, which wants its rank from the environment on one process, too.

    Args:
        script, module: as for `check_target`.
    """
    with _folder_on_path():
        path = _module_file(script) if module else Path(script)
    try:
        text = path.read_text(encoding="utf-8") if path is not None else ""
    except (OSError, ValueError):
        return False
    return "init_process_group" in text and re.search(r"accelify|accelerate", text) is None


def works_alone(script: str, module: bool) -> bool:
    """Whether each of several processes would do the whole of a script's training by itself.

    Args:
        script, module: as for `check_target`.

    Returns:
        True where the script trains with torch and neither it nor a file that it imports from its project mentions
        other processes. What cannot be read counts as knowing of them.
    """
    with _folder_on_path():
        first = _module_file(script) if module else Path(script)
        if first is not None and first.is_dir():
            first = first / "__main__.py"
        waiting = [first] if first is not None else []
        roots = {Path.cwd(), *(path.parent.resolve() for path in waiting)}
        seen: set[Path] = set()
        trains = False
        while waiting:
            path = waiting.pop().resolve()
            if path in seen:
                continue
            seen.add(path)
            try:
                text = path.read_text(encoding="utf-8")
                tree = ast.parse(text)
            except (OSError, ValueError, SyntaxError):
                return False
            if _KNOWS.search(text) or len(seen) > _MOST_FILES:
                return False
            trains = trains or _TRAINS.search(text) is not None
            waiting += [file for name in _imports(tree) for file in _own_files(name, {path.parent, *roots})]
    return trains


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # `from . import a` and `from package import module` name files too.
            yield node.module or ""
            yield from (f"{node.module or ''}.{alias.name}".lstrip(".") for alias in node.names)


def _own_files(name: str, roots: set[Path]) -> Iterator[Path]:
    """The files of a module's name in the script's folder: packages on the way have an __init__ that runs too."""
    parts = name.split(".") if name else []
    for root in roots:
        for length in range(1, len(parts) + 1):
            place = root.joinpath(*parts[:length])
            for file in (place.with_suffix(".py"), place / "__init__.py"):
                if file.is_file():
                    yield file


def _module_file(name: str) -> Path | None:
    try:
        found = importlib.util.find_spec(name)
        if found is not None and found.submodule_search_locations is not None:
            found = importlib.util.find_spec(f"{name}.__main__")
    except (ImportError, ValueError):
        return None
    return Path(found.origin) if found is not None and found.origin else None


@contextlib.contextmanager
def _folder_on_path() -> Iterator[None]:
    folder = os.getcwd()
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)
