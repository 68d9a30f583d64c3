"""The short summary that `convert` prints and the list that `check` prints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from accelify.findings import Finding, Severity
from accelify.report.style import counted, duration, styled, wrapped

if TYPE_CHECKING:
    from accelify.conversion import Conversion
    from accelify.report.written import Written

_STATUS_STYLE = {
    "converted": "bold green",
    "unchanged": "dim",
    "refused": "bold yellow",
    "failed": "bold red",
}
_SEVERITY_STYLE = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}
_LINES_SHOWN = 8
_NAMED = 6  # files in the last line
_SAME_LOSSES, _PARTED = "with the same losses", "ACC705"
_CUT_BY_HAND = "ACC115"
_BY_CHANCE = " but for dropout, noise drawn in a step and batch statistics"
# What several processes do with the batches of a converted script.
_ON_SEVERAL = {
    "per-process": (
        "on N processes: N times the batch, 1/N of the steps, other losses than on one; --batch-size total keeps both"
    ),
    "total": f"on N processes: the script's batches, split between them, in as many steps, {_SAME_LOSSES}{_BY_CHANCE}",
}
_NOTHING_SHARED = "on N processes: the same batches and steps on each; no loader is divided between them"


def summary(
    conversions: Sequence[Conversion],
    *,
    colour: bool = False,
    batch_size: str = "",
    places: Written | None = None,
    reasons: bool = False,
    written: bool = True,
    width: int = 0,
) -> str:
    """What was done in each script, in words; what is left for a person, with its effort; what is good
    to know; and the totals.

    Args:
        conversions: of the scripts.
        colour: for a terminal.
        batch_size: the choice of that name (`ConvertOptions`): what it means for several processes is said; empty: not.
        places: where the files are now, and the lines that are named; None: those of the originals.
        reasons: every edit with its reason, not only what was done.
        written: the files were written, and not only shown.
        width: of the terminal, 0 where lines stay as long as they are.
    """
    if places is None:
        # `check` prints its findings without it, and starts without the engine.
        from accelify.report.written import Written

        places = Written(conversions, {})
    parts: list[str] = []
    for conversion in conversions:
        parts += _one_script(conversion, colour, places, reasons, written)
    if batch_size and any(conversion.changed for conversion in conversions):
        applied = [finding for one in conversions for finding in one.applied]
        by_hand = any(_CUT_BY_HAND in (finding.part, finding.code) for finding in applied)
        if any(map(_shares_a_loader, conversions)):
            several = _ON_SEVERAL[batch_size]
            several += "; batches made by hand are split between them" if by_hand else ""
        else:
            several = _ON_SEVERAL["total"] if by_hand else _NOTHING_SHARED
        if any(finding.code == _PARTED for one in conversions for finding in one.left):
            several = several.replace(
                _SAME_LOSSES + _BY_CHANCE, f"with other losses than on one where {_PARTED} is left"
            )
        parts.append(several)
    parts.append(_totals(conversions, colour, written))
    return "".join(f"{wrapped(part, width)}\n" for part in parts)


def findings_list(findings: Sequence[Finding], *, colour: bool = False, total: bool = True) -> str:
    """One line for each finding, as compilers print them, and with `total` a last line with the counts; empty for no
    finding."""
    if not findings:
        return ""
    lines = [finding_line(finding, colour) for finding in findings]
    return "\n".join([*lines, *([findings_total(findings, colour)] if total else [])]) + "\n"


def findings_total(findings: Sequence[Finding], colour: bool) -> str:
    """The last line of a list of findings: how many there are, and how many of them `convert` or `--fix` fixes."""
    by = {
        "`accelify convert`": sum(finding.fixable for finding in findings),
        "`--fix`": sum(finding.fix == "safe" for finding in findings),
    }
    ways = [f"{way} fixes {number}" for way, number in by.items() if number]
    if len(ways) == 1:
        ways = [f"{ways[0].rpartition(' ')[0]} those"]
    total = counted(len(findings), "finding")
    total += f", {sum(by.values())} of them marked [*]: {', '.join(ways)}" if ways else ""
    return styled(total + ".", "bold", colour)


def plain_scripts(
    found: Sequence[tuple[Path, int, int, int]], *, colour: bool, total: bool, width: int
) -> str:
    """A line for each script that runs on one device as it is, with what `convert` makes of it, and what to do.

    Args:
        found: each script with the edits that `convert` makes in it and in the modules that are converted with it, the
            places that it leaves, and the findings that `check` has to show.
        colour: for a terminal.
        total: whether a last line says what to do.
        width: of the terminal, 0 where lines stay as long as they are.
    """
    lines = []
    for path, edits, left, _ in found:
        rest = f", leaves {counted(left, 'place')} for a person" if left else ""
        lines.append(
            f"{styled(str(path), 'bold', colour)}: for one device; convert makes {counted(edits, 'edit')}{rest}"
        )
    if total:
        scripts, each = counted(len(found), "script"), counted(sum(one[-1] for one in found), "finding")
        what = f"{scripts} for one device: `accelify convert` rewrites {'it' if len(found) == 1 else 'them'}"
        lines.append(styled(f"{what}; -v lists {each}.", "bold", colour))
    return "".join(f"{wrapped(line, width)}\n" for line in lines)


def left_over(conversions: Sequence[Conversion], places: Written) -> str:
    """A line for each place that is left for a person, and for each script that was left alone; empty for none."""
    lines = []
    for conversion in conversions:
        lines += [finding_line(places.at(conversion, finding), False) for finding in conversion.left]
        if conversion.reason and conversion.status in ("refused", "failed") and not conversion.left:
            lines.append(f"{_name(conversion)}: {conversion.status}: {conversion.reason}")
    return "".join(f"{line}\n" for line in lines)


def _one_script(
    conversion: Conversion,
    colour: bool,
    places: Written,
    reasons: bool,
    written: bool,
) -> list[str]:
    status = str(conversion.status)
    name = styled(_name(conversion), "bold", colour)
    head = f"{name}: {styled(_said(status, written), _STATUS_STYLE.get(status, 'bold'), colour)}"
    if target := places.target(conversion):
        head += f" into {target}" if conversion.changed else f", copied to {target}"
    if conversion.applied and conversion.changed:
        head += f", {counted(len(conversion.applied), 'edit')}"
    # A reason with a place stands in the list below.
    if conversion.reason and not any(
        conversion.reason in finding.message for finding in conversion.remaining
    ):
        head += f": {conversion.reason}"
    lines = [head]
    if conversion.changed:
        edits = [places.edit(conversion, finding) for finding in conversion.applied]
        lines += [f"  {finding_line(_as_edit(one), colour, effort=True)}" for one in edits if reasons]
        lines += [] if reasons else _deeds(edits, colour)
    if conversion.left:
        lines.append(f"  left for a person{_about(conversion.left)}:")
        left = [places.at(conversion, finding) for finding in conversion.left]
        lines += [f"    {finding_line(finding, colour, effort=True)}" for finding in left]
    if conversion.infos:
        lines.append("  to know (no change is needed):")
        lines += [f"    {finding_line(places.at(conversion, one), colour)}" for one in conversion.infos]
    if conversion.changed and any("cpu=True" in finding.evidence for finding in conversion.applied):
        lines.append(
            "  stays on the CPU, as the original does: without cpu=True it takes what the launch chooses"
        )
    return lines + [f"  {places.note(conversion, one)}" for one in conversion.notes]


def _shares_a_loader(conversion: Conversion) -> bool:
    """Whether a loader of a script is prepared, under its name or where it is made."""
    prepared = [finding for finding in conversion.applied if finding.name == "prepare"]
    return any(
        finding.message.startswith("the loader ") or any(": loader, " in one for one in finding.evidence)
        for finding in prepared
    )


def _as_edit(finding: Finding) -> Finding:
    """What an edit has fixed, as what was done and why: nobody has to spend time on it any more."""
    return replace(finding, message=f"{finding.done or finding.name}: {finding.message}", effort=0)


def _said(status: str, written: bool) -> str:
    return "would be converted" if status == "converted" and not written else status


def _deeds(applied: Iterable[Finding], colour: bool) -> list[str]:
    """What was done, where, and by which rule: the core first, as the codes of what finds it go."""
    deeds: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for finding in sorted(applied, key=lambda one: one.part or one.code):
        deeds.setdefault((finding.done or finding.name, finding.code), []).append(
            (finding.cell, finding.line)
        )
    return [
        f"  {done} {styled(f'({_places(places)})', 'dim', colour)} {styled(code, 'cyan', colour)}"
        for (done, code), places in deeds.items()
    ]


def _places(places: list[tuple[int, int]]) -> str:
    distinct = sorted(set(places))
    shown = ", ".join(f"{cell}:{line}" if cell else str(line) for cell, line in distinct[:_LINES_SHOWN])
    more = f" and {len(distinct) - _LINES_SHOWN} more" if len(distinct) > _LINES_SHOWN else ""
    several = "s" * (len(distinct) > 1)
    noun = f"cell{several}" if distinct[0][0] else f"line{several}"
    return f"{noun} {shown}{more}"


def finding_line(finding: Finding, colour: bool, *, effort: bool = False) -> str:
    """Place, code and message of a finding; with what it costs a person where `effort` says so."""
    place = styled(finding.path, "bold", colour) + finding.place.removeprefix(finding.path) + ":"
    code = styled(finding.code, _SEVERITY_STYLE[finding.severity], colour)
    mark = " [*]" if finding.is_fixed and not effort else ""
    cost = styled(f" ({duration(finding.effort)})", "dim", colour) if effort and finding.effort else ""
    return f"{place} {code}{mark} {finding.message}{cost}"


def _about(left: Sequence[Finding]) -> str:
    effort = sum(finding.effort for finding in left)
    return f" (about {duration(effort)})" if effort else ""


def _totals(conversions: Sequence[Conversion], colour: bool, written: bool) -> str:
    by_status: dict[str, int] = {}
    for conversion in conversions:
        by_status[str(conversion.status)] = by_status.get(str(conversion.status), 0) + 1
    scripts = ", ".join(
        f"{counted(number, 'file')} {_said(status, written)}" for status, number in sorted(by_status.items())
    )
    edits = sum(len(conversion.applied) for conversion in conversions if conversion.changed)
    left = [finding for conversion in conversions for finding in conversion.left]
    text = f"{scripts or 'no script to convert'}; {counted(edits, 'edit')}"
    if left:
        text += f", {counted(len(left), 'place')} left{_about(left)}"
        if len(conversions) > 1:
            names = [_name(conversion) for conversion in conversions if conversion.left]
            more = f" and {counted(len(names) - _NAMED, 'more file')}" if len(names) > _NAMED else ""
            text += f": {', '.join(names[:_NAMED])}{more}"
    return styled(text + ".", "bold", colour)


def _name(conversion: Conversion) -> str:
    return str(conversion.source.path) if conversion.source.path is not None else "<stdin>"
