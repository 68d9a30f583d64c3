"""What is right in a process group is quiet, and its hazardous twin, which differs in a few words, is named."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import named

STARTED = """
import datetime
import random
import torch.multiprocessing as mp
from torch.utils.tensorboard import SummaryWriter


def work(rank, size, options):
    dist.init_process_group("gloo", rank=rank, world_size=size)
    {inside}
    model = DDP(torch.nn.Linear(4, 1))
    {shown}
    if rank == 0:
        writer = SummaryWriter(options["folder"])
    torch.save(torch.ones(rank + 1), os.path.join(options["folder"], f"{{rank}}.pt"))


if __name__ == "__main__":
    size = {size}
    options = {{"folder": {folder}, "seed": random.random()}}
    mp.spawn(work, args=(size, options), nprocs=size)
"""
CLOCK = "datetime.datetime.now().strftime('%H%M')"


@pytest.mark.parametrize(
    ("change", "codes"),
    [
        ({}, []),
        ({"folder": CLOCK}, []),
        (
            {
                "inside": f"options['folder'] = {CLOCK}",
                "shown": "os.makedirs(options['folder'], exist_ok=True)",
            },
            ["ACC703"],
        ),
        ({"shown": "print('ready')"}, ["ACC702"]),
        ({"shown": "print('ready')", "size": "1"}, []),
        ({"shown": "print('ready')", "size": "2"}, ["ACC702"]),
        ({"shown": "print('seed', options['seed']) if rank == 0 else None"}, []),  # all have this one
    ],
)
def test_what_one_process_hands_to_those_that_it_starts(change, codes, tmp_path):
    parts = {"size": "torch.cuda.device_count()", "folder": "'runs'", "inside": "pass", "shown": "pass"}
    found = named(STARTED.format(**(parts | change)), tmp_path)
    assert list(dict(found)) == codes


OPTIONS = """
import argparse
import yaml


def join(opt):
    dist.init_process_group("gloo")
    opt["rank"], opt["size"] = dist.get_rank(), dist.get_world_size()


def begin(number, size):
    dist.init_process_group("gloo", rank=number, world_size=size)


parser = argparse.ArgumentParser()
parser.add_argument("--number", type=int, default=0)
parser.add_argument("--size", type=int, default=1)
args = parser.parse_args()
{joined}
{shown}
model = DDP(torch.nn.Linear(4, 1))
"""
TABLE = 'opt = yaml.safe_load(open("options.yaml"))\njoin(opt)'


@pytest.mark.parametrize(
    ("joined", "shown", "is_right"),
    [
        (TABLE, 'if opt["rank"] == 0:\n    print("ready")', True),
        (TABLE, 'if opt["train"] == 0:\n    print("ready")', False),
        ("begin(args.number, args.size)", 'print(f"[{args.number}] ready")', True),
        ("begin(number=args.number, size=args.size)", 'print(f"[{args.number}] ready")', True),
        ("begin(args.number, args.size)", 'print(f"[{args.size}] ready")', False),
    ],
)
def test_what_a_function_makes_of_its_arguments_is_the_rank(joined, shown, is_right, tmp_path):
    assert (named(OPTIONS.format(joined=joined, shown=shown), tmp_path) == []) == is_right


DATA = """
class Rows(torch.utils.data.Dataset):
    def __init__(self, rows, rank, size):
        self.rank, share = rank, len(rows) // size
        self.rows = rows{taken}
        self.shown = 0

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, number):
        row = torch.tensor(self.rows[number])
        if {asks}:
            print("a sample", row)
        return row


dist.init_process_group("gloo")
loader = DataLoader(Rows([[1.0] * 4] * 64, dist.get_rank(), dist.get_world_size()), batch_size=4)
model = DDP(torch.nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for rows in loader:
    opt.zero_grad()
    model(rows).mean().backward()
    opt.step()
"""


@pytest.mark.parametrize(
    ("taken", "codes"), [("[rank * share : (rank + 1) * share]", []), ("[:share]", ["ACC705"])]
)
def test_a_data_set_that_takes_its_rows_by_the_rank(taken, codes, tmp_path):
    found = named(DATA.format(taken=taken, asks="number < 2 and self.rank == 0"), tmp_path)
    assert [code for code, _ in found] == codes


GATHERED = """
from tqdm import tqdm

dist.init_process_group("gloo")
rank = dist.get_rank()
model = DDP(torch.nn.Linear(4, 1))
loss = torch.ones(())
parts = [torch.zeros_like(loss) for _ in range(dist.get_world_size())]
{gathered}
if rank == 0:
    print({shown})
for step in tqdm(range(3){options}):
    pass
"""


@pytest.mark.parametrize(
    ("gathered", "shown", "options", "codes"),
    [
        ("dist.all_gather(parts, loss)", "[one.item() for one in parts]", ", position=rank", []),
        ("dist.all_gather(parts, loss)", "sum(one.item() for one in parts)", ", disable=rank > 0", []),
        ("dist.all_gather(parts, loss)", "1", ", position=1", ["ACC702"]),
        (
            "both = torch.zeros(dist.get_world_size())\ndist.all_gather_into_tensor(both, loss)",
            "both.item()",
            ", position=rank",
            ["ACC701"],
        ),
    ],
)
def test_elements_of_what_is_gathered_and_bars_by_the_rank(gathered, shown, options, codes, tmp_path):
    text = GATHERED.format(gathered=gathered, shown=shown, options=options)
    assert [code for code, _ in named(text, tmp_path)] == codes


FIRST = """
dist.init_process_group("gloo")
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=False))
model = DDP(torch.nn.Linear(4, 1))
with torch.no_grad():
    x, y = next(iter(loader))
    error = F.mse_loss(model(x), y)
{after}
if dist.get_rank() == 0:
    print({shown})
