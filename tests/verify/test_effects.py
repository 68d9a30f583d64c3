"""Effects on the outside: done as often as in the original, by one rank, in an order that something guarantees."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from accelify.verify.compare import effects
from accelify.verify.lines import LineMap
from accelify.verify.nursery import Nursery
from accelify.verify.runs import Run

from .effect_scripts import FRESH, LOAD, LOG, MAIN, SAVE, WAIT, differences, pair, run_pair

pytestmark = pytest.mark.distributed
LATE = "import time; time.sleep(0.5) if accelerator.process_index else 0\n"
FRESH_BY_ONE = (
    "if accelerator.is_main_process:\n" + "".join(f"    {line}\n" for line in FRESH.splitlines()) + WAIT
)
APPEND = "open('log.txt', 'a').write('x')\n"
FOLDER = "if not os.path.exists('a'):\n    os.makedirs('a')\n"
URL = (
    "import urllib.request\n"
    "try: urllib.request.urlopen('http://localhost:9/x', timeout=1)\nexcept OSError: pass\n"
)
BY_PID = "open(f'log-{os.getpid()}.txt', 'w').write('x')\n"
TEMPORARY = "import tempfile\nd = tempfile.mkdtemp()\nopen(d + '/x', 'w').write('1')\n"
IMPORT = "import sched\n"
COUNT = "n = len(os.listdir('.'))\n"
GUARDED_FOLDER = (
    "if not os.path.exists('a'):\n    if accelerator.is_main_process:\n        os.makedirs('a')\n"
)


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (pair("", "", SAVE, SAVE), "weights.pt is written by ranks 0 and 1 (line 21), once in the original"),
        (pair("", "", APPEND), "log.txt is appended to by ranks 0 and 1"),
        (pair(LOG, LOG, "log.info('x')\n"), "run.log is appended to by ranks 0 and 1"),
        (pair("", "", BY_PID), "are written by ranks 0 and 1"),
        (pair("", "", "subprocess.run(['true'])\n"), "`true` is started by ranks 0 and 1 (line 21), once in"),
        (pair("", "", URL), "localhost:9 is connected to by ranks 0 and 1"),
        (pair("", "", SAVE, ""), "weights.pt is written by no rank, once in the original (line 18)"),
        (
            pair("", "", SAVE + LOAD, MAIN + SAVE + LATE + LOAD),
            "rank 1 reads weights.pt (line 24) while rank 0 may be writing it (line 22): nothing orders the two",
        ),
        (
            pair(FRESH, FRESH),
            "asks whether runs/latest exists (line 10) while rank",
        ),
        (pair(FOLDER, FOLDER), "asks whether a exists (line 9) while rank"),  # the one that comes later asks
        (
            pair(COUNT + "os.mkdir(f'run{n}')\n", COUNT + MAIN + "os.mkdir(f'run{n}')\n"),
            "rank 1 lists . (line 9) while rank 0 may be making run",
        ),
        (
            pair(
                "os.makedirs('a', exist_ok=True)\nopen('a/x', 'w').write('1')\n",
                MAIN + "os.makedirs('a', exist_ok=True)\nif accelerator.process_index == 1:\n"
                "    import time; time.sleep(0.5)\n    open('a/x', 'w').write('1')\n",
            ),
            "rank 1 writes a/x (line 13) while rank 0 may be making a (line 10)",
        ),
    ],
    ids=[
        "save", "append", "log", "name-by-pid", "program", "connection", "missing", "read-too-early",
        "folder-made-anew", "folder-asked-for", "numbered-by-listing", "in-a-folder-that-may-not-be-there",
    ],
)  # fmt: skip
def test_wrong(
    nursery: Nursery, tmp_path: Path, texts: tuple[str, str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    original, other, lines = run_pair(nursery, tmp_path, texts)
    found = differences(effects.compare(original, other, lines, exact=False))
    assert any(words in sentence for sentence in found), found


@pytest.mark.parametrize(
    "texts",
    [
        pair("", "", SAVE, MAIN + SAVE),
        pair("", "", SAVE, "accelerator.save({'a': 1}, 'weights.pt')\n"),
        pair("", "", SAVE + LOAD, MAIN + SAVE + WAIT + LOAD),
        pair(FRESH, FRESH_BY_ONE),
        pair("os.makedirs('a/b', exist_ok=True)\n", "os.makedirs('a/b', exist_ok=True)\n"),
        pair(FOLDER, GUARDED_FOLDER),
        pair(LOG, LOG, "log.info('x')\n", MAIN + "log.info('x')\n"),
        pair("", "", BY_PID, MAIN + BY_PID),
        pair(TEMPORARY, TEMPORARY),
        pair("os.mkdir('a')\n" + IMPORT, MAIN + "os.mkdir('a')\n" + LATE + IMPORT),
        pair(
            FOLDER + SAVE + LOAD,
            "with accelerator.main_process_first():\n"
            "    if accelerator.is_main_process and not os.path.exists('a'):\n        os.makedirs('a')\n"
            "    if not os.path.exists('weights.pt'):\n        torch.save({'a': 1}, 'weights.pt')\n" + LOAD,
        ),
    ],
    ids=[
        "save", "accelerator-save", "waited", "folder-made-anew", "folder-that-may-exist", "folder-by-one", "log",
        "name-by-pid", "temporary", "folder-listed-by-an-import", "main-process-first",
    ],
)  # fmt: skip
def test_right(nursery: Nursery, tmp_path: Path, texts: tuple[str, str]) -> None:
    original, other, lines = run_pair(nursery, tmp_path, texts)
    checks = effects.compare(original, other, lines, exact=False)
    assert not differences(checks)
    # Something was seen at all.
    assert checks or texts[0].count("tempfile") or "a/b" not in texts[0]


def test_one_process_keeps_the_order(nursery: Nursery, tmp_path: Path) -> None:
    first, second = "open('a', 'w').write('1')\n", "open('b', 'w').write('1')\n"
    original, other, lines = run_pair(nursery, tmp_path, pair("", "", first + second, second + first), 1)
    (sentence,) = differences(effects.compare(original, other, lines, exact=True))
    assert "b is written (line 21) where the original has a written (line 18)" in sentence.replace(
        f"{tmp_path}/", ""
    )
    original, other, lines = run_pair(nursery, tmp_path, pair("", "", first + second), 1)
    assert not differences(effects.compare(original, other, lines, exact=True))


def test_a_folder_that_has_the_number_of_a_process_in_its_name() -> None:
    def made_by(rank: int) -> Run:
        """A run in which this rank alone makes the folder; every rank is process 40 of its own namespace."""
        effect = {"kind": "mkdir", "path": "/runs40/out", "new": True, "site": None, "starter": None, "n": 0}
        ranks = [
            SimpleNamespace(events={"process": [{"pid": 40 + number}], "effect": [effect] * (number == rank)})
            for number in range(2)
        ]
        return cast(Run, SimpleNamespace(ranks=ranks[: rank + 1], processes=rank + 1, failure=""))

    checks = effects.compare(made_by(0), made_by(1), LineMap({}), exact=False)
    assert not differences(checks)
