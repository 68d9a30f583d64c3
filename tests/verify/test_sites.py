"""Which statement runs, which lines stand for which, and what a loop over a loader is."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.verify.lines import LineMap
from accelify.verify.observe.sites import Sites, is_library, read_layout

SCRIPT = """\
def shown(
    text,
):
    return text

for epoch in range(2):
    for batch in LOADER:
        if epoch:
            print(
                shown(batch),
                HERE(),
            )
    print(HERE())
batches = iter(LOADER)
while True:
    batch = next(batches, None)
    HERE()
    if batch is None:
        break
HERE()
"""


def test_a_call_belongs_to_the_innermost_statement_and_loops_over_loaders_are_known(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    sites = Sites()
    seen = []

    class Loader:
        def __iter__(self):  # type: ignore[no-untyped-def]
            return self

        count = 0

        def __next__(self) -> int:
            Loader.count += 1
            if Loader.count % 3 == 0:
                raise StopIteration
            sites.note_batch()
            return Loader.count

    def here() -> None:
        site = sites.here()
        assert site is not None
        assert site[0] == str(path)
        seen.append((site[1], sites.in_loader_loop()))

    # What stands between the script and the watcher belongs to no script of the user.
    for function in (here, Loader.__next__):
        function.__globals__.setdefault("unused", None)
    sites._is_library[__file__] = True
    exec(compile(SCRIPT, str(path), "exec"), {"LOADER": Loader(), "HERE": here, "print": lambda *_: None})
    assert set(seen[:4]) == {(9, True), (13, False)}
    assert seen[-1] == (20, False)
    assert (17, True) in seen


@pytest.mark.parametrize("text", ["", "x = (", "\0", "def f():\n  match x:\n    case 1:\n      pass\n"])
def test_any_text_has_a_layout(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.py"
    path.write_text(text)
    assert read_layout(str(path)).statement(1) in (0, 1)


def test_installed_code_is_no_code_of_the_users() -> None:
    import argparse

    assert is_library(argparse.__file__)
    assert is_library("<string>")
    assert not is_library(str(Path.cwd() / "train.py"))


def test_lines_are_found_again_though_they_were_changed_and_indented() -> None:
    before = "a = 1\nloss.backward()\nprint('loss', loss)\nsave(a)\n"
    after = "import x\na = 1\naccelerator.backward(loss)\naccelerator.print('loss', loss)\nif main:\n    save(a)\n"
    lines = LineMap({Path("train.py"): (before, after)})
    assert [lines.original(("train.py", n)) for n in range(1, 7)] == [
        None, ("train.py", 1), ("train.py", 2), ("train.py", 3), None, ("train.py", 4),
    ]  # fmt: skip
    assert lines.converted(("train.py", 4)) == ("train.py", 6)
    assert lines.original(("other.py", 9)) == ("other.py", 9)
    assert lines.original(None) is None
