"""Figures that real runs log: each with its tag, step and statement, and once whichever way a library takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from accelify.verify.compare.eventfiles import read_events
from accelify.verify.nursery import Nursery
from accelify.verify.runs import Run

from . import scripts
from .test_printed import executed

pytestmark = pytest.mark.distributed

TRACKER = """\
class Run:
    def log(self, data, step=None):
        pass
def log(data, step=None):
    raise RuntimeError("before init")
def init(**settings):
    global log
    run = Run()
    log = run.log
    return run
"""
LOGGING = """\
import csv, json, logging, time
import torch
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm
import wandb
board = SummaryWriter("board")
board.add_scalar("loss", torch.tensor(0.5), 3)
board.add_scalars("both", {"a": 1.5, "b": 2}, global_step=4)
wandb.init(project="p")
wandb.log({"acc": 0.75, "deep": {"x": 1}}, step=7)
with open("rows.csv", "w", newline="") as file:
    rows = csv.DictWriter(file, ["epoch", "loss"])
    rows.writeheader()
    rows.writerow({"epoch": 1, "loss": 0.25})
    csv.writer(file).writerows([[1, 2], [3, 4]])
with open("out.json", "w") as file:
    json.dump({"best": 0.5, "history": [1.0, 2.0], "at": time.time()}, file)
logger = logging.getLogger("mine")
logger.addHandler(logging.FileHandler("log.txt"))
logger.warning("value %d", 5)
bar = tqdm(range(3), desc="epoch")
for k in bar:
    bar.set_postfix(loss=k / 2)
for k in tqdm(range(2), disable=True) as silent if False else tqdm(range(2), desc="two"):
    pass
silent = tqdm(range(3), disable=True)
silent.set_postfix(loss=0.125)
print(open("rows.csv").read().split())
print(json.load(open("out.json"))["best"])
samples = tqdm(total=4, desc="samples")
for batch in torch.utils.data.DataLoader(torch.ones(4), batch_size=2):
    samples.update(1)
samples.close()
""".replace("tqdm(range(2), disable=True) as silent if False else ", "")


@pytest.fixture(scope="module")
def logged(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("logging")
    (folder / "wandb.py").write_text(TRACKER)
    return executed(nursery, folder, LOGGING)


def scalars(run: Run, kind: str = "scalar", rank: int = 0) -> list[tuple[int, str, str, str]]:
    events = run.ranks[rank].events.get(kind, [])
    return [(event["site"][1], event["tag"], event["text"], event.get("at", "")) for event in events]


def test_each_figure_once_with_tag_step_and_statement(logged: Run) -> None:
    assert logged.failure is None, logged.failure
    found = scalars(logged)
    assert found[:11] == [
        (7, "loss", "0.5", "3"),
        (8, "both.a", "1.5", "4"),
        (8, "both.b", "2", "4"),
        (10, "acc", "0.75", "7"),
        (10, "deep.x", "1", "7"),
        (13, "row", "epoch,loss", ""),
        (14, "row", "1,0.25", ""),
        (15, "row", "1,2", ""),
        (15, "row", "3,4", ""),
        (17, "best", "0.5", ""),
        (17, "history", "[1.0, 2.0]", ""),
    ]
    assert found[12:] == [(20, "mine", "value 5", ""), *((23, "loss", str(k / 2), "") for k in range(3))]


NOWHERE = """\
import csv, json, logging, os
with open(os.devnull, "w") as file:
    csv.writer(file).writerow([1, 2])
    json.dump({"a": 3}, file)
logger = logging.getLogger("mine")
logger.addHandler(logging.FileHandler(os.devnull))
logger.warning("4")
"""


def test_what_is_written_nowhere_is_not_logged(nursery: Nursery, tmp_path: Path) -> None:
    run = executed(nursery, tmp_path, NOWHERE)
    assert scalars(run) == []
    assert [text for _, _, text, _ in scalars(run, "would_log")] == ["1,2", "3", "4"]


def test_a_time_in_a_document_is_marked(logged: Run) -> None:
    (event,) = [event for event in logged.ranks[0].events["scalar"] if event["tag"] == "at"]
    assert event["times"] == [[0, len(event["text"])]]
    assert [one for one in logged.ranks[0].events["scalar"] if one.get("times")] == [event]


def test_bars_are_known_by_what_they_came_to(logged: Run) -> None:
    bars = [(event["site"][1], event["text"]) for event in logged.ranks[0].events["bar"]]
    assert bars == [(21, "epoch 3/3"), (24, "two 2/2"), (30, "samples of 4")]
    assert [event["loop"] for event in logged.ranks[0].events["bar"]] == [False, False, True]
    assert scalars(logged, "would_log") == [(27, "loss", "0.125", "")]


def test_what_is_written_stays_the_same(logged: Run) -> None:
    lines = [event["text"] for event in logged.ranks[0].events["line"]]
    assert lines == ["['epoch,loss', '1,0.25', '1,2', '3,4']", "0.5"]


TRACKED = """\
accelerator = Accelerator(split_batches=True, log_with=Mine())
accelerator.init_trackers("run")
"""
MINE = """\
from accelify.runtime.tracking import GeneralTracker
class Mine(GeneralTracker):
    name, requires_logging_directory = "mine", False
    def store_init_configuration(self, values):
        pass
    def log(self, values, step=None, **kwargs):
        print(step, sorted(values))
"""


def test_every_rank_evaluates_what_the_runtime_logs(nursery: Nursery, tmp_path: Path) -> None:
    text = scripts.converted(loop=scripts.LOOP + '    accelerator.log({"loss": loss}, step=epoch)\n')
    text = MINE + text.replace("accelerator = Accelerator(split_batches=True)\n", TRACKED)
    run = executed(nursery, tmp_path, text, converted=True, processes=2)
    assert run.failure is None, run.failure
    values: list[Any] = [scalars(run, "would_log", rank) for rank in (0, 1)]
    assert [[(tag, at) for _, tag, _, at in found] for found in values] == 2 * [
        [("loss", "0"), ("loss", "1")]
    ]
    assert all(json.loads(first[2]) != json.loads(second[2]) for first, second in zip(*values, strict=True))


SLOW = """\
import threading
from tensorboard.summary.writer.record_writer import RecordWriter
write = RecordWriter.write
RecordWriter.write = lambda *arguments: (threading.Event().wait(0.1), write(*arguments))
"""


def test_an_event_file_has_what_was_written_until_the_run_was_cut_short(
    nursery: Nursery, tmp_path: Path
) -> None:
    """A writer's thread may not have come to it yet."""
    pytest.importorskip("tensorboard")
    begun = f"{SLOW}from torch.utils.tensorboard import SummaryWriter\nboard = SummaryWriter('runs')\n"
    loop = scripts.LOOP.replace("for epoch", begun + "for epoch", 1)
    loop = loop.replace(
        "        opt.step()\n", "        board.add_scalar('loss', loss, epoch)\n        opt.step()\n"
    )
    run = executed(nursery, tmp_path, scripts.plain(loop=loop))
    (file,) = [one.content for one in run.changes if one.kind == "file" and one.content is not None]
    assert len(read_events(file.read_bytes())["loss"]) == 9
