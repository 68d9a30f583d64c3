"""The rows by name: tables of a library are read when it is first asked for, rows built when they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

from accelify.knowledge.row import Row, RowError, is_name, parse_row

TABLES = Path(__file__).parent / "tables"
USERS = "[tool.accelify.models]"


@dataclass(slots=True)
class Table:
    """The lines of one file (or of the user's rows), by what they are about; their text is not looked at yet."""

    file: str
    rows: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Text after the name, and the line it stands in."""
    starred: dict[str, list[str]] = field(default_factory=dict)
    """Names with `*` inside the last word, by what stands before that word."""
    classes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Bases by class; the last word of a class may have `*`, which covers names that begin with a capital."""
    families: dict[str, list[str]] = field(default_factory=dict)
    """Classes with `*`, by what stands before the last word."""
    aliases: dict[str, str] = field(default_factory=dict)

    def where(self, line: int) -> str:
        """The place of a row, for errors and for who asks where it stands."""
        return f"{self.file}:{line}" if line else self.file

    def add(self, name: str, text: str, line: int = 0) -> None:
        """One row, not parsed yet."""
        self.rows[name] = (text, line)
        if "*" in name and not name.endswith(".*"):
            self.starred.setdefault(name.rpartition(".")[0], []).append(name)

    def declare(self, word: str, text: str, line: int = 0) -> None:
        """What follows `class` or `alias`: `a.b(c.d)`, `a.b = c.d`. Raises RowError for what is no dotted name."""
        name, _, others = text.partition("(" if word == "class" else "=")
        name = name.strip()
        names = tuple(part.strip() for part in others.strip(" )").split(",") if part.strip())
        family = word == "class" and "*" in name
        if not all(map(is_name, (name.replace("*", "X") if family else name, *names))) or (
            word == "alias" and len(names) != 1
        ):
            form = "class a.b(c.d)" if word == "class" else "alias a.b = c.d"
            raise RowError(f"{self.where(line)}: {word} {text}: write {form}, in dotted names.")
        if word == "alias":
            self.aliases[name] = names[0]
            return
        self.classes[name] = names
        if family:
            self.families.setdefault(name.rpartition(".")[0], []).append(name)


def read_table(text: str, file: str) -> Table:
    """The table out of the text of a file that errors and rows call `file`. Raises RowError for `class` and `alias`."""
    table = Table(file)
    add, number = table.add, 0
    for line in text.split("\n"):
        number += 1
        if "#" in line:
            line = line[: line.index("#")]
        words = line.split(None, 1)
        if not words:
            continue
        name = words[0]
        about = words[1] if len(words) == 2 else ""
        if name == "class" or name == "alias":
            table.declare(name, about.strip(), number)
        else:
            add(name, about, number)
    return table


class Knowledge:
    """Rows by name; `extra` are the user's rows: name -> "TRANSFER key=value ...".

    A user's row stands before a shipped one of the same name. Keys of `extra` may be `class NAME`, with the bases as
    text, and `alias NAME`.

    Raises RowError for a row of the user's that makes no sense.
    """

    def __init__(self, extra: Mapping[str, str] | None = None) -> None:
        self._tables: dict[str, Table | None] = {}
        self._users = Table(USERS)
        for name, text in (extra or {}).items():
            word, _, about = name.partition(" ")
            if word in ("class", "alias"):
                self._users.declare(word, f"{about}({text})" if word == "class" else f"{about}={text}")
            else:
                parse_row(name, text, USERS)
                self._users.add(name, text)
        self._rows: dict[str, Row | None] = {}
        self._methods: dict[tuple[str | None, str], Row | None] = {}

    def knows(self, library: str) -> bool:
        """Whether there are rows about a library, by the name that it is imported by."""
        shipped = self._of(library)[1:]
        return bool(shipped) or any(name.partition(".")[0] == library for name in self._users.rows)

    def has_parts(self, name: str) -> bool:
        """Whether there are rows of what a name has: it is a module or a class."""
        name = f"{self.canonical(name)}."
        return any(row.startswith(name) for table in self._of(name) for row in table.rows)

    def row(self, name: str) -> Row | None:
        """The row of a function, class or attribute: the exact one, a method's of a base, else the longest `a.b.*`.

        A name of one word is a builtin's.
        """
        if name not in self._rows:
            self._rows[name] = self._row(self.canonical(name))
        return self._rows[name]

    def method(self, type_name: str | None, method: str) -> Row | None:
        """The row of a method of a type, of one of its bases, or of `?.method` where none of them has it."""
        asked = (type_name, method)
        if asked not in self._methods:
            row = self._of_class(self.canonical(type_name), method) if type_name else None
            self._methods[asked] = row or self._exact(f"?.{method}") or self._starred("?", method)
        return self._methods[asked]

    def bases(self, type_name: str) -> tuple[str, ...]:
        """The classes that a type derives from directly, as far as the tables say."""
        name = self.canonical(type_name)
        for table in self._of(name):
            if name in table.classes:
                return table.classes[name]
        parent, _, last = name.rpartition(".")
        if last[:1].isupper():
            for table in self._of(name):
                if family := _closest(table.families.get(parent, ()), name):
                    return table.classes[family]
        return ()

    def canonical(self, name: str) -> str:
        """The name that the rows use: aliases are followed, of the whole name or of a package that it begins with."""
        for _ in range(4):  # an alias may lead to another; a ring of them ends here
            renamed = self._renamed(name)
            if renamed == name:
                break
            name = renamed
        return name

    def _renamed(self, name: str) -> str:
        for table in self._of(name):
            if not table.aliases or name in table.rows or name in table.classes:
                continue
            head, rest = name, ""
            while head:
                if head in table.aliases:
                    return table.aliases[head] + rest
                head, dot, last = head.rpartition(".")
                rest = f"{dot}{last}{rest}"
        return name

    def _row(self, name: str) -> Row | None:
        if "." not in name:
            return self._exact(name) or self._exact(f"builtins.{name}")
        parent, _, last = name.rpartition(".")
        if row := self._exact(name):
            return replace(row, returns=parent) if row.returns == "self" else row
        if row := self._of_class(parent, last) or self._starred(parent, last):
            return row
        if last[:1].islower() and self._exact(f"{name}.*"):
            return None  # a module, and no function of the one around it
        while parent:
            row = self._exact(f"{parent}.*")
            if row is not None and row.transfer == "new":
                # A pattern of classes covers no methods of theirs.
                row = replace(row, returns=row.returns or name) if parent == name.rpartition(".")[0] else None
            if row is not None:
                return row
            parent = parent.rpartition(".")[0]
        return None

    def _of_class(self, type_name: str, method: str) -> Row | None:
        seen = []
        waiting = [type_name]
        while waiting:
            name = waiting.pop(0)
            if name in seen:
                continue
            seen.append(name)
            row = self._exact(f"{name}.{method}")
            if row is None and self._is_class(name):
                row = self._starred(name, method) or self._exact(f"{name}.*")
            if row is not None:
                return replace(row, returns=type_name) if row.returns == "self" else row
            waiting += map(self.canonical, self.bases(name))
        return None

    def _is_class(self, name: str) -> bool:
        if any(name in table.classes for table in self._of(name)):
            return True
        row = self._exact(name)
        return row is not None and row.transfer == "new"

    def _starred(self, parent: str, last: str) -> Row | None:
        """The row with `*` inside its last word that fits with the most letters."""
        name = f"{parent}.{last}"
        best = max((_closest(table.starred.get(parent, ()), name) for table in self._of(parent)), key=len)
        row = self._exact(best) if best else None
        if row is not None and row.transfer == "new":
            row = replace(row, returns=row.returns or name)
        return row

    def _exact(self, name: str) -> Row | None:
        for table in self._of(name):
            if name in table.rows:
                text, line = table.rows[name]
                row = parse_row(name, text, table.where(line))
                if row.transfer == "new" and not row.returns and "*" not in name:
                    row = replace(row, returns=name)
                return row
        return None

    def _of(self, name: str) -> tuple[Table, ...]:
        """The tables that can say something of a name: the user's, and its library's."""
        library = name.partition(".")[0]
        if library not in self._tables:
            self._tables[library] = _shipped(library)
        table = self._tables[library]
        return (self._users,) if table is None else (self._users, table)


def _closest(patterns: Iterable[str], name: str) -> str:
    """The longest of the patterns that fit a name; empty where none does."""
    return max((pattern for pattern in patterns if fnmatchcase(name, pattern)), key=len, default="")


def _shipped(library: str) -> Table | None:
    file = "any" if library == "?" else library
    if not file.isidentifier():
        return None
    try:
        text = (TABLES / f"{file}.models").read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    return read_table(text, f"{file}.models")
