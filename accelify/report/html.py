"""The report to look at after a conversion: one HTML page that needs nothing beside it, also on a phone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import accelify
from accelify.findings import Finding, Safety, Severity
from accelify.report.curves import Curves, curves_svg
from accelify.report.sides import Block, Line, Row, edited_lines, side_by_side
from accelify.report.style import counted, duration
from accelify.report.totals import share_done
from accelify.report.verdicts import verdict_table
from accelify.report.written import Written

if TYPE_CHECKING:
    from accelify.conversion import Conversion

_CONTEXT = 3  # unchanged lines shown on both sides of a change
_OPEN_UP_TO = 5  # with more scripts than this each is opened by hand
_FOLD_FROM = 3  # fewer hidden lines than this are not worth a fold
_SHARE_NOTE = "share of the work, by effort, that was done without a person"


def html_report(
    conversions: Sequence[Conversion],
    *,
    targets: Mapping[Path, Path] | None = None,
    curves: Mapping[str, Curves] | None = None,
    verified: str = "",
    written: bool = True,
) -> str:
    """The whole page for these conversions.

    `targets` has where each script is written, whose lines are named from then on: of one that is not in it those of
    the original. `curves` has, per script's path, the losses of `accelify verify` to draw. `verified` is for a
    verification, which writes no script, what it says of one in place of "converted"; `written` whether a conversion
    wrote them. The page loads nothing from elsewhere.
    """
    made = verified or ("" if written else "would be converted")
    hues, places = _hues(conversions), Written(conversions, targets or {})
    title = "Verification report" if verified else "Conversion report"
    body = [
        f"<h1>{title}</h1>",
        f'<p class="dim">{_scripts_line(conversions, made)} · accelify {escape(accelify.__version__)}</p>',
        "" if verified else _tiles(conversions, written),
        _rules(conversions, hues),
        _left(conversions, hues, places),
        _infos(conversions, hues, places),
        "<h2>The scripts</h2>",
        *(
            _file(number, conversion, hues, places, curves or {}, made, len(conversions) <= _OPEN_UP_TO)
            for number, conversion in enumerate(conversions)
        ),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>accelify: {title.lower()}</title>\n<style>{_part('page.css')}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(part for part in body if part)
        + f"\n</main>\n<script>{_part('page.js')}</script>\n</body>\n</html>\n"
    )


def _part(name: str) -> str:
    return files("accelify.report").joinpath(name).read_text(encoding="utf-8")


def _hues(conversions: Sequence[Conversion]) -> dict[str, int]:
    codes = sorted({finding.code for c in conversions for finding in (*c.applied, *c.remaining)})
    # Steps of the golden ratio keep neighbours apart however many rules there are; reds are for what was taken out.
    return {code: round(30 + 300 * ((0.6 + number * 0.618034) % 1)) for number, code in enumerate(codes)}


def _said(conversion: Conversion, verified: str) -> str:
    status = str(conversion.status)
    return verified if verified and status == "converted" else status


def _scripts_line(conversions: Sequence[Conversion], verified: str) -> str:
    counts: dict[str, int] = {}
    for conversion in conversions:
        said = _said(conversion, verified)
        counts[said] = counts.get(said, 0) + 1
    return ", ".join(f"{counted(number, 'script')} {escape(status)}" for status, number in counts.items())


def _tiles(conversions: Sequence[Conversion], written: bool) -> str:
    applied = [finding for c in conversions if c.changed for finding in c.applied]
    remaining = [finding for c in conversions for finding in c.left]
    share = share_done(applied, remaining)
    saved = sum(finding.effort for finding in applied)
    left = sum(finding.effort for finding in remaining)
    converted = sum(str(c.status) == "converted" for c in conversions)
    tiles = [
        (f"{converted} of {len(conversions)}", "files converted" if written else "files would be converted"),
        (str(len(applied)), f"{_noun(applied, 'edit')} made, about {duration(saved)} of handwork"),
        (
            str(len(remaining)),
            f"{_noun(remaining, 'place')} left for a person{f', about {duration(left)}' if left else ''}",
        ),
    ]
    cells = [f'<div class="tile"><b>{value}</b><span>{label}</span></div>' for value, label in tiles]
    percent = f"{share:.0%}"
    cells.insert(
        0,
        f'<div class="tile"><b>{percent}</b><span>{_SHARE_NOTE}</span>'
        f'<div class="bar"><i style="width:{share * 100:.1f}%"></i></div></div>',
    )
    return f'<div class="tiles">{"".join(cells)}</div>'


def _noun(found: Sequence[object], noun: str) -> str:
    return noun if len(found) == 1 else f"{noun}s"


def _rules(conversions: Sequence[Conversion], hues: Mapping[str, int]) -> str:
    counts: dict[tuple[str, str], int] = {}
    for conversion in conversions:
        for finding in conversion.applied if conversion.changed else []:
            deed = finding.code, finding.done or finding.name
            counts[deed] = counts.get(deed, 0) + 1
    if not counts:
        return ""
    chips = [
        f'<button class="rule" style="--h:{hues[code]}" data-rule="{escape(code)}" aria-pressed="false">'
        f"{escape(code)} {escape(done)} · {counted(number, 'edit')}</button>"
        for (code, done), number in sorted(counts.items())
    ]
    return f'<h2>What was done</h2><div class="rules">{"".join(chips)}</div>'


def _left(conversions: Sequence[Conversion], hues: Mapping[str, int], places: Written) -> str:
    rows = [
        f"<tr>{_what(number, conversion, finding, hues, places)}"
        f'<td>{_safety(finding)}</td><td class="num">{duration(finding.effort)}</td></tr>'
        for number, conversion in enumerate(conversions)
        for finding in sorted(conversion.left)
    ]
    if not rows:
        left_alone = any(str(conversion.status) in ("refused", "failed") for conversion in conversions)
        nothing = '<h2>What is left</h2><p class="dim">Nothing: every place was converted.</p>'
        return "" if left_alone or not conversions else nothing
    return (
        '<h2>What is left</h2><div class="card"><table class="left"><thead><tr><th>Rule</th><th>Place</th>'
        "<th>What to decide</th><th>Safety</th><th>Effort</th></tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _infos(conversions: Sequence[Conversion], hues: Mapping[str, int], places: Written) -> str:
    rows = [
        f"<tr>{_what(number, conversion, finding, hues, places)}</tr>"
        for number, conversion in enumerate(conversions)
        for finding in sorted(conversion.infos)
    ]
    if not rows:
        return ""
    return (
        '<h2>To know</h2><p class="dim">Nothing here needs a change.</p><div class="card"><table class="left"><thead>'
        f"<tr><th>Rule</th><th>Place</th><th>What</th></tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _what(
    number: int, conversion: Conversion, finding: Finding, hues: Mapping[str, int], places: Written
) -> str:
    """The cells of a finding's rule, place and message."""
    target = f"#file{number}-{finding.line}" if conversion.changed else f"#file{number}"
    now = places.at(conversion, finding)
    return (
        f'<td>{_chip(now, hues)}</td><td><a href="{target}"><code>{escape(now.place)}</code></a></td>'
        f"<td>{_prose(now.message)}{_evidence(now)}</td>"
    )


