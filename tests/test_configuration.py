"""[tool.accelify.models]: the user's rows, from the table or a file, and the sentences about wrong ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.configuration import user_rows
from accelify.knowledge import Knowledge
from accelify.selection import selection_for
from accelify.source import SourceError


def rows(folder: Path, section: str, file: str | None = None) -> dict[str, str]:
    (folder / "src").mkdir(exist_ok=True)
    (folder / "pyproject.toml").write_text(section)
    if file is not None:
        (folder / "file.models").write_text(file)
    return user_rows(folder / "src" / "train.py")


def test_no_section_no_rows(tmp_path: Path) -> None:
    assert rows(tmp_path, "[tool.accelify]\nselect = ['ALL']\n") == {}


def test_a_table_of_rows(tmp_path: Path) -> None:
    found = rows(
        tmp_path,
        '[tool.accelify.models]\n"mylogger.log" = "none effect=log.write content=*"\n'
        '"class mylogger.Logger" = "logging.Logger"\n"alias mylog.log" = "mylogger.log"\n',
    )
    knowledge = Knowledge(found)
    row = knowledge.row("mylog.log")
    assert row is not None
    assert (row.name, row.effect) == ("mylogger.log", "log.write")
    inherited = knowledge.method("mylogger.Logger", "info")
    assert inherited is not None
    assert inherited.effect == "log.write"


def test_a_file_of_rows(tmp_path: Path) -> None:
    found = rows(
        tmp_path,
        '[tool.accelify]\nmodels = "file.models"\n',
        "# ours\nmylogger.log  none  effect=log.write content=*  # lines\nclass mylogger.Logger(logging.Logger)\n"
        "alias mylog.log = mylogger.log\n",
    )
    knowledge = Knowledge(found)
    row = knowledge.row("mylog.log")
    assert row is not None
    assert row.effect == "log.write"
    assert knowledge.bases("mylogger.Logger") == ("logging.Logger",)


@pytest.mark.parametrize(
    ("section", "file", "says"),
    [
        (
            '[tool.accelify.models]\n"lab.f" = "nothing"\n',
            None,
            "lab.f: 'nothing' is no transfer: write one of same",
        ),
        (
            '[tool.accelify.models]\n"lab.f" = "none efect=x"\n',
            None,
            "lab.f: there is no key 'efect': did you mean effect=? The keys are",
        ),
        ('[tool.accelify.models]\n"class lab.A" = "B-C"\n', None, "write class a.b(c.d)"),
        ('[tool.accelify.models]\n"lab.f" = "a"\n"lab.g" = "b"\n', None, "lab.g: 'b' is no transfer"),
        ("[tool.accelify.models]\nlab = 3\n", None, "models of [tool.accelify] is a table of rows"),
        ("[tool.accelify.models]\nlab.f = 'none'\n", None, "models of [tool.accelify] is a table of rows"),
        ("[tool.accelify]\nmodels = 3\n", None, "or the name of a file of rows"),
        ('[tool.accelify]\nmodels = "file.models"\n', None, "file.models, the models of [tool.accelify] in"),
        (
            '[tool.accelify]\nmodels = "file.models"\n',
            "lab.g pure\nlab.f nothing\n",
            "file.models:2: lab.f: 'nothing'",
        ),
        (
            '[tool.accelify]\nmodels = "file.models"\n',
            "lab.f pure\n\nlab.f rows\n",
            "file.models:3: lab.f stands in",
        ),
        (
            '[tool.accelify]\nmodels = "file.models"\n',
            "pure\nalias lab.f\n",
            "file.models:1: pure: no transfer",
        ),
    ],
)
def test_wrong_rows_are_named_each_in_a_sentence(
    tmp_path: Path, section: str, file: str | None, says: str
) -> None:
    with pytest.raises(SourceError) as error:
        rows(tmp_path, section, file)
    assert says in str(error.value)
    assert len(str(error.value).splitlines()) == ("lab.g" in says or "pure: no" in says) + 1


def test_rows_do_not_stand_in_the_way_of_the_selection(tmp_path: Path) -> None:
    rows(tmp_path, '[tool.accelify]\nselect = ["ACC1"]\n[tool.accelify.models]\n"lab.f" = "pure"\n')
    assert selection_for(tmp_path / "src" / "train.py", [], []).select == ("ACC1",)
