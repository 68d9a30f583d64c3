"""Which files of a folder `check` and `convert` leave out: those that patterns name, and those that Git ignores."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

from accelify.cli.inputs import EXCLUDED, IGNORED, Inputs
from accelify.configuration import nearest_section
from accelify.source import ConfigurationError


def leave_out(inputs: Inputs, exclude: Sequence[str], forced: bool = False, ignored: bool = True) -> None:
    """Take the excluded scripts out of those to work on; what the user named stays.

    Args:
        inputs: changed in place.
        exclude: patterns beside those of [tool.accelify].
        forced: leaves out what the user named, too.
        ignored: leaves out what Git ignores, too.

    Raises:
        ConfigurationError: the file's patterns are none.
    """
    patterns = {path: (*exclude, *excluded_patterns(path.resolve().parent)) for path in inputs.scripts}
    found = [path for path in inputs.scripts if forced or path not in inputs.named]
    out = {path for path in found if is_excluded(path, patterns[path])}
    inputs.left_out.update(dict.fromkeys(sorted(out), EXCLUDED))
    by_git = ignored_by_git([path for path in found if path not in out]) if ignored else set()
    # Who names a folder that Git ignores wants what is in it.
    asked_for = ignored_by_git(list({inputs.roots[path] for path in by_git}))
    by_git = {path for path in by_git if inputs.roots[path] not in asked_for}
    inputs.left_out.update(dict.fromkeys(sorted(by_git), IGNORED))
    inputs.scripts = [path for path in inputs.scripts if path not in inputs.left_out]


def excluded_patterns(folder: Path) -> tuple[str, ...]:
    """`exclude` of the nearest [tool.accelify].

    Raises:
        ConfigurationError: it is no list of patterns.
    """
    found = nearest_section(folder)
    patterns = found[0].get("exclude", []) if found is not None and isinstance(found[0], dict) else []
    if not isinstance(patterns, list) or not all(isinstance(one, str) for one in patterns):
        raise ConfigurationError(
            f'{found[1] if found else folder}: exclude of [tool.accelify] is a list of patterns, as in ["old/*"].'
        )
    return tuple(patterns)


def is_excluded(path: Path, patterns: Sequence[str]) -> bool:
    """Whether a pattern names a file, or a folder that it is in, by its name or by the end of its path."""
    places = [path, *path.parents]
    return any(
        fnmatch(place.name, pattern)
        or fnmatch(place.as_posix(), f"*/{pattern}")
        or fnmatch(place.as_posix(), pattern)
        for pattern in (one.rstrip("/") for one in patterns)
        for place in places
    )


def ignored_by_git(paths: Sequence[Path]) -> set[Path]:
    """Those of some files that Git ignores; none where there is no Git, or no repository around them."""
    places = {str(path.resolve()): path for path in paths}
    ignored: set[Path] = set()
    if places:
        import subprocess
    while places:
        # One question answers for all files of a repository: those below the folder of the topmost one.
        top = min((Path(place).parent for place in places), key=lambda folder: len(folder.parts))
        inside = [place for place in places if Path(place).is_relative_to(top)]
        try:
            asked = subprocess.run(
                ["git", "-C", str(top), "check-ignore", "--stdin", "-z"],
                input="\0".join(inside),
                capture_output=True,
                text=True,
                errors="surrogateescape",
                check=False,
            )
        except OSError:
            return set()
        ignored |= {places[place] for place in asked.stdout.split("\0") if place in places}
        for place in inside:
            del places[place]
    return ignored