def _file(
    number: int,
    conversion: Conversion,
    hues: Mapping[str, int],
    places: Written,
    curves: Mapping[str, Curves],
    verified: str,
    is_open: bool,
) -> str:
    path = conversion.source.path
    name = str(path) if path is not None else "<stdin>"
    status = escape(str(conversion.status))
    facts = [f'<span class="status {status}">{escape(_said(conversion, verified))}</span>']
    if conversion.changed:
        facts.append(counted(len(conversion.applied), "edit"))
    if conversion.left:
        facts.append(f"{counted(len(conversion.left), 'place')} left")
    reason = f'<p class="pad">{_prose(conversion.reason)}</p>' if conversion.reason else ""
    reason += "".join(
        f'<p class="pad dim">{_prose(places.note(conversion, note))}</p>' for note in conversion.notes
    )
    drawn = ""
    if name in curves:
        drawn = f'<div class="pad">{curves_svg(curves[name])}{verdict_table(curves[name].verdicts)}</div>'
    sides = _sides(number, conversion, hues, places) if conversion.changed else ""
    return (
        f'<details class="card file" id="file{number}"{" open" * is_open}><summary><code>{escape(name)}</code><br>'
        f"{' · '.join(facts)}</summary>{reason}{drawn}{sides}</details>"
    )


@dataclass(frozen=True)
class _Page:
    """What the parts of a script's two versions look up: its number on the page, the hues, what remains where,
    and where a finding is now."""

    number: int
    hues: Mapping[str, int]
    remaining: Mapping[int, Sequence[Finding]]
    at: Callable[[Finding], Finding]

    def notes(self, row: Row) -> str:
        """What is left to a person at a row, or good to know there, to stand below it."""
        found = self.remaining.get(row.old.number, ()) if row.old is not None else ()
        todo = " todo" if any(one.severity is not Severity.INFO for one in found) else ""
        return f'<div class="why{todo}">{_reasons(found, self)}</div>' if found else ""


def _sides(number: int, conversion: Conversion, hues: Mapping[str, int], places: Written) -> str:
    remaining: dict[int, list[Finding]] = {}
    for finding in sorted(conversion.remaining):
        remaining.setdefault(finding.line, []).append(finding)
    page = _Page(number, hues, remaining, partial(places.at, conversion))
    afterwards = edited_lines(conversion)
    blocks = side_by_side(conversion)
    shown = []
    for place, block in enumerate(blocks):
        if block.changed:
            shown.append(_edit(block, page, afterwards))
        else:
            shown.append(_context(block.rows, page, first=place == 0, last=place == len(blocks) - 1))
    return f'<div class="sides">{"".join(shown)}</div>'


