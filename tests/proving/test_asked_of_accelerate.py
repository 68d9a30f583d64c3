"""What scripts ask of Accelerate's objects: its logger, its device, and its wrapper around a model."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import named

TRAINED = """
accelerator = Accelerator()
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.last = torch.nn.Linear(4, 1)
    def forward(self, x):
        return self.last(x)
{method}
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
net, opt, loader = accelerator.prepare(net, opt, DataLoader(data, batch_size=4, shuffle=True))
for x, y in loader:
    accelerator.backward(F.mse_loss(net(x), y))
    opt.step()
    opt.zero_grad()
"""
METHOD = """
    def save_checkpoint(self, folder):
        torch.save(self.last.state_dict(), folder)
"""
SAVED = 'net.save_checkpoint("out")'


@pytest.mark.parametrize("call", [SAVED, 'net.load_checkpoint("out")', 'net.save_16bit_model("out")'])
def test_what_deepspeed_has_is_called_by_every_process(call, tmp_path):
    trained = TRAINED.format(method="")
    assert named(f"{trained}{call}\n", tmp_path, "accelerate") == []
    alone = f"{trained}if accelerator.is_main_process:\n    {call}\n"
    assert named(alone, tmp_path, "accelerate") == [("ACC704", call)]


def test_a_method_of_the_model_is_not_deepspeed_s(tmp_path):
    found = named(f"{TRAINED.format(method=METHOD)}{SAVED}\n", tmp_path, "accelerate")
    assert ("ACC715", SAVED) in found
    assert "ACC702" in dict(found)


@pytest.mark.parametrize(("made", "is_main_only"), [("get_logger", True), ("logging.getLogger", False)])
def test_the_logger_s_old_word_for_a_warning(made, is_main_only, tmp_path):
    text = f"""
import logging
from accelerate.logging import get_logger
logger = {made}(__name__)
logging.basicConfig(level=logging.INFO)
{TRAINED.format(method="")}
logger.warn("done")
"""
    found = named(text, tmp_path, "accelerate")
    assert found == [] if is_main_only else found == [("ACC702", 'logger.warn("done")')]


@pytest.mark.parametrize(
    "test",
    [
        'device == torch.device("cuda:0")',
        'torch.device("cuda:0") == device',
        'accelerator.device == torch.device("cuda:0")',
        'not device != torch.device("cuda:0")',
    ],
)
def test_a_device_that_is_compared_asks_for_a_process(test, tmp_path):
    text = f"""
{TRAINED.format(method="")}
device = accelerator.device
if {test}:
    print("done")
"""
    assert named(text, tmp_path, "accelerate") == []


@pytest.mark.parametrize("test", ['device == torch.device("cpu")', 'device.type == "cuda"'])
def test_a_device_of_all_processes_asks_for_none(test, tmp_path):
    text = f"""
{TRAINED.format(method="")}
device = accelerator.device
if {test}:
    print("done")
x = torch.ones(2).to(torch.device("cuda:0"))
"""
    found = named(text, tmp_path, "accelerate")
    assert found == [("ACC702", 'print("done")'), ("ACC714", 'x = torch.ones(2).to(torch.device("cuda:0"))')]


@pytest.mark.parametrize("prepared", ["net", "opt", "loader", "net, opt, loader"])
def test_a_model_that_is_prepared_waits_for_all_processes(prepared, tmp_path):
    text = f"""
import os
accelerator = Accelerator()
if accelerator.is_main_process:
    os.makedirs("out", exist_ok=True)
net = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
loader = DataLoader(data, batch_size=4, shuffle=True)
{prepared} = accelerator.prepare({prepared})
names = os.listdir("out")
"""
    found = named(text, tmp_path, "accelerate")
    assert found == ([] if "net" in prepared else [("ACC709", 'names = os.listdir("out")')])


@pytest.mark.parametrize("wraps", [True, False])
def test_a_wrapper_waits_for_all_processes(wraps, tmp_path):
    text = f"""
dist.init_process_group("gloo")
if dist.get_rank() == 0:
    os.makedirs("out", exist_ok=True)
net = {"DDP(torch.nn.Linear(4, 1))" if wraps else "torch.nn.Linear(4, 1)"}
names = os.listdir("out")
"""
    assert named(text, tmp_path) == ([] if wraps else [("ACC709", 'names = os.listdir("out")')])


TRACKER = """
from accelerate.tracking import GeneralTracker, on_main_process
from torch.utils.tensorboard import SummaryWriter


class Curves(GeneralTracker):
    {once}
    def __init__(self):
        self.writer = SummaryWriter("runs")

    {once}
    def log(self, values):
        self.writer.add_scalar("x", 1.0, 1)


accelerator = Accelerator()
Curves().log({{}})
"""


@pytest.mark.parametrize(("once", "count"), [("@on_main_process", 0), ("", 2)])
def test_methods_of_a_tracker_that_the_main_process_alone_runs(once, count, tmp_path):
    assert len(named(TRACKER.format(once=once), tmp_path, "accelerate")) == count


CLIPPED = """
accelerator = Accelerator(mixed_precision="bf16")
model = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
model, opt, loader = accelerator.prepare(model, opt, DataLoader(data, batch_size=4))
for x, y in loader:
    opt.zero_grad()
    accelerator.backward(F.mse_loss(model(x), y))
    if {asks}:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
"""


@pytest.mark.parametrize(
    ("asks", "codes"), [('accelerator.distributed_type == "FSDP"', []), ("len(x) > 2", ["ACC712"])]
)
def test_a_clip_where_the_engine_is_asked_for_is_meant(asks, codes, tmp_path):
    assert [code for code, _ in named(CLIPPED.format(asks=asks), tmp_path, "accelerate")] == codes
