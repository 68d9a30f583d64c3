"""Places that are left for a person, as comments in the converted script: written by `convert`, found by `check`."""

from __future__ import annotations

import ast
import re
import textwrap
import tokenize
from collections.abc import Iterable, Iterator

from accelify.conversion import Conversion
from accelify.findings import Finding, Safety
from accelify.obsolete_codes import REPLACED
from accelify.proving.origins import Origins
from accelify.rule_codes import PUBLIC
from accelify.source import Source, split_lines

_MARK = re.compile(r"#\s*TODO\(accelify (ACC\d{3})\):\s*(.*)")
# A comment that goes on in the next line is set in there.
_FURTHER = "#     "
_FOLLOWS = re.compile(r"#\s{2,}(.*)")
_LONGEST = 200
# A script's longest line says how long its lines may be, between the usual limits.
_NARROWEST, _WIDEST = 79, 120
# Where a clause ends, outside of code.
_END = re.compile(r"(?P<code>`[^`]*`)|[:;,] | \(|$")
_CODE = re.compile("`[^`]*`")
# What a message says of lines, which move: ` (line 12)`, ` (called at helpers.py:12)`, `; the same at ...`.
_LINES = re.compile(r" \((?:line |called at )?(?:[\w./\\-]+:)?\d+\)|; the same at .*|, and \d+ more")


def mark(conversions: Iterable[Conversion]) -> None:
    """Put a comment above each place that is left in a converted script, unless one is there.

    Notes (severity info) get none, and neither do notebooks and scripts that stay as they are.

    Args:
        conversions: their new texts are changed in place.
    """
    for conversion in conversions:
        path = conversion.source.path
        if conversion.changed and (path is None or path.suffix != ".ipynb"):
            conversion.new_text = _marked(conversion)


def _marked(conversion: Conversion) -> str:
    text = conversion.new_text
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return text
    now = Origins(text, conversion.source.text)
    lines = split_lines(text)
    known = {(code, line) for line, code, _ in _marks(text)}
    above: dict[int, dict[str, None]] = {}
    for finding in conversion.left:
        if finding.path != str(conversion.source.path or "<stdin>"):
            continue
        first = _statement_at(tree, now.of(finding.line, finding.column)[0])
        # Marks of one place stand below each other.
        marked = {
            code for code, line in known if line < first and not "".join(_code(lines[line : first - 1]))
        }
        if finding.code in marked:
            continue
        indent = lines[first - 1][: len(lines[first - 1]) - len(lines[first - 1].lstrip())]
        end = "\r\n" if lines[first - 1].endswith("\r\n") else "\n"
        message = " ".join(_LINES.sub("", finding.message).split())
        comment = f"{indent}# TODO(accelify {finding.code}): {_cut(message)}{end}"
        above.setdefault(first, {})[comment] = None
    for first in sorted(above, reverse=True):
        lines[first - 1 : first - 1] = above[first]
    new = "".join(_wrapped(lines, conversion.source.text))
    try:
        same = ast.dump(ast.parse(new)) == ast.dump(tree)
    except (SyntaxError, ValueError):
        same = False
    return new if same else text


def _wrapped(lines: Iterable[str], original: str) -> Iterator[str]:
    """Lines with the comments that are longer than those of the original script set over several."""
    before = split_lines(original)
    longest = max((len(line.rstrip()) for line in before), default=0)
    width = min(max(longest, _NARROWEST), _WIDEST)
    old = set(before)
    for line in lines:
        text = line.rstrip("\r\n")
        comment = text.lstrip()
        if len(text) <= width or line in old or not _MARK.match(comment):
            yield line
            continue
        indent = text[: len(text) - len(comment)]
        parts = textwrap.wrap(
            comment,
            width,
            initial_indent=indent,
            subsequent_indent=indent + _FURTHER,
            expand_tabs=False,
            break_long_words=False,
            break_on_hyphens=False,
        )
        yield "".join(f"{part}{line[len(text) :]}" for part in parts)


def _cut(message: str) -> str:
    """A message that fits a comment: what to do, which comes last, stays."""
    if len(message) <= _LONGEST:
        return message
    found, _, way = message.rpartition("; ")
    if not found or len(way) > _LONGEST:
        return _clauses(message, _LONGEST)
    return f"{_clauses(found, max(_LONGEST - len(way) - 2, _LONGEST // 2))}; {way}"


def _clauses(message: str, longest: int) -> str:
    """As many of a sentence's clauses as are no longer than this: what follows them are reasons."""
    ends = [found.start() for found in _END.finditer(message) if found["code"] is None]
    end = max((end for end in ends if end <= longest and _is_whole(message[:end])), default=0)
    return message[:end] or f"{message[:longest].rsplit(' ', 1)[0]} ..."


def _is_whole(text: str) -> bool:
    """Whether each parenthesis of some text, outside of code, is closed in it."""
    words = _CODE.sub("", text)
    return words.count("(") == words.count(")")


def _code(lines: Iterable[str]) -> Iterator[str]:
    """What is no comment of some lines."""
    return (line.strip() for line in lines if not line.lstrip().startswith("#"))


def _statement_at(tree: ast.Module, line: int) -> int:
    """The first line of the innermost statement around a line; the line itself where there is none."""
    first = 0
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno):
            decorated = [one.lineno for one in getattr(node, "decorator_list", [])]
            first = max(first, min([node.lineno, *decorated]))
    return first or line


def marked_places(source: Source, found: Iterable[Finding]) -> list[Finding]:
    """A finding for each comment that `convert` has left in a script.

    Args:
        source: the script.
        found: what was found anyway: the same of the same line is not found twice.
    """
    path = str(source.path or "<stdin>")
    text = source.text
    if not (marks := list(_marks(text))):
        return []
    from accelify.rules import all_rules

    rules = all_rules()
    lines = split_lines(text)
    known = {(PUBLIC.get(one.code, one.code), one.line) for one in found if one.path == path}
    places = []
    for number, marked, message in marks:
        code = REPLACED.get(marked, marked)
        code = PUBLIC.get(code or "", code)
        line = next((k for k in range(number + 1, len(lines) + 1) if "".join(_code([lines[k - 1]]))), number)
        if code not in rules or (code, line) in known:
            continue
        rule = rules[code].rule
        column = len(lines[line - 1]) - len(lines[line - 1].lstrip()) + 1
        places.append(
            Finding(
                path, line, column, code, rule.name, f"left by `accelify convert`: {message}",
                severity=rule.severity, safety=Safety.MANUAL, effort=rule.effort, fixable=False,
            )
        )  # fmt: skip
    return places


def _marks(text: str) -> Iterator[tuple[int, str, str]]:
    """The comments: the line in which each begins, its code and its message."""
    if "TODO(accelify " not in text:
        return
    lines = (line.rstrip("\r\n") + "\n" for line in split_lines(text))
    found: list[tuple[int, str, str]] = []
    end = 0
    try:
        for token in tokenize.generate_tokens(lambda: next(lines, "")):
            if token.type != tokenize.COMMENT:
                continue
            line = token.start[0]
            if match := _MARK.match(token.string):
                found.append((line, match[1], match[2]))
                end = line
            elif line == end + 1 and found and (more := _FOLLOWS.match(token.string)):
                found[-1] = (*found[-1][:2], f"{found[-1][2]} {more[1]}".strip())
                end = line
    except (tokenize.TokenError, SyntaxError):
        pass
    yield from found
