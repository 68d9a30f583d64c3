"""A loop over a loader that each epoch binds anew to a bar around itself: as with the bar by another name."""

from __future__ import annotations

import pytest

from accelify.knowledge import Knowledge
from accelify.obligations import Status, validate

KNOWLEDGE = Knowledge()
TEXT = """\
import pickle
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from tqdm import tqdm
class Rows(Dataset):
    def __len__(self):
        return 60
    def __getitem__(self, i):
        with open(f"{i}.pickle", "rb") as f:
            row = pickle.load(f)
        return row if row.sum() > 0 else row + 1
dist.init_process_group("gloo")
rank = dist.get_rank()
data = Rows()
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=4, sampler=sampler)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
bar = loader
for epoch in range(3):
    sampler.set_epoch(epoch)
    total = 0.0
    bar = tqdm(loader, disable=rank != 0)
    bar = tqdm(bar, disable=rank != 0)
    for x in bar:
        loss = model(x).mean()
        loss.backward()
        total += loss.item()
    if rank == 0:
        print(total / len(bar))
"""


@pytest.mark.parametrize("test", ["rank == 0", "False"])
def test_bar_around_itself(test: str) -> None:
    text = TEXT.replace("if rank == 0", f"if {test}")
    around_itself = text.replace("bar = tqdm(loader", "bar = tqdm(bar")
    found, plain = (validate(one, None, KNOWLEDGE, checks=True) for one in (around_itself, text))
    named, expected = (
        [(o.line, o.demand) for o in run.obligations if o.status is Status.NAMED] for run in (found, plain)
    )
    assert named == expected == ([(30, "content")] if test != "False" else [])
    assert not found.unread
    assert found.steps < 2 * plain.steps  # the passes over the data set do not multiply


def test_a_bar_that_is_started_runs_no_command() -> None:
    text = """\
import progressbar
from accelify.runtime import Accelerator
accelerator = Accelerator()
bar = progressbar.ProgressBar(max_value=3)
bar.start()
bar.finish()
"""
    found = validate(text, None, KNOWLEDGE).obligations
    assert {one.sink for one in found if one.demand == "once"} == {"bar.show"}
