"""IPython's syntax in a notebook's cells, replaced by Python that parses, line for line.

    %matplotlib inline              # accelify-magic 0: %matplotlib inline
    %time train(model)        ->    train(model)  # accelify-magic before 1: %time
    files = !ls                     files = accelify_magic(2)
    model?                          # accelify-magic 3: model?

A line that starts with `%` inside brackets or a string is Python, and stays.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Sequence

from accelify.source import split_lines

# Cell magics whose cell is Python all the same.
_PYTHON_CELLS = frozenset(
    {"time", "timeit", "capture", "prun", "memit", "mprun", "lprun", "snakeviz", "heat"}
)

# Magics that IPython knows without their `%` too, where they are all of a cell; not those before Python (`time`).
_AUTOMATIC = frozenset(
    "alias autoreload bookmark cat cd clear colors conda config cp dhist dirs edit env gui hist history ldir less lf "
    "lk ll load load_ext ls lx mamba man matplotlib micromamba mkdir more mv pdoc pfile pinfo pip popd precision "
    "psource pushd pwd pycat pylab rehashx reload_ext reset rm rmdir run set_env system tensorboard unalias "
    "unload_ext uv who who_ls whos".split()
)
_COMMAND = re.compile(r"([a-z_]+)\s+[^=(\s]")

_CELL_MAGIC = re.compile(r"%%(\w*)")
_LINE_MAGIC = re.compile(r"\s*(?:%%?\s*[A-Za-z_]|!|\?)")
_HELP = re.compile(r"\s*%{0,2}[^\W\d][\w.*\[\]'\"]*\?{1,2}\s*;?\s*$")
_ASSIGNED = re.compile(r"(\s*[^\W\d][\w.\[\]'\", ]*=\s*)([!%]\s*[A-Za-z_./~$\"'{(].*)$")
_TIMED = re.compile(r"(\s*)(%%?[ \t]*(?:time|timeit|prun|memit)[ \t]+)([^-\s].*)$")
_LINE_END = re.compile(r"(?:\r\n|\r|\n)?\Z")
# What decides where a logical line of Python ends: comments, strings, brackets and a backslash at the end.
_TOKEN = re.compile(
    r"#[^\r\n]*|'{3}|\"{3}|'(?:\\.|[^'\\\r\n])*(?:'|\\?$)|\"(?:\\.|[^\"\\\r\n])*(?:\"|\\?$)|[()\[\]{}]|\\$"
)


class Mask:
    """Hides lines and returns them.

    `hidden` has the texts that the numbered placeholders replace. Make one for each notebook, with `texts` all of
    its cells: the placeholders use a word that none of them has.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self.word = "accelify-magic"
        while any(self.word in text or self.word.replace("-", "_") in text for text in texts):
            self.word += "-x"
        self.name = self.word.replace("-", "_")
        self.hidden: list[str] = []
        word, name = re.escape(self.word), re.escape(self.name)
        self._placeholder = re.compile(
            rf"(?:pass  )?# {word} (?P<line>\d+)(?::[^\r\n]*)?"
            rf"|(?P<code>[^\r\n]*?)  # {word} before (?P<before>\d+):[^\r\n]*"
            rf"|{name}\((?P<value>\d+)\)"
        )
        self._line = re.compile(rf"^(?P<indent>[ \t]*)(?P<rest>[^\r\n]*(?:{word}|{name})[^\r\n]*)", re.M)

    def hide_magics(self, text: str) -> str:
        """`text` with its magics hidden; other lines as they are. The result need not parse."""
        lines = split_lines(text)
        first = next((index for index, line in enumerate(lines) if line.strip()), 0)
        if lines and (cell := _CELL_MAGIC.match(lines[first])):
            if cell[1] not in _PYTHON_CELLS:
                return self.hide_all(text)
            lines[first] = self._as_comment(lines[first])
        for index, begins in _magic_lines(lines):
            lines[index] = (
                self._masked(lines[index]) if begins else self._as_comment(lines[index], whole=True)
            )
        return "".join(lines)

    def hide_all(self, text: str) -> str:
        """`text` with every line hidden in a comment."""
        return "".join(
            self._as_comment(line, whole=True) if line.strip(" \t\f\r\n") else line
            for line in split_lines(text)
        )

    def show(self, text: str) -> str:
        """`text` with everything hidden put back."""
        return self._line.sub(lambda match: match["indent"] + self._shown(match["rest"]), text)

    def numbers(self, text: str) -> list[int]:
        """The numbers of the placeholders in `text`."""
        return sorted(
            int(match["line"] or match["before"] or match["value"])
            for match in self._placeholder.finditer(text)
        )

    def shift(self, line: str) -> int:
        """By how many characters the code of a masked line is further to the right in the notebook."""
        match = self._placeholder.search(line)
        return len(self.hidden[int(match["before"])]) if match and match["before"] else 0

    def _shown(self, rest: str) -> str:
        def back(match: re.Match[str]) -> str:
            if match["before"]:
                return self.hidden[int(match["before"])] + match["code"]
            return self.hidden[int(match["line"] or match["value"])]

        return self._placeholder.sub(back, rest)

    def _hold(self, text: str) -> int:
        self.hidden.append(text)
        return len(self.hidden) - 1

    def _masked(self, line: str) -> str:
        body, end = _split_end(line)
        if (match := _TIMED.match(body)) and _parses(match[3]):
            number = self._hold(match[2])
            return f"{match[1]}{match[3]}  # {self.word} before {number}: {match[2].strip()}{end}"
        if match := _ASSIGNED.match(body):
            return f"{match[1]}{self.name}({self._hold(match[2])}){end}"
        return self._as_comment(line)

    def _as_comment(self, line: str, whole: bool = False) -> str:
        body, end = _split_end(line)
        code = body if whole else body.lstrip(" \t")
        indent = body[: len(body) - len(code)]
        # A block must not lose its only statement.
        statement = "pass  " if indent else ""
        shown = "".join(letter if letter.isprintable() else "?" for letter in code)
        return f"{indent}{statement}# {self.word} {self._hold(code)}: {shown}{end}"


