"""Which findings `check` shows: `select` and `ignore` of codes, pyproject.toml, and comments in the script.

A comment `# accelify: ignore[ACC123, ACC2]` on a line of the finding takes those codes out (a shorter code selects
all that begin with it), `# accelify: ignore` takes out all, and `# accelify: ignore-file` the whole file. The code
of what was a rule once selects what it selected, and that of a rule that is gone the rule that replaced it.
"""

from __future__ import annotations

import re
import tokenize
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

from accelify.configuration import nearest_section
from accelify.findings import Finding, Rule, Safety, Severity
from accelify.obsolete_codes import REPLACED, with_later_ones
from accelify.rule_codes import PUBLIC
from accelify.source import ConfigurationError, Source, split_lines

IGNORING = re.compile(r"#\s*accelify:\s*ignore(?:(?P<file>-file)\b|\[(?P<codes>[^\]]*)\])?")
_CODE = re.compile(r"ACC\d{0,3}|ALL")
# A comment that is not needed any more.
UNUSED_IGNORE = Rule(
    "ACC012", "A comment silences a rule that finds nothing there.", Severity.INFO, Safety.MANUAL
)
_KEYS = ("select", "extend-select", "ignore", "per-file-ignores", "exclude", "only-distributed", "models")


@dataclass(frozen=True)
class Selection:
    """Codes to show and not to show; each may be cut short (`ACC1`), and `ALL` selects every rule.

    Where both name a finding's code the longer one wins, and of equals `ignore`. `per_file` has further codes to
    ignore, by pattern of the file's path as in `*/old/*.py`. With `only_distributed` scripts for one device are passed
    over.
    """

    select: tuple[str, ...] = ("ALL",)
    ignore: tuple[str, ...] = ()
    per_file: tuple[tuple[str, tuple[str, ...]], ...] = field(default=())
    only_distributed: bool = False

    def shows(self, finding: Finding) -> bool:
        """Whether the finding's code is selected for its file."""
        further = (
            code for pattern, codes in self.per_file if _matches(finding.path, pattern) for code in codes
        )
        return _fit(finding, self.select) > _fit(finding, (*self.ignore, *further))


def codes_of(words: Iterable[str], where: str) -> tuple[str, ...]:
    """Codes out of `ACC702,ACC7` and the like. Raises ConfigurationError, naming `where` they are, for what is none."""
    codes = tuple(code.strip().upper() for word in words for code in word.split(",") if code.strip())
    wrong = [code for code in codes if not _CODE.fullmatch(code) or not (code == "ALL" or _is_known(code))]
    if wrong:
        named = f"{', '.join(map(repr, wrong))} {'are no rules' if len(wrong) > 1 else 'is no rule'}"
        raise ConfigurationError(
            f"{where}: {named}: write ACC702, ACC7 for all that begin so, or ALL (`accelify rule` lists them)."
        )
    return codes


def _is_known(code: str) -> bool:
    return any(known.startswith(code) for known in (*PUBLIC, *REPLACED))


def selection_for(path: Path | None, select: Sequence[str], ignore: Sequence[str]) -> Selection:
    """The selection for a script: of the nearest pyproject.toml with [tool.accelify], and of the command line.

    `select` of the command line takes the place of the file's, `ignore` adds to it. Raises ConfigurationError for a
    section that cannot be read.
    """
    chosen = codes_of(select, "--select")
    left_out = codes_of(ignore, "--ignore")
    configured = configured_at(path.resolve().parent if path is not None else Path.cwd())
    return replace(configured, select=chosen or configured.select, ignore=(*configured.ignore, *left_out))


def shown(findings: Iterable[Finding], source: Source, selection: Selection) -> list[Finding]:
    """The findings that the selection and the comments of the script leave."""
    comments = _comments(source.text)
    if None in comments:
        return []
    return [
        finding
        for finding in findings
        if selection.shows(finding)
        and not any(
            _fit(finding, comments.get(line, ()))
            for line in range(finding.line, max(finding.end_line, finding.line) + 1)
        )
    ]


