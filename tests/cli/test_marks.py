"""What is left for a person stands in the converted script as a comment, and `check` finds it there again."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.test_written import LEFT

# The count of batches decides when to stop: each of several processes comes to it later.
STOPS = LEFT.replace("for epoch in range(2):", "step = 0\nwhile step < (\n    20\n):").replace(
    "        optimizer.step()\n", "        optimizer.step()\n        step += 1\n"
).replace("    print(epoch, worst)\n", "    print(worst)\n")  # fmt: skip


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_comments_stand_above_the_statements_and_check_finds_them(end: str, run: Run, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_bytes(STOPS.replace("\n", end).encode())
    shown = run("convert", "--quiet", str(script)).out
    assert "ACC706" in shown
    written = script.read_bytes().decode()
    assert written.count("\n") == written.count(end)
    lines = written.split(end)
    place = next(k for k, line in enumerate(lines) if "TODO(accelify ACC706)" in line)
    assert next(line for line in lines[place:] if not line.startswith("#")) == "while step < ("
    found = run("check", str(script), "--output-format", "concise").out
    number = next(k for k, line in enumerate(lines, 1) if line == "while step < (")
    assert f"train.py:{number}:1: ACC706 left by `accelify convert`" in found
    assert found.count("ACC706") == 1
    # The comment taken out, the matter is settled.
    script.write_bytes(end.join(line for line in lines if "TODO(accelify ACC706)" not in line).encode())
    assert "ACC706 left" not in run("check", str(script)).out


def test_comments_change_nothing_of_the_program(run: Run, tmp_path: Path) -> None:
    script, plain = tmp_path / "train.py", tmp_path / "plain.py"
    script.write_text(STOPS)
    run("convert", str(script))
    marked = script.read_text()
    plain.write_text("".join(f"{line}\n" for line in marked.splitlines() if "TODO(accelify" not in line))
    assert ast.dump(ast.parse(marked)) == ast.dump(ast.parse(plain.read_text()))
    # A second conversion leaves the first one's comments as they are.
    run("convert", str(script))
    assert script.read_text() == marked


def test_a_comment_is_silenced_like_any_finding(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch\n# TODO(accelify ACC706): look here\nx = 1  # accelify: ignore[ACC706]\n")
    assert run("check", str(script)).out == ""
    script.write_text("import torch\n# TODO(accelify ACC706): look here\nx = 1\n")
    assert "ACC706 left by `accelify convert`: look here" in run("check", str(script)).out
