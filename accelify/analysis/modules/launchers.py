"""By which engine a project trains its scripts on several processes, as its commands and its configurations of
`accelerate launch` show."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from accelify import files_read
from accelify.analysis.modules.search_path import top_of_project, up_to_top

_LARGEST, _MOST = 200_000, 200
# A command with the lines that it goes on in.
_COMMAND = re.compile(r"\baccelerate[ \t]+launch\b(?:[^\n\\]|\\\r?\n|\\.)*")
_OPTION = re.compile(r"--(?:use[_-](deepspeed|fsdp)|(multi[_-]gpu))\b")
_CONFIGURATION = re.compile(r"--config[_-]file[ \t=]+['\"]?([^\s'\"]+)")
_TYPE = re.compile(r"^[ \t]*distributed_type:[ \t]*['\"]?(\w+)", re.MULTILINE)
# Folders beside a script that such files stand in.
_FOLDERS = re.compile(r"conf|script|launch|recipe|accelerate|deepspeed|fsdp", re.IGNORECASE)
_NO_ENGINE = frozenset({"NO", "MULTI_CPU"})


def engines_of(script: Path) -> frozenset[str]:
    """The engines, as Accelerate names them (DEEPSPEED, FSDP, MULTI_GPU), by which a project trains a script; none
    where nothing says so.

    Commands that name the script count before configurations that stand around it.

    Args:
        script: where it is.
    """
    texts = {path: text for path in _files_around(script) if (text := _text_of(path)) is not None}
    configured = {
        path.name: found[1].upper()
        for path, text in texts.items()
        if (found := _TYPE.search(text)) is not None
    }
    name = re.compile(rf"(?<![\w-]){re.escape(script.name)}\b|-m[ \t]+(?:\w+\.)*{re.escape(script.stem)}\b")
    commands = (one[0] for text in texts.values() for one in _COMMAND.finditer(text))
    asked = {_engine_of(one, configured) for one in commands if name.search(one)} - {""}
    return frozenset(asked or configured.values()) - _NO_ENGINE


def _engine_of(command: str, configured: dict[str, str]) -> str:
    """The engine of one command, "" where it leaves that to a configuration which is not there."""
    if (option := _OPTION.search(command)) is not None:
        return (option[1] or "multi_gpu").upper()
    of_file = _CONFIGURATION.search(command)
    return configured.get(Path(of_file[1]).name, "") if of_file is not None else ""


def _files_around(script: Path) -> Iterator[Path]:
    """Texts and configurations beside a script, up to the top of its project, and in folders beside it for such."""
    above = up_to_top(script.resolve().parent)
    # Where nothing says where the project begins, what lies above its README is of others.
    described = (n for n, folder in enumerate(above) if files_read.is_file(folder / "README.md"))
    for folder in above if top_of_project(above[0]) in above else above[: next(described, 0) + 1]:
        folders, files = _names_in(folder)
        yield from (folder / name for name in files)
        for inner in [folder / name for name in folders if _FOLDERS.search(name)]:
            yield from (inner / name for name in _names_in(inner)[1])


def _names_in(folder: Path) -> tuple[list[str], list[str]]:
    try:
        return files_read.names_in(folder, _MOST, files_read.COMMANDS)
    except OSError:
        return [], []


def _text_of(path: Path) -> str | None:
    try:
        return (files_read.read(path, _LARGEST) or b"").decode("utf-8-sig", "replace")
    except OSError:
        return None
