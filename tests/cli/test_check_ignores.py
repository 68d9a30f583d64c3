"""`accelify check --add-ignores`: comments that silence what is found now, and nothing that comes later."""

from __future__ import annotations

import json
from pathlib import Path

from accelify.cli.check_ignores import with_ignores
from accelify.findings import Finding
from tests.cli.conftest import PLAIN, Run


def found(run: Run, path: Path) -> list[dict[str, object]]:
    listed: list[dict[str, object]] = json.loads(run("check", "--output-format", "json", path).out)
    return listed


def test_what_is_found_now_is_silenced(run: Run, plain: Path) -> None:
    number = len(found(run, plain))
    outcome = run("check", "--add-ignores", plain)
    assert (outcome.code, outcome.out, outcome.err) == (0, "", f"{number} findings silenced.\n")
    assert [one for one in found(run, plain) if one["severity"] != "info"] == []
    lines = zip(PLAIN.splitlines(), plain.read_text().splitlines(), strict=True)
    assert all(after == before or after.startswith(f"{before}  # accelify: ignore[ACC") or "#" in before
               for before, after in lines)  # fmt: skip
    later = plain.read_text().replace("# accelify: ignore[", "# ", 1)
    plain.write_text(later)
    assert found(run, plain)


def test_standard_input_takes_no_comment(run: Run) -> None:
    outcome = run("check", "--add-ignores", "-", stdin=PLAIN.encode())
    assert outcome.code == 1
    assert outcome.out.startswith("<stdin>:")


def test_where_the_comment_can_be() -> None:
    text = "a(\n    1,\n)\r\nb = '''\n'''\nc = 1 + \\\n    2\nd  # accelify: ignore[ACC1]\ne  # why\n"

    def at(line: int, end: int, code: str = "ACC702") -> Finding:
        return Finding("t.py", line, 1, code, "name", "message", end_line=end, end_column=2)

    inside = at(4, 4)
    after, left = with_ignores(
        text, [at(1, 3), inside, at(4, 5), at(6, 7), at(8, 8), at(9, 9), at(9, 9, "ACC9")]
    )
    assert left == [inside]
    assert after == (
        "a(\n    1,\n)  # accelify: ignore[ACC702]\r\nb = '''\n'''  # accelify: ignore[ACC702]\nc = 1 + \\\n"
        "    2  # accelify: ignore[ACC702]\nd  # accelify: ignore[ACC1, ACC702]\n"
        "e  # why  # accelify: ignore[ACC702, ACC9]\n"
    )
