"""Objects that NCCL hands round, which go by way of the GPU that is the process's by then."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import named

SENT = """
dist.init_process_group({joined})
rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
device = torch.device(f"cuda:{{local}}")
{chosen}
found = [os.path.exists("latest.pt") if rank == 0 else None]
{sent}
model = DDP(torch.nn.Linear(4, 1).to(device), device_ids=[local])
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    opt.zero_grad()
    model(torch.ones(2, 4, device=device)).mean().backward()
    opt.step()
"""
SENDING = [
    "dist.broadcast_object_list(found, src=0)",
    "every = [None] * dist.get_world_size()\ndist.all_gather_object(every, found)",
]


@pytest.mark.parametrize("sent", SENDING)
def test_all_use_the_first_gpu_where_nothing_chooses_another(sent, tmp_path):
    found = named(SENT.format(joined='backend="nccl"', chosen="", sent=sent), tmp_path)
    assert found == [("ACC714", sent.splitlines()[-1])]


@pytest.mark.parametrize("sent", SENDING)
@pytest.mark.parametrize(
    ("joined", "chosen"),
    [
        ('"nccl"', "torch.cuda.set_device(device)"),
        ('"gloo"', ""),
        ('"nccl", device_id=torch.device("cuda", int(os.environ["LOCAL_RANK"]))', ""),
    ],
)
def test_each_has_its_own_where_it_is_chosen_or_none_is_used(joined, chosen, sent, tmp_path):
    found = named(SENT.format(joined=joined, chosen=chosen, sent=sent), tmp_path)
    assert "ACC714" not in [code for code, _ in found]


STEPPED = """
import sys, yaml
from transformers import get_linear_schedule_with_warmup
config = yaml.safe_load(open(sys.argv[1]))
accelerator = Accelerator()
model = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(data, batch_size=4, shuffle=True)
sched = get_linear_schedule_with_warmup(opt, 10, {length})
model, opt, loader, sched = accelerator.prepare(model, opt, loader, sched)
step = 0
while step < {end}:
    for x, y in loader:
        accelerator.backward(F.mse_loss(model(x), y))
        opt.step()
        sched.step()
        opt.zero_grad()
        step += 1
        if step >= {end}:
            break
"""
STEPS = 'config["steps"]'


@pytest.mark.parametrize(
    ("length", "end"),
    [(f"int({STEPS})", STEPS), (STEPS, f"int({STEPS})"), (f"int({STEPS})", f"int({STEPS})")],
)
def test_a_number_of_own_steps_is_the_same_one_as_an_int(length, end, tmp_path):
    found = named(STEPPED.format(length=length, end=end), tmp_path, "accelerate")
    assert found == [("ACC706", "sched.step()")]


def test_one_of_all_processes_is_right(tmp_path):
    length = f"int({STEPS}) * accelerator.num_processes"
    text = STEPPED.replace("10", "10 * accelerator.num_processes").format(length=length, end=STEPS)
    assert named(text, tmp_path, "accelerate") == []
