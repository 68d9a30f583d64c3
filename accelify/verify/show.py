"""A verification for people: the table of verdicts, and a sentence for everything that is not equal."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from accelify.report.style import counted, wrapped
from accelify.verify.compare.losses import Comparison, coarsest
from accelify.verify.compare.verdict import ASPECTS, WRONG, Check, Verdict
from accelify.verify.lines import ORIGINAL, LineMap
from accelify.verify.probes.settling import Outcome
from accelify.verify.session import Report

if TYPE_CHECKING:
    from rich.console import Console

COLOURS = {
    Verdict.EQUAL: "green",
    Verdict.ROUNDING: "green",
    Verdict.NOT_COMPARABLE: "yellow",
    Verdict.NOT_REACHED: "dim",
    Verdict.NOT_DIVIDED: "bold red",
    Verdict.DIFFERENT: "bold red",
    Verdict.FAILED: "bold red",
}
TITLES = {
    "losses": "losses",
    "rates": "learning rates",
    "steps": "steps",
    "samples": "samples",
    "weights": "final weights",
    "printed": "printed figures",
    "logged": "logged figures",
    "files": "files",
    "decisions": "decisions",
    "effects": "side effects",
    "objects": "living objects",
    "exit": "exit",
}
_COLUMNS = 3
"""Runs beside each other in one table: what 80 columns hold."""
_SHOWN = 12
_OF_STATEMENTS = ("printed", "logged")
_OUTCOMES = (Outcome.HELD, Outcome.VIOLATED, Outcome.NOT_REACHED, Outcome.NOT_SETTLED)


def print_report(report: Report, console: Console) -> None:
    """The table, then a sentence for each check that is not equal, the worst first."""
    if report.converted.refused:
        _say(
            console,
            f"{report.script} was not converted, so there is nothing to compare: {report.converted.refused}",
        )
        return
    if report.original is None:
        _say(console, f"{report.script} was not run: {report.converted.unchanged}")
        return
    for start in range(0, len(report.columns), _COLUMNS):
        _print_table(report.columns[start : start + _COLUMNS], console, _overall(report))
    for line in _sentences_of(report):
        _say(console, line)
    left = report.converted.remaining
    if left:
        named = [one for one in report.settled if one.outcome in (Outcome.VIOLATED, Outcome.NOT_SETTLED)]
        beside = ", beside the demands above" if named else ""
        _say(console, f"The converter left {counted(len(left), 'place')} for a person{beside}:")
        for line in left[:_SHOWN]:
            _say(console, f"  {line}")
        if len(left) > _SHOWN:
            _say(console, f"  and {len(left) - _SHOWN} more; `accelify check` lists them")


def _print_table(comparisons: list[Comparison], console: Console, overall: str) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("", no_wrap=True)
    for comparison in comparisons:
        table.add_column(comparison.run.title, no_wrap=True)
    for title, verdicts in rows(comparisons, overall):
        words = (Text(str(verdict), style=COLOURS[verdict]) for verdict in verdicts)
        table.add_row(Text(title, style="bold" if title == overall else ""), *words)
    console.print(table)


def rows(comparisons: Sequence[Comparison], overall: str) -> Iterator[tuple[str, list[Verdict]]]:
    """What was compared, with a verdict for each run, and at the end all of it together, under the title `overall`."""
    aspects = [comparison.aspects() for comparison in comparisons]
    for aspect in ASPECTS:
        if any(aspect in found for found in aspects):
            yield TITLES[aspect], [found.get(aspect, Verdict.NOT_REACHED) for found in aspects]
    yield overall, [comparison.overall for comparison in comparisons]


def as_data(report: Report) -> dict[str, Any]:
    """The report as plain data, with the table and the sentences that `print_report` prints."""
    found = [] if report.original is None else report.columns
    return {
        **report.to_json(),
        "columns": [comparison.run.title for comparison in found],
        "table": [
            {"compared": title, "verdicts": [str(verdict) for verdict in verdicts]}
            for title, verdicts in (rows(found, _overall(report)) if found else ())
        ],
        "sentences": list(_sentences_of(report)) if found else [],
    }


def _overall(report: Report) -> str:
    return "verdict so far" if report.unseen is not None else "verdict"


def _sentences_of(report: Report) -> Iterator[str]:
    yield from compared(report)
    yield from notes(report)
    yield from explanations(report)
    yield from demands(report)
    if not report.exit_code and any(
        Verdict.NOT_COMPARABLE in one.aspects().values() for one in report.columns
    ):
        nothing = "Nothing is different so far" if report.unseen is not None else "Nothing is different"
        yield f'{nothing}. "Not comparable" is no error: the reason is named above.'


def compared(report: Report) -> Iterator[str]:
    """Which two scripts were run, and what each number of processes was compared with."""
    if report.converted.versions is None:
        return
    before, after = report.converted.versions
    words = [f"Original: {before}; converted: {after}"]
    for comparison in report.comparisons:
        if (count := comparison.run.processes) > 1:
            larger = comparison.reference is not report.original
            batches = f"with {count} of its batches in one" if larger else "as it is"
            counts = report.counts if larger else []
            if counts:
                places = report.converted.lines().within(*(one.site for one in counts))
                batches += f" and the count in {places} times {count}, as in the converted script"
            words.append(f"{count} processes are compared with the original {batches}")
    yield f"{'; '.join(words)}."


def notes(report: Report) -> Iterator[str]:
    """What holds for all runs."""
    original = report.original
    assert original is not None
    first, last = (f"{original.losses[k]:.6g}" for k in (0, -1))
    by_optimizer = Counter(step.optimizer for step in original.ranks[0].steps)
    steps, calls = by_optimizer.total() or original.steps, len(original.losses)
    made = counted(steps, "optimizer step")
    if len(by_optimizer) > 1:
        made = f"{steps} steps of {len(by_optimizer)} optimizers"
    if calls > steps:
        made += f", {calls} calls of `backward`"
    yield f"{made}; the original's loss, as `backward` gets it, goes from {first} to {last}."
    if report.cuda_as_cpu:
        yield "The script asks for a CUDA device outright; the CPU took its place in every run (see --gpu)."
    if report.converted.modernised:
        yield (
            "Python does not parse the original's `async=` any more: it was run with `non_blocking=` in its place."
        )
    yield from report.notes
    if report.unseen is not None:
        what = ", ".join(report.unseen.what) or "schedules, evaluation"
        more = f"--steps {report.unseen.steps} goes beyond it" if report.unseen.steps else "give more --steps"
        made = counted(original.steps, "step")
        ends = (
            "ends within the original's first epoch" if report.unseen.loaders else "does not come to the end"
        )
        yield f"A run of {made} {ends}; not reached: {what}; {more}."


def explanations(report: Report) -> list[str]:
    """The sentences of all comparisons; of the one on a simulated GPU only what is not so on 1 process too."""
    places = report.converted.lines()
    lines = [line for comparison in report.comparisons for line in explain(comparison, places)]
    if report.on_gpu.comparison is not None:
        known = {line.partition(": ")[2] for line in lines if line.startswith("1 process: ")}
        found = explain(report.on_gpu.comparison, places)
        lines += [line for line in found if line.partition(": ")[2] not in known]
    return lines


def demands(report: Report) -> Iterator[str]:
    """What became of the demands that are not proved: how many, and those that are violated or not settled."""
    if not report.settled:
        return
    counts = [f"{len(found)} {outcome}" for outcome in _OUTCOMES if (found := report.of(outcome))]
    many = len(report.settled)
    yield f"{many} demand{'s' if many > 1 else ''} not proved or only assumed: {', '.join(counts)}"
    for outcome in (Outcome.VIOLATED, Outcome.NOT_SETTLED):
        sentences = list(dict.fromkeys(one.sentence for one in report.of(outcome)))
        yield from (f"  {sentence}" for sentence in sentences[:_SHOWN])
        if len(sentences) > _SHOWN:
            yield f"  and {len(sentences) - _SHOWN} more {outcome}; --json lists them"


def explain(comparison: Comparison, places: LineMap = ORIGINAL) -> list[str]:
    """A sentence for each check that is not equal: differences first, then what cannot be compared.

    Args:
        comparison: of one run.
        places: where a user finds the lines of the converted script.
    """
    run = comparison.run
    name = run.title
    lines = []
    for verdict in reversed(WRONG):
        lines += _sentences(name, [check for check in comparison.checks if check.verdict is verdict], places)
    if not comparison.checks and comparison.verdict not in (Verdict.EQUAL, Verdict.ROUNDING):
        lines.append(f"{name}: {comparison.verdict}: {comparison.reason}")
    if comparison.verdict is Verdict.FAILED and run.losses:
        lines.append(f"  it got as far as call {len(run.losses)} of backward")
    if comparison.verdict is Verdict.ROUNDING:
        lines.append(_rounding(name, comparison))
    lines += _not_comparable(name, comparison, places)
    return lines


def _sentences(name: str, checks: list[Check], places: LineMap) -> list[str]:
    found: dict[tuple[str, str, str], list[Check]] = {}
    for check in checks:
        # Many figures of one statement go wrong together, as those of a file that every process writes.
        rest = "" if check.aspect in _OF_STATEMENTS and (check.line or check.original) else check.key
        found.setdefault((check.aspect, _place(check, places), rest), []).append(check)
    lines = []
    for (aspect, place, _), together in found.items():
        more = f"; so are {len(together) - 1} more figures of this line" if len(together) > 1 else ""
        first = together[0]
        lines.append(f"{name}: {TITLES[aspect]} {first.verdict}{place}: {first.sentence}{more}")
    if len(lines) > _SHOWN:
        return [*lines[:_SHOWN], f"{name}: and {len(lines) - _SHOWN} more; --json lists them"]
    return lines


def _rounding(name: str, comparison: Comparison) -> str:
    update = (
        f"; weights by {comparison.update:.1e} of how far training moved them" if comparison.update else ""
    )
    if not comparison.largest_at:
        return f"{name}: equal to rounding: losses equal to the bit{update}{_why_so_much(comparison)}"
    return (
        f"{name}: equal to rounding: losses differ by at most {comparison.largest:.1e} of their size (call "
        f"{comparison.largest_at} of backward, tolerance {comparison.tolerance:.1e}){update}{_why_so_much(comparison)}"
    )


def _why_so_much(comparison: Comparison) -> str:
    """Why more is put down to rounding than is usual."""
    if comparison.allowed:
        return (
            "; more is allowed, as the original with its gradients disturbed in the last bit goes apart too"
        )
    half = coarsest(comparison.reference) if comparison.reference else ""
    return f"; more is allowed, as it computes in {half}" if half else ""


def _not_comparable(name: str, comparison: Comparison, places: LineMap) -> list[str]:
    """One sentence for each reason, with the places that it holds for."""
    reasons: dict[str, list[Check]] = {}
    different = {
        (check.aspect, check.line, check.original)
        for check in comparison.checks
        if check.verdict is Verdict.DIFFERENT
    }
    for check in comparison.checks:
        # What is different with chance taken out as well is not excused by it.
        excused = (check.aspect, check.line, check.original) not in different
        if check.verdict is Verdict.NOT_COMPARABLE and excused:
            reasons.setdefault(check.sentence, []).append(check)
    lines = []
    for reason, checks in reasons.items():
        aspects = ", ".join(dict.fromkeys(TITLES[check.aspect] for check in checks))
        found: dict[str, list[tuple[str, int]]] = {}
        for site in [check.line for check in checks if check.line is not None]:
            found.setdefault(places.file(site), []).append(site)
        files = [f"{file} {places.within(*sites)}" for file, sites in found.items()]
        where = f" ({'; '.join(files)})" if files else ""
        lines.append(f"{name}: {aspects} not comparable{where}: {reason}")
    quiet = comparison.quiet
    if quiet is not None and quiet.verdict in (Verdict.EQUAL, Verdict.ROUNDING):
        lines.append(
            f"  with that taken out of both runs, they are {quiet.verdict} (losses within {quiet.largest:.1e}, "
            f"tolerance {quiet.tolerance:.1e})"
        )
    return lines


def _place(check: Check, places: LineMap) -> str:
    """Where a check is: the line that a user finds it in, and the original's where it is another."""
    if check.aspect == "files":
        line = check.line and places.named(check.line)
        where = line or (check.original and places.named_original(check.original))
        return f", {_file(check.key)}" + (f" of {where}" if where else "")
    if check.line is None and check.original is None:
        return ""
    if check.line is None:
        assert check.original is not None
        return f", {places.named_original(check.original)} of the original"
    place = f", {places.named(check.line)}"
    if check.original is None or check.original[1] == places.number(check.line):
        return place
    return f"{place} ({places.within_original(check.original)} of the original)"


def _file(path: str) -> str:
    """A path from here where it is below, else as it is."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative


def _say(console: Console, line: str) -> None:
    text = wrapped(line, console.width if console.is_terminal else 0)
    console.print(text, markup=False, highlight=False, soft_wrap=True)
