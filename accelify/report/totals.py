"""Figures that several reports give."""

from __future__ import annotations

from collections.abc import Iterable

from accelify.findings import Finding


def share_done(applied: Iterable[Finding], remaining: Iterable[Finding]) -> float:
    """The share of the effort, 0 to 1, that needed no person; 1 where there was nothing to do."""
    done = sum(finding.effort for finding in applied)
    left = sum(finding.effort for finding in remaining)
    return done / (done + left) if done + left else 1.0
