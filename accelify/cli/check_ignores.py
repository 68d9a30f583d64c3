"""`accelify check --add-ignores`: a comment at each finding's line, so that only what comes later is found."""

from __future__ import annotations

import tokenize
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from accelify.findings import Finding
from accelify.selection import IGNORING
from accelify.source import Source, split_lines, write_all


def add_ignores(findings: Iterable[Finding]) -> tuple[int, list[Finding]]:
    """Write `# accelify: ignore[CODE]` at the lines of findings; gives how many are silenced, and those that are not.

    What stays has no line that takes a comment: a cell of a notebook, standard input, or the inside of a text.

    Raises:
        SourceError: a file cannot be read or written.
    """
    by_file: dict[str, list[Finding]] = defaultdict(list)
    left = []
    for finding in findings:
        if finding.cell or not Path(finding.path).is_file():
            left.append(finding)
        else:
            by_file[finding.path].append(finding)
    number, written = 0, []
    for path, ones in by_file.items():
        source = Source.read(path)
        text, without = with_ignores(source.text, ones)
        left += without
        number += len(ones) - len(without)
        written.append((Path(path), source.encode(text)))
    write_all(written)
    return number, left


def with_ignores(text: str, findings: Iterable[Finding]) -> tuple[str, list[Finding]]:
    """A script's text with comments that silence findings, and the findings that no comment can silence."""
    codes: dict[int, set[str]] = defaultdict(set)
    lines, left = split_lines(text), []
    closed = _without_end(lines)
    for finding in findings:
        last = max(finding.end_line, finding.line)
        place = next((line for line in range(last, finding.line - 1, -1) if line not in closed), None)
        if place is None:
            left.append(finding)
        else:
            codes[place].add(finding.code)
    for place, new in codes.items():
        lines[place - 1] = _with_codes(lines[place - 1], new)
    return "".join(lines), left


def _with_codes(line: str, codes: set[str]) -> str:
    code = line.rstrip()
    end = line[len(line.rstrip("\r\n")) :]
    known = IGNORING.search(code)
    if known is None or known["codes"] is None:
        return f"{code}  # accelify: ignore[{', '.join(sorted(codes))}]{end}"
    every = sorted({*codes, *(one.strip() for one in known["codes"].split(","))})
    return f"{code[: known.start('codes')]}{', '.join(every)}{code[known.end('codes') :]}{end}"


def _without_end(lines: list[str]) -> set[int]:
    """The lines at whose end no comment can be: within a text of several lines, or continued by a backslash."""
    found = {number for number, line in enumerate(lines, 1) if line.rstrip("\r\n").endswith("\\")}
    # tokenize ends lines at "\n" alone.
    read = (line.rstrip("\r\n") + "\n" for line in lines)
    begun: list[int] = []
    for token in tokenize.generate_tokens(lambda: next(read, "")):
        kind = tokenize.tok_name[token.type]
        if kind == "STRING":
            found |= set(range(token.start[0], token.end[0]))
        elif kind == "FSTRING_START":  # from Python 3.12 on the parts of an f-string are tokens
            begun.append(token.start[0])
        elif kind == "FSTRING_END":
            found |= set(range(begun.pop(), token.end[0]))
    return found
