"""The settings in [tool.accelify] of the nearest pyproject.toml; the user's rows about functions of libraries."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

from accelify import files_read
from accelify.source import ConfigurationError

# Names the one file whose settings hold, in place of the nearest pyproject.toml; the null device is none at all.
CONFIG = "ACCELIFY_CONFIG"


@cache
def nearest_section(folder: Path) -> tuple[Any, Path] | None:
    """The section [tool.accelify], and the file it is in: the first pyproject.toml with one from `folder` up.

    The file that the environment variable ACCELIFY_CONFIG names is taken in place of these. Raises ConfigurationError
    for a file that cannot be read.
    """
    if chosen := os.environ.get(CONFIG):
        files = [Path(chosen)]
    else:
        files = [file for place in (folder, *folder.parents) if (file := place / "pyproject.toml").is_file()]
    for file in files:
        import tomllib

        try:
            section = tomllib.loads(file.read_text(encoding="utf-8")).get("tool", {}).get("accelify")
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"{file} cannot be read ({error}): correct it.", file) from None
        if section is not None:
            return section, file
    return None


def user_rows(path: Path | None) -> dict[str, str]:
    """The rows of [tool.accelify.models] for a script (None: for this folder), as `Knowledge` takes them.

    `models` is a table of rows, or the name of a file of rows beside pyproject.toml. Raises ConfigurationError, naming
    the row and what is allowed, for rows that make no sense.
    """
    from accelify.knowledge import RowError
    from accelify.knowledge.row import parse_row
    from accelify.knowledge.rows import USERS, Table

    found = nearest_section(path.resolve().parent if path is not None else Path.cwd())
    models = found[0].get("models") if found is not None and isinstance(found[0], dict) else None
    if found is None or models is None:
        return {}
    file = found[1]
    if isinstance(models, str):
        return _of_file(file.parent / models, file)
    if not isinstance(models, dict) or not all(isinstance(text, str) for text in models.values()):
        raise ConfigurationError(
            f'{file}: models of [tool.accelify] is a table of rows, as in "mylogger.log" = "none effect=log.write '
            'content=*", or the name of a file of rows.',
            file,
        )
    wrong = []
    for name, text in models.items():
        word, _, about = name.partition(" ")
        try:
            if word == "class":
                Table(USERS).declare(word, f"{about}({text})")
            elif word == "alias":
                Table(USERS).declare(word, f"{about}={text}")
            else:
                parse_row(name, text, USERS)
        except RowError as error:
            wrong.append(f"{file}: {error}")
    if wrong:
        raise ConfigurationError("\n".join(wrong), file)
    return models


def _of_file(rows: Path, configured_in: Path) -> dict[str, str]:
    from accelify.knowledge.checking import as_mapping, problems
    from accelify.knowledge.rows import read_table

    try:
        text = (files_read.read(rows) or b"").decode("utf-8")
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"{rows}, the models of [tool.accelify] in {configured_in}, cannot be read ({error}): correct it.",
            rows,
        ) from None
    if wrong := problems(text, str(rows)):
        raise ConfigurationError("\n".join(wrong), rows)
    return as_mapping(read_table(text, str(rows)))