def _context(rows: Sequence[Row], page: _Page, *, first: bool, last: bool) -> str:
    """Unchanged rows: those next to a change or to what is left are shown, the others folded."""
    seen = {*range(0 if first else _CONTEXT), *range(len(rows) - (0 if last else _CONTEXT), len(rows))}
    for place, row in enumerate(rows):
        if page.notes(row):
            seen.update(range(place - _CONTEXT, place + _CONTEXT))
    parts = []
    for is_seen, run in groupby(range(len(rows)), key=lambda place: place in seen):
        part = [rows[place] for place in run]
        text = _rows(part, page)
        if not is_seen and len(part) >= _FOLD_FROM:
            text = f'<details class="fold"><summary>{len(part)} unchanged lines</summary>{text}</details>'
        parts.append(text)
    return "".join(parts)


def _edit(block: Block, page: _Page, afterwards: Mapping[int, Sequence[Finding]]) -> str:
    findings: Sequence[Finding] = block.findings
    if not findings:
        # The rest of a change whose finding stands at another block.
        lines = [row.old.number for row in block.rows if row.old is not None] or block.place
        findings = list(dict.fromkeys(finding for line in lines for finding in afterwards.get(line, ())))
    codes = list(dict.fromkeys(finding.code for finding in findings))
    rules = " ".join(escape(code) for code in codes)
    hue = f' style="--h:{page.hues[codes[0]]}"' if codes else ""
    is_marked = any(row.new is not None and "# TODO(accelify" in row.new.text for row in block.rows)
    # Parameters that hand the accelerator on belong to all the edits that use it, and to none by itself.
    why = _reasons(findings, page) or ("" if is_marked else "Part of the other edits.")
    notes = f'<div class="why">{why}</div>' if why else ""
    shown = f"{_rows(block.rows, page)}{notes}"
    return f'<div class="edit{"" if codes else " plain"}" data-rules="{rules}"{hue}>{shown}</div>'


def _reasons(findings: Sequence[Finding], page: _Page) -> str:
    """A line for each finding; those that say the same in one."""
    alike: dict[tuple[object, ...], list[Finding]] = {}
    for finding in map(page.at, findings):
        alike.setdefault((finding.code, finding.safety, finding.message, finding.evidence), []).append(
            finding
        )
    return "".join(
        f"<div>{_chip(same[0], page.hues)} {_safety(same[0])} {_prose(_deed(same[0]))}"
        f"{f' <span class=dim>({len(same)} times)</span>' if len(same) > 1 else ''}{_evidence(same[0])}</div>"
        for same in alike.values()
    )


def _deed(finding: Finding) -> str:
    """What an edit did, and what it was made for."""
    return f"{finding.done}: {finding.message}" if finding.done else finding.message


def _rows(rows: Iterable[Row], page: _Page) -> str:
    return "".join(_row(row, page) for row in rows)


def _row(row: Row, page: _Page) -> str:
    notes = page.notes(row)
    anchor = f' id="file{page.number}-{row.old.number}"' if notes and row.old is not None else ""
    cells = f"{_cell(row.old, 'old')}{_cell(row.new, 'new')}"
    return f'<div class="row{" same" if row.same else ""}"{anchor}>{cells}</div>{notes}'


def _cell(line: Line | None, side: str) -> str:
    if line is None:
        return f'<div class="cell {side} empty"><i></i><pre></pre></div>'
    text = escape(line.text)
    if line.changed is not None and line.changed[0] < line.changed[1]:
        start, end = line.changed
        text = (
            f"{escape(line.text[:start])}<mark>{escape(line.text[start:end])}</mark>{escape(line.text[end:])}"
        )
    return f'<div class="cell {side}"><i>{line.number}</i><pre>{text}</pre></div>'


def _chip(finding: Finding, hues: Mapping[str, int]) -> str:
    title = escape(finding.name, quote=True)
    return (
        f'<span class="rule" style="--h:{hues[finding.code]}" title="{title}">{escape(finding.code)}</span>'
    )


def _safety(finding: Finding) -> str:
    # Nothing is to do for what has no edit and needs none.
    word = "note" if (finding.severity, finding.safety) == (Severity.INFO, Safety.MANUAL) else finding.safety
    return f'<span class="safety {escape(word)}">{escape(word)}</span>'


def _prose(text: str) -> str:
    """A sentence as HTML; what stands in backticks is code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def _evidence(finding: Finding) -> str:
    if not finding.evidence:
        return ""
    items = "".join(f"<li>{_prose(item)}</li>" for item in finding.evidence)
    return f"<ul>{items}</ul>"
