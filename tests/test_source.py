"""Scripts come back byte for byte, bad ones get one sentence, and files are written whole or not at all."""

from __future__ import annotations

import os
import stat
import sysconfig
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelify.source import (
    Source,
    SourceError,
    find_scripts,
    looks_like_training,
    python_files,
    split_lines,
    write_all,
)

EXACT = {
    "unix": b"import torch\nx = 1\n",
    "windows": b"import torch\r\nx = 1\r\n",
    "classic mac": b"import torch\rx = 1\r",
    "mixed": b"a = 1\r\nb = 2\nc = 3\rd = 4",
    "no last newline": b"x = 1",
    "empty": b"",
    "byte-order mark": b"\xef\xbb\xbfx = 'caf\xc3\xa9'\n",
    "byte-order mark and declaration": b"\xef\xbb\xbf# coding: utf-8\nx = 1\n",
    "latin-1": b"# -*- coding: latin-1 -*-\nx = 'caf\xe9'\n",
    "latin-1 in the second line": b"#!/usr/bin/env python\n# vim: set fileencoding=iso-8859-15 :\nx = '\xa4'\n",
    "declaration after a lone return": b"#!/usr/bin/python\r# coding: cp1252\rx = '\x80'\r",
    "shift_jis": "# coding: shift_jis\nx = '日本'\n".encode("shift_jis"),
    "tabs and form feed": b"if x:\n\ty = 1\n\x0c\nclass A:\n\tpass\n",
    "line separator in a string": "x = '\u2028\x85\x1c'\ny = 1\n".encode(),
}


