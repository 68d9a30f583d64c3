"""Schedules by the length of a data set of the project, however that asks for it."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import named

SCHEDULED = """
import h5py


class Rows(torch.utils.data.Dataset):
    def __init__(self, path):
        self.rows = {read}

    def __len__(self):
        return {length}

    def __getitem__(self, index):
        return self.rows["x"][index], self.rows["y"][index]


dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
data = Rows("rows.h5")
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
model = DDP(torch.nn.Linear(4, 1).cuda())
opt = torch.optim.SGD(model.parameters(), lr=0.1)
steps = {steps}
sched = torch.optim.lr_scheduler.{schedule}
for epoch in range(3):
    loader.sampler.set_epoch(epoch)
    for x, y in loader:
        opt.zero_grad()
        F.mse_loss(model(x.cuda()), y.cuda()).backward()
        opt.step()
        sched.step()
"""
READS = [
    ("h5py.File(path)", 'self.rows["x"].shape[0]'),
    ("torch.load(path, map_location='cpu')", 'len(self.rows["x"])'),
]
SCHEDULES = [
    "OneCycleLR(opt, 0.1, steps_per_epoch=steps, epochs=3)",
    "LambdaLR(opt, lambda step: max(0, 1 - step / (3 * steps)))",
]


@pytest.mark.parametrize(("read", "length"), READS)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("steps", ["len(data) // 4", "len(loader.dataset) // 4"])
def test_one_as_long_as_all_rows_ends_after_a_share_of_it(read, length, schedule, steps, tmp_path):
    text = SCHEDULED.format(read=read, length=length, schedule=schedule, steps=steps)
    assert named(text, tmp_path) == [("ACC706", "sched.step()")]


@pytest.mark.parametrize(("read", "length"), READS)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("steps", ["len(loader)", "len(data) // (4 * dist.get_world_size())"])
def test_one_as_long_as_a_share_is_right(read, length, schedule, steps, tmp_path):
    text = SCHEDULED.format(read=read, length=length, schedule=schedule, steps=steps)
    assert named(text, tmp_path) == []
