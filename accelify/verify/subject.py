"""What is verified: the plain script and the converted one, whichever of them the user named.

A converted script finds its plain version by itself: the file that the user names, else the newest version in git's
history that does not import a runtime. Of a notebook, all of this is about the script that its cells make.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from accelify.notebook import SUFFIX, NotebookSource
from accelify.source import Source, SourceError
from accelify.verify.converted import Converted
from accelify.verify.session import VerifyError

_CONVERTED = re.compile(rb"^\s*(?:from|import)\s+(?:accelify|accelerate)\b", re.MULTILINE)


@dataclass(frozen=True)
class Subject:
    """A script and what to compare its run with.

    Args:
        script: the file that is run.
        converted: the copy, None where the converter makes it.
        module: the name that it is run by, as with `python -m`; empty for a script.
    """

    script: Path
    converted: Converted | None = None
    module: str = ""


def find_subject(script: Path, against: Path | None) -> Subject:
    """The subject that a script, and perhaps a file to compare it with, represent.

    Raises:
        VerifyError: both are converted, or a converted script's plain version is not found.
        SourceError: a file cannot be read or is not Python.
    """
    data = read(script)
    place = script.resolve()
    if against is None:
        if not is_converted(data):
            return Subject(script)
        originals = _plain_versions(place)
        if not originals:
            made = "is converted already" if _names_accelify(data) else "uses Hugging Face Accelerate already"
            raise VerifyError(
                f"{script} {made}, and its plain version, to compare it with, is not known: name it with --against "
                "FILE. (It was looked for in git's history of the file.) `accelify check` looks for mistakes in it "
                "without one."
            )
        return Subject(script, _standing(place, data, originals, (f"{script} as git has it", str(script))))
    other = read(against)
    if is_converted(data) and not is_converted(other):
        return Subject(script, _standing(place, data, {place: other}, (str(against), str(script))))
    if is_converted(data):
        raise VerifyError(
            f"{script} and {against} are both converted: one of them has to be the plain script."
        )
    copy = Converted(files={place: other}, originals=_beside(place, data), written={place: against})
    return Subject(script, replace(copy, versions=(str(script), str(against))))


def _standing(place: Path, data: bytes, originals: dict[Path, bytes], versions: tuple[str, str]) -> Converted:
    """A conversion that stands in its file."""
    files = _beside(place, data)
    return Converted(files=files, originals=originals, written={place: place}, versions=versions)


def find_module(name: str) -> Path:
    """The file that `python -m NAME` runs from here.

    Raises:
        VerifyError: there is no such module.
    """
    sys.path.insert(0, os.getcwd())
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
    except (ImportError, ValueError) as error:
        raise VerifyError(f"-m {name}: {error}.") from None
    finally:
        sys.path.pop(0)
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        raise VerifyError(f"-m {name}: there is no such module here, or it is not a Python file.")
    return Path(spec.origin)


def _names_accelify(data: bytes) -> bool:
    return any(b"accelify" in one[0] for one in _CONVERTED.finditer(data))


def is_converted(data: bytes) -> bool:
    """Whether a script imports the runtime that converted scripts use."""
    return _CONVERTED.search(data) is not None


def read(path: Path) -> bytes:
    """The bytes of a script, or of the script that a notebook's cells make.

    Raises:
        SourceError: it cannot be read, or is not Python.
    """
    source = Source.read(path)
    if path.suffix != SUFFIX:
        _ = source.tree
    return _runnable(source)


def _runnable(source: Source) -> bytes:
    return source.text.encode() if isinstance(source, NotebookSource) else source.encode()


def _beside(place: Path, data: bytes) -> dict[Path, bytes]:
    """What runs in a file's place where that is not what stands on the disk: for a notebook, which is JSON there."""
    return {place: data} if place.suffix == SUFFIX else {}


def _plain_versions(script: Path) -> dict[Path, bytes]:
    """The plain version of a converted script in git, with that of every other Python file that was changed since."""
    commits = _git(script.parent, "log", "--format=%H", "--", script.name)
    top = _git(script.parent, "rev-parse", "--show-toplevel")
    if commits is None or top is None:
        return {}
    root = Path(os.path.realpath(top.decode().strip()))
    name = script.relative_to(root).as_posix()
    for commit in commits.decode().split():
        data = _git(root, "show", f"{commit}:{name}")
        if data is not None and script.suffix == SUFFIX:
            try:
                data = _runnable(Source.from_bytes(data, script))
            except SourceError:
                continue  # a version that is no notebook, or has no code yet
        if data is None or is_converted(data):
            continue
        found = {script: data}
        changed = _git(root, "diff", "--name-only", "-z", commit, "--", "*.py") or b""
        for other in filter(None, changed.decode().split("\0")):
            before = _git(root, "show", f"{commit}:{other}")
            if before is not None and (root / other).exists():
                found[root / other] = before
        return found
    return {}


def _git(folder: Path, *arguments: str) -> bytes | None:
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, check=False)
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None