def parses(text: str) -> bool:
    """Whether `text` is Python as it is."""
    return _parses(text)


def _parses(text: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def is_automagic(text: str) -> bool:
    """Whether a cell, which is no Python, is one magic without its `%`: `cd drive/My\\ Drive`."""
    command = text.strip()
    match = _COMMAND.match(command)
    return match is not None and match[1] in _AUTOMATIC and len(split_lines(command)) == 1


def _split_end(line: str) -> tuple[str, str]:
    match = _LINE_END.search(line)
    end = match.group() if match else ""
    return line[: len(line) - len(end)], end


def _magic_lines(lines: Sequence[str]) -> Iterator[tuple[int, bool]]:
    """Indices of the lines that hold a magic, and whether it begins there; a backslash at the end continues it."""
    depth, quote, continued, magic = 0, "", False, False
    for index, line in enumerate(lines):
        body, _ = _split_end(line)
        fresh = not (depth or quote or continued)
        goes_on = magic and continued
        if goes_on or (fresh and _is_magic(body)):
            yield index, not goes_on
            magic, continued = True, body.endswith("\\")
            continue
        magic = continued = False
        place = 0
        while place < len(body):
            if quote:
                end = re.compile(rf"(?s:\\.)|{quote}").search(body, place)
                if end is None:
                    break
                place = end.end()
                quote = "" if end.group() == quote else quote
                continue
            token = _TOKEN.search(body, place)
            if token is None:
                break
            place, found = token.end(), token.group()
            if found in ("'''", '"""'):
                quote = found
            elif found in "([{":
                depth += 1
            elif found in ")]}":
                depth = max(0, depth - 1)
            elif found.endswith("\\") and not found.startswith("#"):
                continued = True


def _is_magic(body: str) -> bool:
    return bool(_LINE_MAGIC.match(body) or _HELP.match(body) or _ASSIGNED.match(body))
