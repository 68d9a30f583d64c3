"""The loop that took the last batch, from inside and from outside of it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from accelify.verify.observe.sites import Sites

SCRIPT = """\
def batches(count):
    for k in range(count):
        note()
        yield k
def evaluate():
    for x in taking(2):
        seen("evaluating")
    seen("evaluated")
for x in batches(1):
    seen("generated")
for x in taking(1):
    seen("training")
    evaluate()
    seen("after evaluation")
seen("after")
"""


def test_what_is_shown_after_an_evaluation_is_no_batchs(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    sites = Sites()
    found: dict[str, tuple[bool, bool]] = {}

    class Taking:
        def __init__(self, count: int) -> None:
            self.left = count

        def __iter__(self) -> Taking:
            return self

        def __next__(self) -> int:
            if not self.left:
                raise StopIteration
            self.left -= 1
            sites.note_batch()
            return self.left

    def seen(what: str) -> None:
        found[what] = sites.in_batch_loop(), sites.in_loader_loop()

    # This file is the user's too, as far as the sites can tell.
    sites._is_library[__file__] = True
    code = compile(SCRIPT, str(script), "exec")
    exec(code, {"seen": seen, "taking": Taking, "note": sites.note_batch})
    assert found == {
        "generated": (True, True),
        "training": (True, True),
        "evaluating": (True, True),
        "evaluated": (False, True),
        "after evaluation": (False, True),
        "after": (False, False),
    }


STARTER = """\
import threading
def work(seen):
    seen.append(starter())
def begin(seen):
    thread = threading.Thread(target=work, args=(seen,))
    thread.start()
    thread.join()
begin(seen)
"""


def test_a_thread_has_the_statement_that_started_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading.Thread, "start", threading.Thread.start)
    script = tmp_path / "script.py"
    script.write_text(STARTER)
    sites, seen = Sites(), list[object]()
    sites.install()
    exec(compile(STARTER, str(script), "exec"), {"seen": seen, "starter": sites.starter})
    assert seen == [(str(script), 6)]
    assert sites.starter() is None
