"""Small training scripts and, written by hand, what a converter should make of each."""

from __future__ import annotations

HEAD = """\
import torch
import torch.nn.functional as F
from torch import nn
torch.manual_seed(1)
"""
ACCELERATOR = """\
from accelify.runtime import Accelerator
accelerator = Accelerator(split_batches=True)
"""
DATA = """\
X = torch.randn(44, 5)
Y = X @ torch.randn(5, 1)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, Y), batch_size=11, shuffle=True)
"""
PREPARE = "model, opt, loader = accelerator.prepare(model, opt, loader)\n"
MLP = "nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1))"
SGD = "torch.optim.SGD(model.parameters(), lr=0.05)"
LOOP = """\
for epoch in range(10):
    for x, y in loader:
        opt.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        opt.step()
"""


def plain(model: str = MLP, optimizer: str = SGD, loop: str = LOOP) -> str:
    """A script for one process."""
    return f"{HEAD}{DATA}model = {model}\nopt = {optimizer}\n{loop}"


def converted(model: str = MLP, optimizer: str = SGD, loop: str = LOOP, prepare: str = PREPARE) -> str:
    """The same after conversion."""
    loop = loop.replace("loss.backward()", "accelerator.backward(loss)")
    return f"{HEAD}{ACCELERATOR}{DATA}model = {model}\nopt = {optimizer}\n{prepare}{loop}"


def pair(model: str = MLP, optimizer: str = SGD, loop: str = LOOP) -> tuple[str, str]:
    """Both."""
    return plain(model, optimizer, loop), converted(model, optimizer, loop)


DROPOUT = "nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.3), nn.Linear(8, 1))"
BATCH_NORM = "nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))"
LBFGS = "torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4)"
CLOSURE_LOOP = """\
for epoch in range(10):
    for x, y in loader:
        def closure():
            opt.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            return loss
        opt.step(closure)
"""
SUM_LOOP = LOOP.replace("F.mse_loss(model(x), y)", "F.mse_loss(model(x), y, reduction='sum')")
SMALL_SGD = SGD.replace("0.05", "0.002")
NOISE_LOOP = LOOP.replace("model(x)", "model(x + 0.1 * torch.randn_like(x))")
SCHEDULE = SGD + "\nschedule = torch.optim.lr_scheduler.StepLR(opt, 1, 0.5)"
SCHEDULE_LOOP = LOOP + "    schedule.step()\n"
SEVERAL_LOSSES_LOOP = LOOP.replace(
    "        loss.backward()\n", "        (loss / 2).backward(retain_graph=True)\n        loss.backward()\n"
)
WRITES_LOOP = (
    LOOP
    + """\
    torch.save(model.state_dict(), "existing.pt")
    open("log.txt", "a").write("epoch")
"""
)
