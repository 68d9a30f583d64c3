"""`accelify rule --models`: whether the rows about functions of libraries make sense, and what is known of one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from accelify.cli.terminal import complain, fail, print_rows

if TYPE_CHECKING:
    from accelify.knowledge import Knowledge, Row

_FIELDS = ("kind", "effect", "path", "content", "mutates", "axis", "returns", "place", "note")


def show_models(name: str | None, json: bool) -> None:
    """Check every row, the user's and the shipped ones; with a name, say what is known of that function."""
    from accelify.configuration import user_rows
    from accelify.knowledge import Knowledge
    from accelify.source import SourceError

    try:
        rows = user_rows(None)
    except SourceError as error:
        fail(str(error))
    if name is None:
        _check(rows)
    else:
        _show(Knowledge(rows), name, json)


def _check(rows: dict[str, str]) -> None:
    from accelify.knowledge.checking import problems, shipped
    from accelify.knowledge.rows import read_table
    from accelify.report.style import counted

    wrong: list[str] = []
    tables = count = 0
    for file, text in shipped():
        wrong += problems(text, file)
        tables += 1
        count += len(read_table(text, file).rows) if not wrong else 0
    for sentence in wrong:
        complain(sentence)
    if wrong:
        raise typer.Exit(1)
    print(f"{counted(len(rows), 'row')} of [tool.accelify.models] and {count} in {tables} tables make sense.")


def _show(knowledge: Knowledge, name: str, json: bool) -> None:
    method = name.removeprefix("?.")
    row = knowledge.row(name) if method == name else knowledge.method(None, method)
    if row is None:
        complain(f"nothing is known of {name}: teach accelify in [tool.accelify.models], see docs/models.md.")
        raise typer.Exit(1)
    if json:
        import json as formats

        entry = {"name": row.name, "transfer": row.transfer, **_fields(row), "table": row.table}
        print(formats.dumps(entry, indent=2))
        return
    from accelify.knowledge import TRANSFERS

    print(f"{name}: {TRANSFERS[row.transfer]}.\n")
    entries = {"row": row.name, "transfer": row.transfer, **_fields(row), "stands in": row.table}
    if bases := knowledge.bases(name):
        entries["bases"] = ", ".join(bases)
    print_rows([*entries.items()], indent="  ")


def _fields(row: Row) -> dict[str, str]:
    values = {field: getattr(row, field) for field in _FIELDS}
    return {
        field: ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        for field, value in values.items()
        if value
    }
