"""The same as the text reports, for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import accelify
from accelify.findings import Finding
from accelify.report.totals import share_done

if TYPE_CHECKING:
    from accelify.conversion import Conversion
    from accelify.obligations import Validation


def conversions_json(
    conversions: Sequence[Conversion],
    *,
    with_text: bool = False,
    proofs: Mapping[str, Validation] = MappingProxyType({}),
) -> str:
    """What `convert --json` prints: one object with `version`, `files` and `summary`.

    Efforts are in minutes; `share_converted` is the share of the effort that needed no person. Each file has `file`
    (null for standard input), `status`, `reason`, `changed`, `applied` and `remaining` (lists of findings as `check`
    prints them; those of severity info need no change, and the summary counts them as `infos`), and `notes`,
    sentences on the script as a whole; `with_text` adds `text`, the whole new script, and `proofs` adds `proof` to the
    scripts in it.
    """
    files = [_one_script(conversion, with_text) for conversion in conversions]
    for file in files:
        proof = proofs.get(file["file"] or "-")
        if proof is not None:
            from accelify.report.proofs import proof_json

            file["proof"] = proof_json(proof)
    done = [finding for conversion in conversions if conversion.changed for finding in conversion.applied]
    left = [finding for conversion in conversions for finding in conversion.left]
    totals = {
        "scripts": len(files),
        "converted": sum(str(conversion.status) == "converted" for conversion in conversions),
        "edits": len(done),
        "remaining": len(left),
        "remaining_effort": sum(finding.effort for finding in left),
        "infos": sum(len(conversion.infos) for conversion in conversions),
        "share_converted": round(share_done(done, left), 4),
    }
    return _dump({"version": accelify.__version__, "files": files, "summary": totals})


def findings_json(findings: Sequence[Finding]) -> str:
    """What `check --output-format json` prints: a list of findings."""
    return _dump([finding.to_json() for finding in findings])


def _one_script(conversion: Conversion, with_text: bool) -> dict[str, Any]:
    path, place = conversion.source.path, conversion.source.place
    file: dict[str, Any] = {
        "file": str(path) if path is not None else None,
        "status": str(conversion.status),
        "reason": conversion.reason or None,
        "changed": conversion.changed,
        "applied": [place(finding).to_json() for finding in conversion.applied] if conversion.changed else [],
        "remaining": [place(finding).to_json() for finding in conversion.remaining],
        "notes": conversion.notes,
    }
    if with_text:
        text = conversion.source.encode(conversion.new_text).decode(conversion.source.encoding)
        file["text"] = text.removeprefix("\ufeff")
    return file


def _dump(value: Any) -> str:
    return json.dumps(value, indent=2) + "\n"