@pytest.mark.parametrize("data", EXACT.values(), ids=EXACT)
def test_bytes_come_back_as_they_were(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "train.py"
    path.write_bytes(data)
    source = Source.read(path)
    assert source.encode() == data
    assert "".join(source.lines) == source.text
    assert not source.text.startswith("\ufeff")
    assert source.tree is source.tree


@pytest.mark.parametrize(
    ("data", "encoding", "newline"),
    [
        (EXACT["windows"], "utf-8", "\r\n"),
        (EXACT["classic mac"], "utf-8", "\r"),
        (EXACT["latin-1"], "iso-8859-1", "\n"),
        (EXACT["declaration after a lone return"], "cp1252", "\r"),
        (b"x = 1", "utf-8", "\n"),
        (b"a = 1\nb = 2\r\nc = 3\r\n", "utf-8", "\r\n"),
    ],
)
def test_encoding_and_newline(data: bytes, encoding: str, newline: str) -> None:
    source = Source.from_bytes(data)
    assert (source.encoding, source.newline) == (encoding, newline)


def test_new_text_is_written_in_the_files_own_encoding() -> None:
    source = Source.from_bytes(EXACT["latin-1"])
    assert source.encode(source.text.replace("caf", "th")) == b"# -*- coding: latin-1 -*-\nx = 'th\xe9'\n"
    marked = Source.from_bytes(EXACT["byte-order mark"])
    assert marked.encode("y = 2\n") == b"\xef\xbb\xbfy = 2\n"


def test_new_text_that_the_encoding_cannot_hold() -> None:
    source = Source.from_bytes(EXACT["latin-1"], Path("train.py"))
    with pytest.raises(SourceError, match=r"train\.py, line 2: '→' does not exist in iso-8859-1"):
        source.encode("# -*- coding: latin-1 -*-\nx = '→'\n")


def test_lines_are_those_that_python_counts() -> None:
    text = "a\x0c\x1c\u2028b\r\nc\rd\n\ne"
    assert split_lines(text) == ["a\x0c\x1c\u2028b\r\n", "c\r", "d\n", "\n", "e"]


BAD = {
    "Python 2 print": (b'import torch\nprint "loss", 1\n', 2, "Python 2"),
    "Python 2 except": (b"try:\n    pass\nexcept IOError, e:\n    pass\n", 3, "Python 2"),
    "Python 2 octal": (b"os.makedirs(d, 0755)\n", 1, "Python 2"),
    "Python 2 raise": (b"raise ValueError, 'no'\n", 1, "Python 2"),
    "Python 2 unequal": (b"if a <> b:\n    pass\n", 1, "Python 2"),
    "tabs that only Python 2 takes": (b"if x:\n        a = 1\n\tb = 2\n", 3, "Python 2"),
    "tabs that Python 2 does not take": (
        b"if x:\n    a = 1\n\tfor b in c:\n        d = b\n",
        3,
        "mixes tabs",
    ),
    "async as a name": (b"x = 1\ny = Reader(x, async=True)\n", 2, "`async` is a keyword"),
    "async in several lines": (
        b"x.send(async=True)\ny.send(async=True)\nz.a(async=1)  # z\n# (async=1)\n",
        1,
        "give it another name, here and in 2 more lines.",
    ),
    "not Python": (b"x = 1\nthis is no Python\n", 2, "not valid Python"),
    "another language": (b"#include <stdio.h>\nint main(void) { return 0; }\n", 2, "not valid Python"),
    "undeclared latin-1": (b"x = 1\ny = 'caf\xe9'\n", 2, "not valid utf-8"),
    "wrongly declared": (b"# coding: ascii\ny = 'caf\xc3\xa9'\n", 2, "not valid ascii"),
    "null byte": (b"x = 1\ny = '\0'\n", 2, "null byte"),
    "UTF-16": ("x = 1\n".encode("utf-16"), None, "UTF-16"),
    "unknown encoding": (b"# coding: klingon\nx = 1\n", None, "encoding that Python does not know"),
    "not a text encoding": (b"# coding: rot13\nk = 1\n", None, "encoding that Python does not know"),
    "mark against declaration": (b"\xef\xbb\xbf# coding: latin-1\nx = 1\n", None, "byte-order mark"),
}


@pytest.mark.parametrize(("data", "line", "says"), BAD.values(), ids=BAD)
def test_bad_input_gets_one_sentence_with_its_line(
    tmp_path: Path, data: bytes, line: int | None, says: str
) -> None:
    path = tmp_path / "train.py"
    path.write_bytes(data)
    with pytest.raises(SourceError) as caught:
        assert Source.read(path).tree
    sentence = str(caught.value)
    assert says in sentence
    assert sentence.startswith(str(path))
    assert "\n" not in sentence
    assert (caught.value.path, caught.value.line) == (path, line)


def test_what_is_not_a_readable_file(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="does not exist"):
        Source.read(tmp_path / "none.py")
    with pytest.raises(SourceError, match="is a folder"):
        Source.read(tmp_path)


def test_parsing_is_quiet_about_doubtful_escapes(recwarn: pytest.WarningsRecorder) -> None:
    assert Source.from_text(r"x = '\d'").tree
    assert not recwarn.list


def test_text_too_deep_for_the_parser() -> None:
    with pytest.raises(SourceError, match="nested too deeply|not valid Python"):
        assert Source.from_text("(" * 5000 + ")" * 5000, "deep.py").tree


@given(st.text(), st.booleans())
def test_any_text_comes_back(text: str, bom: bool) -> None:
    data = (b"\xef\xbb\xbf" if bom else b"") + text.encode("utf-8", "replace")
    try:
        source = Source.from_bytes(data)
    except SourceError:
        return
    assert source.encode() == data
    assert "".join(source.lines) == source.text


@given(st.binary())
def test_any_bytes_come_back_or_get_a_sentence(data: bytes) -> None:
    try:
        source = Source.from_bytes(data, Path("x.py"))
    except SourceError as error:
        assert str(error).startswith("x.py")
    else:
        assert source.encode() == data


def test_the_standard_library_comes_back_byte_for_byte() -> None:
    read = 0
    for path in python_files(Path(sysconfig.get_paths()["stdlib"])):
        data = path.read_bytes()
        try:
            source = Source.from_bytes(data, path)
        except SourceError:
            # CPython keeps a few files that no Python accepts, to test its own errors.
            assert "test" in path.parts or "tests" in path.parts
            continue
        assert source.encode() == data, path
        assert "".join(source.lines) == source.text, path
        read += 1
    assert read > 500


LOOP = b"import torch\nloss.backward()\n"


def test_training_is_told_by_its_bytes() -> None:
    assert looks_like_training(LOOP)
    assert not looks_like_training(b"import torch\n")
    assert not looks_like_training(b"# calls x.backward() elsewhere\n")


def test_scripts_are_found_where_a_person_put_them(tmp_path: Path) -> None:
    wanted = ["train.py", "src/gan/train.py"]
    skipped = [
        ".hidden/train.py",
        "env/lib/train.py",
        "lib/site-packages/x/train.py",
        "src/.train.py",
        "notes.txt",
    ]
    for name in [*wanted, *skipped]:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(LOOP)
    (tmp_path / "env" / "pyvenv.cfg").touch()
    (tmp_path / "model.py").write_bytes(b"import torch\n")
    found = find_scripts(tmp_path)
    assert sorted(found.scripts) == sorted(tmp_path / name for name in wanted)
    assert found.looked_at == 3


def test_links_that_lead_out_of_the_folder_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "train.py").write_bytes(LOOP)
    project = tmp_path / "project"
    project.mkdir()
    (project / "link.py").symlink_to(tmp_path / "other" / "train.py")
    (project / "folder").symlink_to(tmp_path / "other")
    (project / "broken.py").symlink_to(tmp_path / "none.py")
    assert find_scripts(project).scripts == []


