"""A verification as a page to look at: the change, the verdicts and the loss curves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from accelify.report.curves import curves_of
from accelify.report.html import html_report
from accelify.verify.session import Report
from accelify.verify.show import as_data

if TYPE_CHECKING:
    from accelify.conversion import Conversion


def page(report: Report) -> str:
    """The whole page; it loads nothing from elsewhere."""
    conversions = [one.published() for one in report.converted.conversions] or _compared(report)
    script = str(conversions[0].source.path if conversions else report.script)
    made = "would be converted" if report.converted.conversions else "compared"
    return html_report(conversions, curves={script: curves_of(as_data(report))}, verified=made)


def _compared(report: Report) -> list[Conversion]:
    """The two versions of each file, where somebody else wrote the converted one."""
    from accelify.conversion import CONVERTED, Conversion
    from accelify.source import Source

    found = []
    for path, (before, after) in report.converted.texts().items():
        found.append(Conversion(Source.from_bytes(before.encode(), path), CONVERTED, new_text=after))
    return found
