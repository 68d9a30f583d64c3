"""The golden files: every script under `fixtures/` converts to the `after.py` beside it.

`pytest tests/test_fixtures.py --force-regen` renews them; read the difference before committing it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from accelify.conversion import Conversion, ConvertOptions
from accelify.convert import convert_source
from accelify.findings import Severity
from accelify.source import Source

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
KINDS = sorted(path.parent.name for path in FIXTURES.glob("*/before.py"))


def replaces_ddp(kind: str) -> bool:
    """Whether the first line of a fixture asks for `--replace-ddp`: `# convert: --replace-ddp`."""
    return (FIXTURES / kind / "before.py").read_text().startswith("# convert: --replace-ddp\n")


def convert(kind: str, batch_size: str = "per-process") -> Conversion:
    options = ConvertOptions(batch_size=batch_size, replace_ddp=replaces_ddp(kind))
    return convert_source(Source.read(FIXTURES / kind / "before.py"), options)


def test_there_are_fixtures() -> None:
    assert len(KINDS) >= 23
    folders = [path.name for path in FIXTURES.iterdir() if path.is_dir() and path.name != "project"]
    assert sorted(folders) == KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_golden(kind: str, file_regression: Any) -> None:
    conversion = convert(kind)
    assert conversion.status == "converted", conversion.reason
    after = FIXTURES / kind / "after.py"
    file_regression.check(conversion.new_text, fullpath=after, encoding="utf-8", newline="")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batch_size", ["per-process", "total"])
def test_compiles_and_a_second_conversion_changes_nothing(kind: str, batch_size: str) -> None:
    if replaces_ddp(kind) and batch_size == "total":
        pytest.skip("a script that distributes itself has the batch size of one process")
    once = convert(kind, batch_size)
    compile(once.new_text, f"{kind}/after.py", "exec", dont_inherit=True)
    twice = convert_source(
        Source.from_text(once.new_text, once.source.path), ConvertOptions(batch_size=batch_size)
    )
    assert twice.new_text == once.new_text
    assert not twice.changed
    assert twice.applied == []


@pytest.mark.parametrize("kind", KINDS)
def test_every_finding_points_into_the_script(kind: str) -> None:
    conversion = convert(kind)
    lines = conversion.source.text.splitlines()
    assert conversion.applied, "a plain script has something to mend"
    for finding in [*conversion.applied, *conversion.remaining]:
        assert finding.code.startswith("ACC")
        assert 1 <= finding.line <= len(lines)
        assert 1 <= finding.column <= len(lines[finding.line - 1]) + 1
        assert finding.message
    assert all(finding.fixable for finding in conversion.applied)
    assert not any(finding.severity is Severity.ERROR for finding in conversion.remaining), (
        conversion.remaining
    )
