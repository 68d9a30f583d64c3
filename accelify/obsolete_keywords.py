"""`x.cuda(async=True)`: Python's parser accepted it up to 3.6, torch up to 0.4; since 3.7 `async` is a keyword.

Such a file is parsed as it was meant, so that it can be converted: the tree has the keyword `async` in the call, at its
place. Other uses of the name (a parameter, an attribute, an argument of the project's functions) are still a syntax
error: only the author can rename them.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize

OBSOLETE = "async"
MODERN = "non_blocking"
MOVES = frozenset({"cuda", "cpu", "to", "type", "copy_"})
"""Methods of tensors and modules that took `async` and take `non_blocking`."""

# As long as the keyword, so that every place in the text stays where it is.
_STAND_INS = ("asynC", "asyNc", "asYnc", "aSync")
_HINT = re.compile(r"\basync\s*=(?!=)")


def parse_old(text: str, filename: str = "<unknown>") -> ast.Module:
    """Parse `text` as `ast.parse` does, with `async=` of torch's moves taken for the keyword that it was.

    Raises what `ast.parse` raises where it does not parse so either.
    """
    try:
        return ast.parse(text, filename)
    except SyntaxError:
        if not _HINT.search(text):
            raise
        hidden = masked(text)
        if hidden is None:
            raise
        module = ast.parse(hidden[0], filename)
        for node in ast.walk(module):
            if isinstance(node, ast.keyword) and node.arg == hidden[1]:
                node.arg = OBSOLETE
        return module


def masked(text: str) -> tuple[str, str] | None:
    """`text` with another word of the same length for those arguments, and that word; None where it has none."""
    word = next((word for word in _STAND_INS if word not in text), None)
    found = _masked(text, word) if word is not None else None
    return None if found is None or word is None else (found, word)


def modernised(text: str) -> str:
    """`text` with those arguments under today's name, which Python runs; `text` itself where there is none."""
    return (_masked(text, MODERN) if _HINT.search(text) else None) or text


def obsolete_keywords(call: ast.Call) -> list[ast.keyword]:
    """The arguments of a call that torch once called `async`."""
    return [keyword for keyword in call.keywords if keyword.arg == OBSOLETE]


def _masked(text: str, name: str) -> str | None:
    """`text` with another name wherever `async=` is an argument of a move; None where there is none."""
    lines = io.StringIO(text, newline="").readlines()
    at: list[tuple[int, int]] = []
    opened: list[str] = []  # for each open bracket the method that is called by it
    last, before, place = "", "", (1, 0)
    try:
        for token in tokenize.generate_tokens(io.StringIO(text, newline="").readline):
            if token.string in ("(", "[", "{"):
                opened.append(last if token.string == "(" and before == "." else "")
            elif token.string in (")", "]", "}"):
                if opened:
                    opened.pop()
            elif token.string == "=" and last == OBSOLETE and opened and opened[-1] in MOVES:
                at.append(place)
            if token.type not in (tokenize.NL, tokenize.COMMENT):
                before, last, place = last, token.string, token.start
    except (tokenize.TokenError, SyntaxError):
        return None
    for row, column in reversed(at):
        line = lines[row - 1]
        lines[row - 1] = f"{line[:column]}{name}{line[column + len(OBSOLETE) :]}"
    return "".join(lines) if at else None
