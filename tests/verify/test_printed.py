"""Lines as real runs print them: whole, once each, with the statement that printed them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from accelify.verify.compare.figures import compare
from accelify.verify.compare.verdict import Check, Verdict
from accelify.verify.lines import LineMap
from accelify.verify.nursery import Nursery
from accelify.verify.runs import Job, Run, execute

from . import scripts

pytestmark = pytest.mark.distributed


def executed(nursery: Nursery, folder: Path, text: str, **options: Any) -> Run:
    """A run of `text` whose places are in a file named train.py, wherever it ran."""
    script = folder / "train.py"
    script.write_text(text)
    run = execute(Job(script, steps=9, **options), nursery)
    for rank in run.ranks:
        for events in rank.events.values():
            for event in events:
                if event.get("site"):
                    event["site"][0] = "train.py"
    return run


def printed(run: Run, rank: int = 0) -> list[tuple[str, int]]:
    events = run.ranks[rank].events.get("line", [])
    return [(event["text"], event["site"][1] if event["site"] else 0) for event in events]


def compared(before: str, after: str, mine: Run, other: Run, exact: bool) -> dict[int, Check]:
    lines = LineMap({Path("train.py"): (before, after)})
    return {check.original[1]: check for check in compare(mine, other, lines, exact) if check.original}


@pytest.fixture(scope="module")
def talking(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return executed(nursery, tmp_path_factory.mktemp("talking"), TALKING)


TALKING = """\
import logging, os, subprocess, sys, time, warnings
from tqdm import tqdm
print("a", 1, sep="-")
print("b", end=" ")
print("c")
sys.stdout.write("one\\ntwo\\n")
sys.stderr.write("to stderr\\n")
logging.basicConfig(format="%(asctime)s %(lineno)d %(message)s")
logging.warning("logged %s", 3)
warnings.warn("careful")
for k in tqdm(range(3)):
    pass
tqdm.write("beside the bar")
for k in range(2):
    print(f"\\rdrawn {k}", end="")
print()
class Tee:
    def __init__(self, stream):
        self.stream = stream
    def write(self, text):
        self.stream.write(text)
    def flush(self):
        self.stream.flush()
sys.stdout = Tee(sys.stdout)
print(
    "through",
    "a tee",
)
sys.stdout = sys.__stdout__
sys.stdout.buffer.write(b"bytes\\n")
os.write(1, b"by descriptor\\n")
def helper(text):
    print(text)
helper("helped")
start = time.time()
print("took %.3f s of %s" % (time.time() - start, 5))
print(f"took {time.time() - start:.1e} s")
print("unended", end="")
"""


def test_every_line_has_its_statement(talking: Run) -> None:
    assert talking.failure is None, talking.failure
    lines = printed(talking)
    expected = [
        ("a-1", 3), ("b c", 4), ("one", 6), ("two", 6), ("to stderr", 7), ("UserWarning: careful", 10),
        ("beside the bar", 13), ("drawn 0", 15), ("drawn 1", 15), ("through a tee", 25), ("bytes", 30),
        ("by descriptor", 31), ("helped", 33), ("unended", 38),
    ]  # fmt: skip
    assert [line for line in lines if line in expected] == expected
    rest = [line for line in lines if line not in expected]
    assert [at for _, at in rest] == [9, 36, 37]
    assert rest[0][0].endswith("logged 3")


def test_what_a_clock_shows_is_marked(talking: Run) -> None:
    lines = {event["site"][1]: event for event in talking.ranks[0].events["line"] if event["site"]}
    for number in (9, 36, 37):
        event = lines[number]
        marked = [event["text"][start:end] for start, end in event["times"]]
        assert marked, event
    assert [lines[36]["text"][start:end] for start, end in lines[36]["times"]] == [
        lines[36]["text"].split()[1]
    ]
    assert "times" not in lines[3]


OTHERS = (
    'import subprocess, sys\nprint("mine")\nsubprocess.run([sys.executable, "-c", "print(\'theirs\')"])\n'
)


def test_what_another_process_writes_is_found_at_the_end(nursery: Nursery, tmp_path: Path) -> None:
    assert printed(executed(nursery, tmp_path, OTHERS)) == [("mine", 2), ("theirs", 0)]


PRINTS = scripts.LOOP.replace("range(10)", "range(1)") + (
    "for x, y in loader:\n    total = F.mse_loss(model(x[-2:]), y[-2:]).item()\nprint(f'sum {total:.6f}')\n"
    "print('weights', sum(p.abs().sum().item() for p in model.parameters()))\n"
)


def test_one_process_prints_the_same_and_two_what_is_wrong(nursery: Nursery, tmp_path: Path) -> None:
    before = scripts.plain(loop=PRINTS)
    wrong = scripts.converted(loop=PRINTS).replace("print(f", "if accelerator.is_main_process:\n    print(f")
    mine = executed(nursery, tmp_path, before)
    one = executed(nursery, tmp_path, wrong, converted=True)
    two = executed(nursery, tmp_path, wrong, converted=True, processes=2)
    assert two.failure is None, two.failure
    assert {check.verdict for check in compared(before, wrong, mine, one, True).values()} == {Verdict.EQUAL}
    figure, weights = sorted(compared(before, wrong, mine, two, False).items())
    assert figure[1].verdict is Verdict.DIFFERENT
    assert figure[1].sentence.startswith('printed "sum ')
    assert weights[1].sentence.startswith("printed 2 times (by ranks 0 and 1), once in the original")


def test_what_silent_ranks_would_print_is_known(nursery: Nursery, tmp_path: Path) -> None:
    after = scripts.converted(loop=PRINTS).replace("print(", "accelerator.print(")
    run = executed(nursery, tmp_path, after, converted=True, processes=2)
    assert len(printed(run)) == 2
    assert printed(run, 1) == []
    would = run.ranks[1].events["would_print"]
    assert [event["text"].split()[0] for event in would] == ["sum", "weights"]
    assert would[1]["text"] == printed(run)[1][0]


def test_empty_lines_that_the_runtime_prints_are_the_scripts(nursery: Nursery, tmp_path: Path) -> None:
    text = scripts.converted(loop="accelerator.print('\\nfirst\\n\\nsecond\\n')\n")
    run = executed(nursery, tmp_path, text, converted=True, processes=2)
    lines = ["", "first", "", "second", ""]
    assert [line for line, _ in printed(run)] == lines
    assert [event["text"] for event in run.ranks[1].events["would_print"]] == lines


def test_warnings_of_torchs_own_code_are_no_lines_of_the_scripts(nursery: Nursery, tmp_path: Path) -> None:
    text = "import torch\ntorch.eye(2).to_sparse_csr()\nimport warnings\nwarnings.warn('careful')\n"
    run = executed(nursery, tmp_path, text)
    assert "Triggered internally" in run.output
    assert printed(run) == [("UserWarning: careful", 4)]
