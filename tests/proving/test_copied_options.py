"""Copies of the dictionary of an object's attributes: what one process writes into them is nothing to the object."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import named

COPIED = """
class Config:
    epochs = 3

    def __init__(self):
        self.rank = dist.get_rank()


dist.init_process_group("gloo")
config = Config()
config.name = "first"
if config.rank == 0:
    shown = {copied}
    for key in shown.keys():
        shown[key] = str(shown[key])
model = DDP(torch.nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
sampler = DistributedSampler(data)
for epoch in range(config.epochs):
    sampler.set_epoch(epoch)
    for x, y in DataLoader(data, batch_size=4, sampler=sampler):
        opt.zero_grad()
        F.mse_loss(model(x), y).backward()
        opt.step()
"""


@pytest.mark.parametrize(
    ("copied", "codes"),
    [
        ("config.__dict__.copy()", []),
        ("vars(config).copy()", []),
        ("config.__dict__", ["ACC705", "ACC704"]),
    ],
)
def test_what_the_main_process_writes_into_a_copy_of_the_options(copied, codes, tmp_path):
    assert [code for code, _ in named(COPIED.replace("{copied}", copied), tmp_path)] == codes
