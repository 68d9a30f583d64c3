"""Loss curves as a drawing inside the HTML report."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import cycle
from pathlib import Path
from typing import Any

from accelify.report.verdicts import Verdicts, read_verdicts
from accelify.source import SourceError, read_bytes

_WIDTH, _HEIGHT = 720, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 12, 10, 30
# What a run is compared with is a wide pale line, so that an identical curve over it still shows both.
_PALE = ("#9db7e8", "#86d3a0", "#f2b8a0", "#cbb5f5")
_THIN = ("#c2410c", "#15803d", "#7c3aed", "#0e7490", "#a16207")
_ORIGINAL = "original"


@dataclass(frozen=True)
class Curves:
    """The losses of `accelify verify`: `verdict` in a word or two, and per run its losses by step.

    The original is first, and where a run is compared with the original in larger batches, that is ahead of it.

    `verdicts` is what was compared besides.
    """

    verdict: str
    runs: tuple[tuple[str, tuple[float, ...]], ...]
    verdicts: Verdicts = field(default_factory=Verdicts)


def read_curves(file: Path) -> tuple[Path, Curves]:
    """The script and the curves of a file that `accelify verify --json` printed.

    Raises SourceError where it is not such a file.
    """
    try:
        report = json.loads(read_bytes(file))
        return Path(report["script"]), curves_of(report)
    except (ValueError, TypeError, KeyError, AttributeError):
        raise SourceError(
            f"{file} is not what `accelify verify --json` prints: make it anew.", file
        ) from None


def curves_of(report: dict[str, Any]) -> Curves:
    """The curves and verdicts of a verification as plain data; KeyError or TypeError where it is no such data."""
    compared = [*report["runs"], *filter(None, [report["on_simulated_gpu"]])]
    original = report["original"]["losses"] if report["original"] else []
    runs = [(_ORIGINAL, original)] if original else []
    for run in compared:
        if run["reference_losses"] not in ([], original):
            runs.append((f"{_ORIGINAL}, {run['processes']} batches in one", run["reference_losses"]))
        runs.append((_named(run), run["losses"]))
    verdicts = dict.fromkeys(f"{run['verdict']} ({_named(run)})" for run in compared)
    verdict = ", ".join(verdicts) or report["refused"] or report["unchanged"] or "nothing was run"
    named = tuple((name, tuple(map(_number, losses))) for name, losses in runs)
    return Curves(verdict, named, read_verdicts(report))


def _named(run: dict[str, Any]) -> str:
    """`converted, 2 processes`."""
    return f"{run['run']}, {run['on']}"


def _number(loss: float | None) -> float:
    # JSON has no word for losses that are not finite.
    return math.nan if loss is None else float(loss)


def curves_svg(curves: Curves) -> str:
    """An SVG of all runs over their steps; losses that are not finite leave gaps."""
    finite = [loss for _, losses in curves.runs for loss in losses if math.isfinite(loss)]
    if not finite:
        return f'<p class="dim">verify: {escape(curves.verdict)}</p>'
    low, high = min(finite), max(finite)
    steps = max(len(losses) for _, losses in curves.runs)
    parts = [_grid(low, high, steps)]
    legend = []
    pale, thin = cycle(_PALE), cycle(_THIN)
    for name, losses in curves.runs:
        stroke, width = (next(pale), 5.0) if name.startswith(_ORIGINAL) else (next(thin), 1.6)
        parts.append(_line(losses, low, high, steps, stroke, width))
        # Words that belong together stay on one line of a phone.
        words = escape(name).replace(" ", "&nbsp;")
        legend.append(f'<span style="color:{stroke}">&#9632;</span>&nbsp;{words}')
    return (
        f'<p>verify: <b>{escape(curves.verdict)}</b></p><p class="dim">{" ".join(legend)}</p>'
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="Loss curves: {escape(curves.verdict, quote=True)}" fill="none">'
        "<style>.axis{font:12px system-ui,sans-serif;fill:currentColor}</style>" + "".join(parts) + "</svg>"
    )


def _grid(low: float, high: float, steps: int) -> str:
    marks = []
    for share in (0.0, 0.5, 1.0):
        value = low + (high - low) * share
        y = _y(value, low, high)
        marks.append(f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}" stroke="currentColor" opacity=".15"/>')
        marks.append(
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" class="axis">{value:.4g}</text>'
        )
    y = _HEIGHT - 8
    marks.append(f'<text x="{_LEFT}" y="{y}" class="axis">step 1</text>')
    marks.append(f'<text x="{_WIDTH - _RIGHT}" y="{y}" text-anchor="end" class="axis">{steps}</text>')
    return "".join(marks)


def _line(losses: Sequence[float], low: float, high: float, steps: int, stroke: str, width: float) -> str:
    path, pen = [], "M"
    for number, loss in enumerate(losses):
        if not math.isfinite(loss):
            pen = "M"
            continue
        x = _LEFT + (_WIDTH - _LEFT - _RIGHT) * (number / max(steps - 1, 1))
        path.append(f"{pen}{x:.1f} {_y(loss, low, high):.1f}")
        pen = "L"
    pen_style = f'stroke="{stroke}" stroke-width="{width}" stroke-linejoin="round" stroke-linecap="round"'
    return f'<path d="{"".join(path)}" {pen_style}/>'


def _y(value: float, low: float, high: float) -> float:
    share = (value - low) / (high - low) if high > low else 0.5
    return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - share)
