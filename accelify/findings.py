"""What a rule reports about one place of a script: shared by `check`, `convert` and the reports."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple

from accelify.rule_codes import name_of


class Severity(StrEnum):
    """How bad it is when nothing is done."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Safety(StrEnum):
    """How much trust an edit deserves: `safe` keeps the numbers, `review` wants a look, `manual` has no edit."""

    SAFE = "safe"
    REVIEW = "review"
    MANUAL = "manual"


class Rule(NamedTuple):
    """A rule's code and one-sentence summary, as `accelify rule` and the reports show them.

    `done` says in a few words what its edits did.
    """

    code: str
    summary: str
    severity: Severity = Severity.WARNING
    safety: Safety = Safety.SAFE
    effort: int = 2
    done: str = ""

    @property
    def name(self) -> str:
        """The name of the rule that users see."""
        return name_of(self.code)


@dataclass(frozen=True, order=True)
class Finding:
    """One finding of one rule.

    Lines and columns count from 1, columns in characters; `end_column` is exclusive. `effort` is in minutes for a
    person who does it by hand. `fixable` is whether `convert` fixes it by itself. In a notebook
    `cell` is the cell's number from 1 and the lines count in that cell; elsewhere it is 0. `fix` is `safe` or `unsafe`
    where `check --fix` has one. `done` says in a few words what the edits did that fix it.
    """

    path: str
    line: int
    column: int
    code: str
    name: str = field(compare=False)
    message: str = field(compare=False)
    end_line: int = field(compare=False, default=0)
    end_column: int = field(compare=False, default=0)
    severity: Severity = field(compare=False, default=Severity.WARNING)
    safety: Safety = field(compare=False, default=Safety.SAFE)
    effort: int = field(compare=False, default=1)
    evidence: tuple[str, ...] = field(compare=False, default=())
    fixable: bool = field(compare=False, default=True)
    cell: int = field(compare=False, default=0)
    # Of a rule's finding: the code of the part that found it.
    part: str = field(compare=False, default="")
    # The text of its comment in the script.
    mark: str = field(compare=False, default="")
    fix: str = field(compare=False, default="")
    done: str = field(compare=False, default="")

    @property
    def is_fixed(self) -> bool:
        """Whether `convert` or `check --fix` makes an edit for it."""
        return self.fixable or self.fix == "safe"

    @property
    def place(self) -> str:
        """`file:line:column`, in a notebook `file:cell N:line:column`."""
        cell = f"cell {self.cell}:" if self.cell else ""
        return f"{self.path}:{cell}{self.line}:{self.column}"

    def not_done(self, why: str) -> Finding:
        """The same finding as a warning, for when its edits cannot be made."""
        message = f"{self.message} (not done: {why})"
        return replace(self, fixable=False, safety=Safety.MANUAL, message=message)

    def to_json(self) -> dict[str, Any]:
        """The finding as the plain dictionary that `--output-format json` prints."""
        return {
            "code": self.code,
            **({"part": self.part} if self.part not in ("", self.code) else {}),
            "name": self.name,
            "message": self.message,
            "severity": str(self.severity),
            "safety": str(self.safety if self.fixable or self.fix != "safe" else Safety.SAFE),
            "effort": self.effort,
            "fixable": self.is_fixed,
            "fix": "convert" if self.fixable else self.fix or None,
            "file": self.path,
            **({"cell": self.cell} if self.cell else {}),
            "line": self.line,
            "column": self.column,
            "end": {"line": self.end_line or self.line, "column": self.end_column or self.column},
            "evidence": list(self.evidence),
        }
