"""Projects: a script whose training loop stands in other modules is converted with them, as one group."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from accelify.convert import convert_paths, convert_project
from accelify.source import Source

PROJECT = Path(__file__).resolve().parent.parent / "fixtures" / "project"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the project as its author wrote it."""
    return Path(shutil.copytree(PROJECT / "before", tmp_path / "project"))


def write(folder: Path) -> list[str]:
    """Convert the project in place; the names of the files that changed."""
    conversions = convert_paths([folder / "train.py"])
    for conversion in conversions:
        assert conversion.source.path is not None
        conversion.source.path.write_text(conversion.new_text)
    return sorted(c.source.path.name for c in conversions if c.changed and c.source.path is not None)


def test_every_file_that_needs_it_is_converted(project: Path) -> None:
    assert write(project) == ["engine.py", "train.py"]
    for path in sorted(PROJECT.glob("after/*.py")):
        assert (project / path.name).read_text() == path.read_text(), path.name


def test_the_group_is_converted_once(project: Path) -> None:
    write(project)
    assert write(project) == []


def test_findings_name_their_own_file(project: Path) -> None:
    train, engine = convert_project(Source.read(project / "train.py"))
    assert {Path(f.path).name for f in train.applied} == {"train.py"}
    assert {Path(f.path).name for f in engine.applied} == {"engine.py"}
    backward = next(f for f in engine.applied if f.code == "ACC107")
    assert "loss.backward()" in (project / "engine.py").read_text().splitlines()[backward.line - 1]


def test_all_or_none(project: Path) -> None:
    """Where one file cannot be converted, the others are left alone too."""
    engine = project / "engine.py"
    engine.write_text(engine.read_text() + "\n\nimport deepspeed\n")
    conversions = convert_project(Source.read(project / "train.py"))
    assert [c.changed for c in conversions] == [False]
    assert "DeepSpeed" in conversions[0].reason


def test_a_helper_alone_says_what_to_convert(project: Path) -> None:
    (conversion,) = convert_project(Source.read(project / "engine.py"))
    assert conversion.status == "refused"
    assert "convert the script that makes it" in conversion.reason


def test_files_without_a_final_newline_keep_it_so(project: Path) -> None:
    engine = project / "engine.py"
    engine.write_text(engine.read_text().rstrip("\n"))
    write(project)
    assert not engine.read_text().endswith("\n")


@pytest.mark.distributed
def test_the_converted_project_has_the_same_losses(project: Path) -> None:
    from accelify.verify.session import verify

    report = verify(project / "train.py", processes=2).to_json()
    verdicts = [run["verdict"] for run in report["runs"]]
    assert verdicts[0] == "identical"
    assert verdicts[1] in ("identical", "equal to rounding")
