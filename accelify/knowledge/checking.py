"""Whether the rows of a file make sense, one sentence for each that does not."""

from __future__ import annotations

from collections.abc import Iterator

from accelify.knowledge.row import RowError, parse_row
from accelify.knowledge.rows import TABLES, Table, read_table


def problems(text: str, file: str) -> list[str]:
    """What is wrong with the rows of a table: each that cannot be read, and names that stand twice."""
    found: list[str] = []
    readable: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        # A line by itself, so that one that cannot be read hides none after it.
        try:
            found += problems_of(read_table(line, file), number)
            readable.append(line)
        except RowError as error:
            found.append(str(error).replace(f"{file}:1:", f"{file}:{number}:", 1))
            readable.append("")
    first: dict[str, int] = {}
    for number, line in enumerate(readable, 1):
        for name in read_table(line, file).rows:
            if name in first:
                found.append(
                    f"{file}:{number}: {name} stands in line {first[name]} already: keep one of them."
                )
            first.setdefault(name, number)
    return found


def problems_of(table: Table, line: int = 0) -> Iterator[str]:
    """The rows of a table that cannot be read; `line` is where they stand, if not where the table says."""
    for name, (text, number) in table.rows.items():
        try:
            parse_row(name, text, table.where(line or number))
        except RowError as error:
            yield str(error)


def shipped() -> Iterator[tuple[str, str]]:
    """File name and text of every table that accelify brings."""
    for path in sorted(TABLES.glob("*.models")):
        yield path.name, path.read_text(encoding="utf-8")


def as_mapping(table: Table) -> dict[str, str]:
    """A table as `Knowledge` takes the user's rows."""
    return {
        **{name: text for name, (text, _) in table.rows.items()},
        **{f"class {name}": ", ".join(bases) for name, bases in table.classes.items()},
        **{f"alias {name}": other for name, other in table.aliases.items()},
    }
