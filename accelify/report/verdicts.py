"""The verdicts of `accelify verify` on the HTML report: its table, and what it says below."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

_BAD, _OPEN = ("different", "failed", "not divided"), ("not comparable", "not reached")


@dataclass(frozen=True)
class Verdicts:
    """What a verification compared, in the words that it prints.

    Args:
        runs: the names of the converted script's runs.
        rows: what was compared, with a verdict for each run.
        sentences: those below the table.
    """

    runs: tuple[str, ...] = ()
    rows: tuple[tuple[str, tuple[str, ...]], ...] = ()
    sentences: tuple[str, ...] = ()


def read_verdicts(report: dict[str, Any]) -> Verdicts:
    """The verdicts in what `accelify verify --json` printed; KeyError where it is not of that form."""
    rows = tuple((row["compared"], tuple(row["verdicts"])) for row in report["table"])
    return Verdicts(tuple(report["columns"]), rows, tuple(report["sentences"]))


def verdict_table(verdicts: Verdicts) -> str:
    """The table and the sentences as HTML; empty where nothing was compared."""
    if not verdicts.rows:
        return ""
    head = "".join(f"<th>{escape(name)}</th>" for name in ("compared", *verdicts.runs))
    body = "".join(
        f"<tr><td>{escape(aspect)}</td>{''.join(f'<td>{_marked(word)}</td>' for word in words)}</tr>"
        for aspect, words in verdicts.rows
    )
    listed = "".join(f"<li>{escape(sentence.strip())}</li>" for sentence in verdicts.sentences)
    return f'<table class="left"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><ul>{listed}</ul>'


def _marked(verdict: str) -> str:
    kind = "refused" if verdict in _BAD else "unchanged" if verdict in _OPEN else "converted"
    return f'<span class="status {kind}">{escape(verdict)}</span>'
