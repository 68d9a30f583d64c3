"""The verdicts of `accelify verify` on the HTML report: a table by what was compared, and what is not equal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

_BAD, _OPEN = (
    ("different", "failed", "violated", "not divided"),
    ("not comparable", "not reached", "not settled"),
)


@dataclass(frozen=True)
class Verdicts:
    """What a verification compared.

    Args:
        runs: the names of the converted script's runs.
        rows: what was compared, with a verdict for each run.
        sentences: what is not equal: the run, the verdict, where and why.
    """

    runs: tuple[str, ...] = ()
    rows: tuple[tuple[str, tuple[str, ...]], ...] = ()
    sentences: tuple[tuple[str, str, str], ...] = ()


def read_verdicts(runs: Sequence[dict[str, Any]], demands: Sequence[dict[str, Any]] = ()) -> Verdicts:
    """The verdicts of the runs that `accelify verify --json` printed; KeyError where they are not of that form.

    Args:
        runs: what was compared.
        demands: what became of the demands that are not proved; those that are violated or not settled are shown.
    """
    names = tuple(run["on"] for run in runs)
    aspects = list(dict.fromkeys(aspect for run in runs for aspect in run["aspects"]))
    rows = [(aspect, tuple(run["aspects"].get(aspect, "not reached") for run in runs)) for aspect in aspects]
    rows.append(("verdict", tuple(run["verdict"] for run in runs)))
    sentences = [
        (name, check["verdict"], _placed(check))
        for name, run in zip(names, runs, strict=True)
        for check in run["checks"]
        if check["sentence"]
    ]
    sentences += [
        (
            "not proved",
            one["outcome"],
            f"{one['file']} line {one['line']}: {one['sentence']}: {one['values']}",
        )
        for one in demands
        if one["outcome"] in ("violated", "not settled")
    ]
    return Verdicts(names, tuple(rows), tuple(dict.fromkeys(sentences)))


def verdict_table(verdicts: Verdicts) -> str:
    """The table and the sentences as HTML; empty where nothing was compared."""
    if not verdicts.rows:
        return ""
    head = "".join(f"<th>{escape(name)}</th>" for name in ("compared", *verdicts.runs))
    body = "".join(
        f"<tr><td>{escape(aspect)}</td>{''.join(f'<td>{_marked(word)}</td>' for word in words)}</tr>"
        for aspect, words in verdicts.rows
    )
    reasons = "".join(
        f"<li>{escape(run)}: {_marked(verdict)}: {escape(sentence)}</li>"
        for run, verdict, sentence in verdicts.sentences
    )
    listed = f"<ul>{reasons}</ul>" if reasons else ""
    return f'<table class="left"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{listed}'


def _marked(verdict: str) -> str:
    kind = "refused" if verdict in _BAD else "unchanged" if verdict in _OPEN else "converted"
    return f'<span class="status {kind}">{escape(verdict)}</span>'


def _placed(check: dict[str, Any]) -> str:
    where = f"line {check['line']['line']}: " if check["line"] else ""
    return f"{check['aspect']}, {where}{check['sentence']}"