"""


@pytest.mark.parametrize(
    ("after", "shown", "is_right"),
    [
        ("", "x.shape", True),
        ("", "len(x)", True),
        ("dist.all_reduce(error, op=dist.ReduceOp.AVG)", "error.item()", True),
        ("", "error.item()", False),
    ],
)
def test_a_figure_of_one_batch_that_nothing_is_trained_with(after, shown, is_right, tmp_path):
    found = dict(named(FIRST.format(after=after, shown=shown), tmp_path))
    assert ("ACC701" not in found) == is_right


ENGINE = """
import deepspeed

deepspeed.init_distributed()
rank = dist.get_rank()
net = torch.nn.Linear(4, 1)
engine, opt, loader, _ = deepspeed.initialize(model=net, model_parameters=net.parameters(), training_data=data)
for x, y in loader:
    loss = F.mse_loss(engine(x), y)
    {trained}
{saved}
"""
STEPS = "engine.backward(loss)\n    engine.step()"


@pytest.mark.parametrize(
    ("trained", "saved", "codes"),
    [
        (STEPS, "engine.save_checkpoint('last')", []),
        (STEPS, "if rank == 0:\n    engine.save_checkpoint('last')", ["ACC704"]),
        (
            f"if loss.item() < 3:\n        {STEPS}".replace("\n    engine.s", "\n        engine.s"),
            "",
            ["ACC704"],
        ),
        (STEPS, "if rank == 0:\n    print(loss.item())", []),
        (STEPS, "print('saved')", ["ACC702"]),
    ],
)
def test_the_engine_of_deepspeed(trained, saved, codes, tmp_path):
    found = named(ENGINE.format(trained=trained, saved=saved), tmp_path)
    assert list(dict(found)) == codes


SHARDED = """
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

dist.init_process_group("gloo")
model = FSDP(torch.nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
{saved}
"""


@pytest.mark.parametrize(
    ("saved", "is_right"),
    [
        ("w = model.state_dict()\nif dist.get_rank() == 0:\n    torch.save(w, 'w.pt')", True),
        ("if dist.get_rank() == 0:\n    torch.save(model.state_dict(), 'w.pt')", False),
        ("w, o = get_state_dict(model, opt)\ndcp.save({'w': w, 'o': o}, checkpoint_id='last')", True),
        ("if dist.get_rank() == 0:\n    w, o = get_state_dict(model, opt)", False),
        ("if dist.get_rank() == 0:\n    dcp.save({'w': 1}, checkpoint_id='last')", False),
    ],
)
def test_weights_that_the_processes_put_together(saved, is_right, tmp_path):
    assert (named(SHARDED.format(saved=saved), tmp_path) == []) == is_right


SEEDED = """
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int{default})
args = parser.parse_args()


def seed(number):
    torch.manual_seed(number)


dist.init_process_group("gloo")
{seeded}
data, rest = torch.utils.data.random_split(data, [0.9, 0.1])
sampler = DistributedSampler(data, shuffle=False)
loader = DataLoader(data, batch_size=4, sampler=sampler)
model = DDP(torch.nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    opt.zero_grad()
    F.mse_loss(model(x), y).backward()
    opt.step()
"""


@pytest.mark.parametrize(
    ("default", "seeded", "is_right"),
    [
        ("", "seed(args.seed)", True),
        (", default=3", "if args.seed is not None:\n    seed(args.seed)", True),
        ("", "if args.seed is not None:\n    seed(args.seed)", False),
        (", default=None", "if args.seed:\n    torch.manual_seed(args.seed)", False),
    ],
)
def test_a_seed_that_is_set_where_one_is_given(default, seeded, is_right, tmp_path):
    found = dict(named(SEEDED.format(default=default, seeded=seeded), tmp_path))
    assert ("ACC705" not in found) == is_right


BY_HAND = """
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
tokens = torch.arange(1000.0)
torch.manual_seed({seed})


def batch(number):
    {drawn}
    return torch.stack([tokens[one : one + 4] for one in places])


model = DDP(torch.nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(100):
    model.eval()
    total = 0.0
    with torch.no_grad():
        for number in range(20):
            total += model(batch(number)).mean() / 20
    {reduced}
    if rank == 0:
        print(total.item())
    model.train()
    opt.zero_grad()
    model(batch(step)).mean().backward()
    opt.step()
"""
DRAW = "places = torch.randint(len(tokens) - 4, (8,))"
OWN = "places = [(number * size + rank) * 4]"


@pytest.mark.parametrize(
    ("seed", "drawn", "reduced", "codes"),
    [
        ("1 + rank", DRAW, "dist.all_reduce(total, op=dist.ReduceOp.AVG)", []),
        ("1", OWN, "dist.all_reduce(total, op=dist.ReduceOp.AVG)", []),
        ("1", OWN, "pass", ["ACC701"]),
    ],
)
def test_batches_that_a_script_cuts_by_hand(seed, drawn, reduced, codes, tmp_path):
    text = BY_HAND.format(seed=seed, drawn=drawn, reduced=reduced)
    assert list(dict(named(text, tmp_path))) == codes


COUNTED = """
from torchvision.models import resnet18

dist.init_process_group("gloo")
rank = dist.get_rank()
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=False))
model = DDP({model})
count = torch.zeros(1)
for x, y in loader:
    count += len(x)