def test_writing_keeps_permissions_and_links(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_bytes(b"old")
    path.chmod(0o750)
    link = tmp_path / "link.py"
    link.symlink_to(path)
    write_all([(link, b"new")])
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o750
    assert link.is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["link.py", "train.py"]


def test_a_new_file_gets_the_usual_permissions(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        write_all([(tmp_path / "new.py", b"x")])
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "new.py").stat().st_mode) == 0o640


def test_several_files_are_written_all_or_none(tmp_path: Path) -> None:
    first, second = tmp_path / "a.py", tmp_path / "b.py"
    first.write_bytes(b"a")
    second.write_bytes(b"b")
    second.chmod(0o444)
    with pytest.raises(SourceError, match=r"b\.py is read-only"):
        write_all([(first, b"A"), (second, b"B")])
    with pytest.raises(SourceError, match="does not exist"):
        write_all([(first, b"A"), (tmp_path / "none" / "c.py", b"C")])
    assert (first.read_bytes(), second.read_bytes()) == (b"a", b"b")
    assert sorted(os.listdir(tmp_path)) == ["a.py", "b.py"]


def test_a_failure_half_way_puts_everything_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [tmp_path / "a.py", tmp_path / "b.py"]
    for path in files:
        path.write_bytes(b"old")
    replace, calls = os.replace, 0

    def fails_once_on_the_second(source: Path, target: Path) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise OSError(28, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(os, "replace", fails_once_on_the_second)
    with pytest.raises(SourceError, match="cannot be written: No space left"):
        write_all([(path, b"new") for path in files])
    assert [path.read_bytes() for path in files] == [b"old", b"old"]
    assert sorted(os.listdir(tmp_path)) == ["a.py", "b.py"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
def test_a_pipe_stays_a_pipe(tmp_path: Path) -> None:
    """Put in the place of `/dev/null`, a file would fill the machine with what others write there."""
    pipe, file = tmp_path / "pipe", tmp_path / "new.py"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_all([(pipe, b"a = 1\n"), (file, b"b = 2\n")])
    assert os.read(reader, 100) == b"a = 1\n"
    os.close(reader)
    assert pipe.is_fifo()
    assert file.read_bytes() == b"b = 2\n"