def unused_ignores(findings: Iterable[Finding], source: Source, selection: Selection) -> list[Finding]:
    """A finding for each comment that silences nothing, of those that name a line's rules.

    Args:
        findings: all of the script, before any are left out.
        source: the script.
        selection: what is shown anyway.
    """
    comments = _comments(source.text)
    if None in comments:
        return []
    path = str(source.path or "<stdin>")
    known = [one for one in findings if one.path == path]
    lines = source.text.split("\n")
    found = []
    for line, codes in comments.items():
        silenced = (
            one for one in known if line is not None and one.line <= line <= max(one.end_line, one.line)
        )
        if line is None or any(_fit(one, codes) for one in silenced):
            continue
        column = lines[line - 1].find("#") + 1
        message = f"this comment silences nothing: {', '.join(codes)} finds nothing in this line"
        found.append(
            Finding(
                path, line, column, UNUSED_IGNORE.code, UNUSED_IGNORE.name, message,
                severity=UNUSED_IGNORE.severity, safety=UNUSED_IGNORE.safety, fixable=False,
            )
        )  # fmt: skip
    return [one for one in found if selection.shows(one)]


def _fit(finding: Finding, codes: Iterable[str]) -> int:
    """How closely one of `codes` names a finding, by its rule or by the part that found it: 0 not at all, 1 as ALL,
    else by the length of what they share."""
    names = (finding.code, PUBLIC.get(finding.code, finding.code))
    fits = (
        1 if known == "ALL" else len(known) + 1
        for known in codes
        if known == "ALL" or any(name.startswith(known) for name in names)
    )
    return max(fits, default=0)


def _matches(path: str, pattern: str) -> bool:
    return fnmatch(path, pattern) or fnmatch(Path(path).name, pattern) or fnmatch(path, f"*/{pattern}")


def _comments(text: str) -> dict[int | None, tuple[str, ...]]:
    """Codes to ignore by line; the key None is the whole file."""
    if "accelify:" not in text:
        return {}
    found: dict[int | None, tuple[str, ...]] = {}
    # tokenize ends lines at "\n" alone.
    lines = (line.rstrip("\r\n") + "\n" for line in split_lines(text))
    for token in tokenize.generate_tokens(lambda: next(lines, "")):
        if token.type == tokenize.COMMENT and (match := IGNORING.search(token.string)):
            codes = match["codes"]
            words = tuple(code.strip() for code in codes.split(",")) if codes is not None else ("ALL",)
            found[None if match["file"] else token.start[0]] = with_later_ones(words)
    return found


@cache
def configured_at(folder: Path) -> Selection:
    """What the nearest pyproject.toml selects; remembered."""
    found = nearest_section(folder)
    return _configured(*found) if found is not None else Selection()


def _configured(section: Any, file: Path) -> Selection:
    known = ", ".join(_KEYS)
    wrong = [
        f"{file}: [tool.accelify] has no {key!r}: it knows {known}."
        for key in sorted(set(section) - set(_KEYS))
    ]

    def codes(value: Any, key: str) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(code, str) for code in value):
            wrong.append(f'{file}: {key} of [tool.accelify] is a list of codes, as in ["ACC702"].')
            return ()
        try:
            return codes_of(value, f"{file}: {key}")
        except ConfigurationError as error:
            wrong.append(str(error))
            return ()

    per_file = section.get("per-file-ignores", {})
    if not isinstance(per_file, dict):
        wrong.append(f"{file}: per-file-ignores of [tool.accelify] is a table of patterns and codes.")
        per_file = {}
    only_distributed = section.get("only-distributed", False)
    if not isinstance(only_distributed, bool):
        wrong.append(f"{file}: only-distributed of [tool.accelify] is true or false.")
    selection = Selection(
        (
            *codes(section.get("select", ["ALL"]), "select"),
            *codes(section.get("extend-select", []), "extend-select"),
        ),
        codes(section.get("ignore", []), "ignore"),
        tuple((pattern, codes(value, pattern)) for pattern, value in per_file.items()),
        only_distributed,
    )
    if wrong:
        raise ConfigurationError("\n".join(wrong), file)
    return selection