dist.all_reduce(count)
{after}
if rank == 0:
    print(count.item())
"""


@pytest.mark.parametrize(
    ("model", "after", "codes"),
    [
        ("resnet18()", "", []),
        ("resnet18()", "dist.all_reduce(count)", ["ACC713"]),
        ("resnet18()", "if rank == 0:\n    with torch.no_grad(): model(x)", ["ACC704"]),
        ("resnet18()", "if rank == 0:\n    with torch.no_grad(): model.module(x)", []),
        ("torch.nn.Linear(4, 1)", "if rank == 0:\n    with torch.no_grad(): model(x)", []),
        ("torch.nn.InstanceNorm1d(4)", "if rank == 0:\n    with torch.no_grad(): model(x)", []),
        (
            "torch.nn.Sequential(*torch.nn.ModuleList([torch.nn.Linear(4, 1)]))",
            "if rank == 0:\n    with torch.no_grad(): model(x)",
            [],
        ),
        ("torch.nn.Linear(4, 1)", "if rank == 0:\n    model(x)", ["ACC704"]),
        (
            "torch.nn.Linear(4, 1)",
            "for x, y in loader:\n    model(x).mean().backward()\nif rank == 0:\n    model(x)",
            [],
        ),
        (
            "torch.nn.InstanceNorm1d(4, track_running_stats=True)",
            "if rank == 0:\n    with torch.no_grad(): model(x)",
            ["ACC704"],
        ),
        ("torch.nn.BatchNorm1d(4)", "if rank == 0:\n    with torch.no_grad(): model(x)", ["ACC704"]),
    ],
)
def test_what_is_reduced_twice_and_what_waits_for_buffers(model, after, codes, tmp_path):
    assert list(dict(named(COUNTED.format(model=model, after=after), tmp_path))) == codes


NOISE = """
from torchvision.utils import save_image

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
model = DDP(torch.nn.Linear(4, 1))
noise = torch.randn(8, 4)
rows = torch.ones(64, 4)[rank::2]
if rank == 0:
    save_image(model.module({shown}), "shown.png")
"""


@pytest.mark.parametrize(("shown", "is_right"), [("noise", True), ("rows", False)])
def test_pictures_of_noise_of_the_main_process(shown, is_right, tmp_path):
    assert (named(NOISE.format(shown=shown), tmp_path) == []) == is_right


JUDGE = """
from judges import load
judge = load("one")
for x, y in loader:
    judge.update(x, y)
"""


def test_the_name_of_a_class_is_no_figure(tmp_path):
    text = FIRST.format(after=JUDGE, shown="{}")
    assert named(text.format("judge.__class__.__name__"), tmp_path) == []
    assert dict(named(text.format("judge.value"), tmp_path)).keys() == {"ACC701"}


COUNTERS = """
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
at = {made}
parts = [torch.ones(8, 4) for _ in range(64)]
model = DDP(torch.nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
while at[rank] < 8:
    opt.zero_grad()
    model(parts[at[rank] * size + rank]).mean().backward()
    opt.step()
    at[rank] += {more}
"""


@pytest.mark.parametrize(
    ("made", "more", "is_right"),
    [
        ("[0 for _ in range(size)]", "1", True),
        ("[3 * number for number in range(size)]", "1", False),
        ("[0 for _ in range(size)]", "rank + 1", False),
    ],
)
def test_a_counter_of_each_rank(made, more, is_right, tmp_path):
    found = dict(named(COUNTERS.format(made=made, more=more), tmp_path))
    assert ("ACC704" not in found) == is_right


SAVED = """
class Rows(torch.utils.data.Dataset):
    def __init__(self, rows):
        self.rows = rows[dist.get_rank() :: 2]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, number):
        return self.rows[number]


dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(4, 1))
total = 0.0
for rows in DataLoader(Rows(torch.ones(64, 4)), batch_size=4):
    total += model(rows).mean().item()
if {asks}:
    torch.save(model.module.state_dict(), "best.pt")
"""


@pytest.mark.parametrize(("asks", "is_right"), [("dist.get_rank() == 0", True), ("total < 3", False)])
def test_a_figure_of_a_share_parts_no_work(asks, is_right, tmp_path):
    assert ("ACC702" not in dict(named(SAVED.format(asks=asks), tmp_path))) == is_right
