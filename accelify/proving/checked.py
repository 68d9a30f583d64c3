"""The engine over scripts that are written for several processes already, by an Accelerator or by torch.distributed."""

from __future__ import annotations

from dataclasses import replace

from accelify.configuration import user_rows
from accelify.conversion import Conversion
from accelify.findings import Finding
from accelify.heap.modules import text_of
from accelify.knowledge import Knowledge
from accelify.obligations import Validation, validate
from accelify.proving.findings import Named
from accelify.proving.origins import Places
from accelify.proving.rules import IN_PART

# Some five seconds' worth of statements.
BUDGET = 50_000


def checked(conversion: Conversion, budget: int = BUDGET) -> list[Finding] | None:
    """What is wrong in a script that is written for several processes.

    Args:
        conversion: of the script, which changed nothing.
        budget: how many statements are gone through.

    Returns:
        A finding for each cause; None for a script in which processes never meet.

    Raises:
        SourceError: for rows of the user's configuration that make no sense.
    """
    source = conversion.source
    found = validate(
        source.text, source.path, Knowledge(user_rows(source.path)), text_of, budget, checks=True
    )
    if not found.meets:
        return None
    unchanged = replace(conversion, new_text=source.text, applied=[], remaining=[])
    named = Named(found, Places(unchanged, {}), [], checks=True)
    findings = [finding for _, finding in named.findings()]
    return [*findings, _in_part(found, named, conversion)] if found.stopped else findings


def _in_part(found: Validation, named: Named, conversion: Conversion) -> Finding:
    lines = [line for path, line, _ in found.not_reached if path == named.entry_name]
    rest = named.not_reached or "further rounds of its loops"
    return Finding(
        path=str(conversion.source.path or "<stdin>"),
        line=min(lines, default=1),
        column=1,
        code=IN_PART.code,
        name=IN_PART.name,
        message=f"the analysis ends after {found.steps:,} steps, and what comes later is not checked: {rest}",
        severity=IN_PART.severity,
        safety=IN_PART.safety,
        fixable=False,
    )
