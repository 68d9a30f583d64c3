"""The results of a comparison of two runs, one check for each place or file that can be seen."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

Site = tuple[str, int]
SHARE = "shows the main process's share of the batch"
NOT_CHECKED = "shown inside the training loop, of the main process's share (not checked)"
ASPECTS = (
    "losses", "rates", "steps", "samples", "weights", "printed", "logged", "files", "decisions", "effects", "objects",
    "exit",
)  # fmt: skip


class Verdict(StrEnum):
    """The result of a check."""

    EQUAL = "equal"
    ROUNDING = "equal to rounding"
    NOT_COMPARABLE = "not comparable"
    NOT_DIVIDED = "not divided"
    DIFFERENT = "different"
    NOT_REACHED = "not reached"
    FAILED = "failed"


WRONG = (Verdict.NOT_DIVIDED, Verdict.DIFFERENT, Verdict.FAILED)
_WEIGHT = [
    Verdict.NOT_REACHED, Verdict.EQUAL, Verdict.ROUNDING, Verdict.NOT_COMPARABLE, *WRONG,
]  # fmt: skip


@dataclass
class Check:
    """One aspect that was compared.

    Args:
        aspect: one of ASPECTS.
        key: names the place or the file; the same in every pair of runs of one script.
        verdict: its result.
        sentence: what differs, with the first values; empty where nothing does.
        line: where, in the converted script.
        original: where, in the original.
    """

    aspect: str
    key: str
    verdict: Verdict
    sentence: str = ""
    line: Site | None = None
    original: Site | None = None

    @property
    def partial(self) -> bool:
        """Whether it shows one process's part, and all processes' parts together are the original's."""
        return self.sentence == SHARE

    def to_json(self) -> dict[str, Any]:
        """The check as plain data, for `--json`."""
        return {
            "aspect": self.aspect,
            "key": self.key,
            "verdict": str(self.verdict),
            "sentence": self.sentence,
            "line": _place(self.line),
            "original": _place(self.original),
        }


def worst(verdicts: list[Verdict]) -> Verdict:
    """The verdict of several checks together."""
    return max(verdicts, key=_WEIGHT.index, default=Verdict.NOT_REACHED)


def _place(site: Site | None) -> dict[str, Any] | None:
    return None if site is None else {"file": site[0], "line": site[1]}
