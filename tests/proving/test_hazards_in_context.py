"""Hazards that other places of a script show: each small program in its line, and its right neighbour quiet."""

from __future__ import annotations

from textwrap import dedent, indent

import pytest

from accelify.conversion import ConvertOptions
from accelify.convert import convert_project
from accelify.project import Imports
from accelify.proving import checked
from accelify.source import Source

HEAD = {
    "accelerate": """\
import copy, os, random
import numpy as np
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.ones(60, 4), torch.ones(60, 1))
""",
    "torch": """\
import os, random
import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
rank = dist.get_rank()
data = TensorDataset(torch.ones(60, 4), torch.ones(60, 1))
""",
}
SETUP = {
    "accelerate": """\
accelerator = Accelerator()
net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
train = DataLoader(data, batch_size=4)
net, optimizer, train = accelerator.prepare(net, optimizer, train)
backward = accelerator.backward
""",
    "torch": """\
net = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
train = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=False))
backward = lambda loss: loss.backward()
""",
}
TRAIN = """\
for x, y in train:
    loss = F.mse_loss(net(x), y)
    optimizer.zero_grad()
    backward(loss)
    optimizer.step()
"""
NOISE = TRAIN.replace("net(x)", "net(x + torch.randn_like(x))")
SIZED_NOISE = TRAIN.replace("net(x)", "net(x + torch.randn(x.shape))")
COPIES = """\
right = torch.zeros(1)
for x, y in DataLoader(data, batch_size=4):
    right += (net(x) > 0).sum()
"""
ALIKE = "assert 60 % dist.get_world_size() == 0\nassert not dist.get_world_size() % 2\n"
ENDS = "    if os.path.exists({}):\n        {}\n"
RETURNS = ENDS.format('"STOP"', "return")
FIRST = "device = torch.device('cuda:0' if torch.cuda.is_available() else 'cpu')\n"
BOTH, HF, TORCH = ("accelerate", "torch"), ("accelerate",), ("torch",)


def findings(text, tmp_path):
    path = tmp_path / "train.py"
    path.write_text(text)
    return checked(convert_project(Source.read(path), ConvertOptions(), Imports())[0])


def cases(*rows):
    return [
        pytest.param(form, dedent(ahead), dedent(body), marked, id=f"{name}-{form}")
        for name, forms, ahead, body, marked in rows
        for form in forms
    ]


XLA = "import torch_xla\n"
COLLATE = """\
def collate(rows):
    return tokenizer(rows, return_tensors="pt"{})
from texts import tokenizer, rows
loader = DataLoader(rows, batch_size=4, collate_fn=collate)
"""
COLLATOR = """\
from texts import tokenizer, rows
from transformers import DataCollatorForSeq2Seq
collate = DataCollatorForSeq2Seq(tokenizer{})
loader = DataLoader(rows, batch_size=4, collate_fn=collate)
"""
WRONG = cases(
    (
        "a number in each step on a TPU",
        HF,
        XLA + "total = 0.0\n",
        TRAIN + "    total += loss.item()\n",
        "item()",
    ),
    (
        "a number of all processes in each step on a TPU",
        HF,
        XLA,
        TRAIN + "    mean = accelerator.gather(loss.repeat(4)).mean().item()\n",
        "item()",
    ),
    ("another number in each step on a TPU", HF, XLA, TRAIN + "    more = float(loss)\n", "float(loss)"),
    (
        "a backward by its function",
        HF,
        "",
        TRAIN.replace("backward(loss)", "torch.autograd.backward(loss)"),
        "autograd",
    ),
    (
        "rows that are chosen by what is true of them on a TPU",
        HF,
        XLA,
        TRAIN.replace("    loss", "    hard = net(x) > 0.9\n    loss").replace(
            "(net(x), y)", "(net(x)[hard], y[hard])"
        ),
        "y[hard]",
    ),
    ("batches of many lengths on a TPU", HF, XLA + COLLATE.format(", padding=True"), TRAIN, "collate_fn="),
    (
        "batches of many lengths by a library on a TPU",
        HF,
        XLA + COLLATOR.format(", padding='longest'"),
        TRAIN,
        "collate_fn=",
    ),
    (
        "a model that is moved with its optimizer on a TPU",
        HF,
        XLA
        + "first = torch.nn.Linear(4, 1)\nAdam = torch.optim.Adam(first.parameters())\nfirst.cpu().to('xla')\n",
        TRAIN,
        "first.cpu()",
    ),
    (
        "forward under a draw",
        BOTH,
        "",
        """\
        for x, y in train:
            more = 0.0
            if random.random() < 0.5:
                more = net(x).detach()
            loss = F.mse_loss(net(x) + more, y)
            backward(loss)
            optimizer.step()
        """,
        "more = net(x)",
    ),
    (
        "an evaluation within the steps",
        BOTH,
        "",
        """\
        val = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=False)) if 0 else train
        for step in range(20):
            loss = F.mse_loss(net(torch.ones(4, 4)), torch.ones(4, 1))
            backward(loss)
            optimizer.step()
            if step % 5 == 4:
                losses = []
                for x, y in val:
                    losses.append(F.mse_loss(net(x), y).item())
                if int(os.environ["RANK"]) == 0:
                    print(np.mean(losses))
        """,
        "print(np.mean",
    ),
    (
        "a total that the first round begins",
        BOTH,
        "",
        """\
        total = 0.0
        for i, (x, y) in enumerate(train):
            loss = F.mse_loss(net(x), y)
            backward(loss)
            optimizer.step()
            total = total + loss.item() if i else loss.item()
        if int(os.environ["RANK"]) == 0:
            print(total / len(train))
        """,
        "print(total",
    ),
    ("noise alike", HF, "set_seed(1)\n", NOISE, "randn_like"),
    (
        "noise alike",
        TORCH,
        "torch.manual_seed(1)\n",
        SIZED_NOISE,
        "randn(x.shape)",
    ),
    (
        "noise alike for what a library makes of the batch",
        HF,
        "from diffusers import AutoencoderKL\nset_seed(1)\n",
        """\
        encoder = AutoencoderKL.from_pretrained("name")
        for x, y in train:
            hidden = encoder.encode(x).latent_dist.sample()
            noise = torch.randn_like(hidden)
            loss = F.mse_loss(net(hidden + noise), noise)
            backward(loss)
            optimizer.step()
        """,
        "randn_like(hidden)",
    ),
    (
        "rows in another order",
        BOTH,
        """\
        data = list(range(60))
        random.shuffle(data)
        """,
        TRAIN,
        "random.shuffle(data)",
    ),
    (
        "rows in another order, of which a function makes more",
        BOTH,
        """\
        from torchvision import transforms
        data = list(range(60))
        random.shuffle(data)
        data = [data[number] for number in torch.randperm(60, generator=torch.Generator().manual_seed(0))]
        change = transforms.Compose([transforms.ToTensor()])
        data = [change(one) for one in data]
        """,
        TRAIN,
        "random.shuffle(data)",
    ),
    (
        "rows in another order, where another stream is seeded",
        BOTH,
        "torch.manual_seed(1)\ndata = [data[n] for n in np.random.permutation(60)]\n",
        TRAIN,
        "permutation",
    ),
    (
        "a metric of one share",
        HF,
        "import evaluate\n",
        """\
        metric = evaluate.load("accuracy")
        for x, y in train:
            metric.add_batch(predictions=net(x), references=y)
        accelerator.print(metric.compute())
        """,
        "accelerator.print",
    ),
    (
        "copies gathered",
        HF,
        "",
        """\
        for x, y in DataLoader(data, batch_size=4):
            out = accelerator.gather(net(x))
        """,
        "accelerator.gather",
    ),
    (
        "copies summed",
        HF,
        "",
        COPIES + "right = accelerator.reduce(right)\naccelerator.print(right.item())\n",
        "print(r",
    ),
    (
        "copies summed",
        TORCH,
        "",
        COPIES + "dist.all_reduce(right)\nif rank == 0:\n    print(right.item())\n",
        "print(r",
    ),
    (
        "the optimizer of a copy",
        HF,
        "",
        "other = copy.deepcopy(accelerator.unwrap_model(net))\n"
        "optimizer = accelerator.prepare(torch.optim.SGD(other.parameters(), 1))\n" + TRAIN,
        "optimizer.step",
    ),
    (
        "past the wrapper by a cast",
        HF,
        "from typing import Any, cast\n",
        """\
        def call(model, x):
            return cast(Any, model)(x)

        for x, y in train:
            loss = F.mse_loss(call(accelerator.unwrap_model(net), x), y)
            backward(loss)
            optimizer.step()
        """,
        "cast(Any, model)(x)",
    ),
    (
        "past the wrapper by a method",
        HF,
        """\
        class Net(torch.nn.Linear):
            def encode(self, x):
                return self(x)
        """,
        """\
        net = accelerator.prepare(Net(4, 1))
        for x, y in train:
            loss = F.mse_loss(accelerator.unwrap_model(net).encode(x), y)
            backward(loss)
            optimizer.step()
        """,
        ".encode(x)",
    ),
    (
        "a length of before prepare",
        HF,
        "count = len(DataLoader(data, batch_size=4))\n",
        """\
        for i, (x, y) in enumerate(train):
            backward(F.mse_loss(net(x), y))
            if i + 1 == count:
                optimizer.step()
        """,
        "i + 1 == count",
    ),
    (
        "a length divided again",
        HF,
        "",
        "s = torch.optim.lr_scheduler.LinearLR(optimizer, 1, 0, len(train) // accelerator.num_processes)\n"
        + TRAIN,
        "LinearLR",
    ),
    (
        "a prepared schedule as long as one share",
        HF,
        "",
        "s = accelerator.prepare(torch.optim.lr_scheduler.LinearLR(optimizer, 1, 0, len(train)))\n"
        + TRAIN
        + "    s.step()\n",
        "s.step()",
    ),
    (
        "a loss of batches of which nothing is known",
        BOTH,
        "from project import loader_of\n",
        """\
        for batch in loader_of("train"):
            loss = net(batch).mean()
            if torch.isnan(loss):
                continue
            backward(loss)
            optimizer.step()
        """,
        "backward",
    ),
    (
        "prefixed weights of a model of which nothing is known",
        TORCH,
        "from project import build\n",
        """\
        net = DDP(build("large"))
        if rank == 0:
            torch.save(net.state_dict(), "net.pt")
        """,
        "net.state_dict()",
    ),
    ("on the device too early", HF, "torch.nn.Linear(2, 2).to('cuda')\n", TRAIN, ".to('cuda')"),
    (
        "a file emptied by all",
        TORCH,
        "",
        """\
        open("log.txt", "w").close()
        if rank == 0:
            with open("log.txt", "a") as file:
                file.write("x")
        """,
        '"w").close()',
    ),
    ("what comes after a remainder by the processes", TORCH, ALIKE, 'print("x")\n', "print"),
    (
        "an error that is passed over",
        HF,
        "from contextlib import suppress\n",
        """\
        for x, y in train:
            with torch.autocast("cpu"), suppress(RuntimeError):
                backward(F.mse_loss(net(x), y))
            optimizer.step()
        """,
        "backward",
    ),
    (
        "an error in rounds that are drawn by hand",
        HF,
        "",
        """\
        rounds = iter(train)
        for _ in range(9):
            x, y = next(rounds)
            try:
                backward(F.mse_loss(net(x), y))
            except RuntimeError:
                pass
        """,
        "backward",
    ),
    (
        "passes alike",
        TORCH,
        "train = DataLoader(data, sampler=DistributedSampler(data))\n",
        f"for _ in range(9):\n{indent(TRAIN, '    ')}",
        "DistributedSampler(data))",
    ),
    ("a file that ends the rounds", BOTH, "", TRAIN + ENDS.format('"STOP"', "break"), "exists"),
    (
        "a file that ends a function",
        BOTH,
        "",
        f"def run():\n{indent(TRAIN + RETURNS, '    ')}run()\n",
        "exists",
    ),
    (
        "a file that ends all",
        BOTH,
        "",
        f"while not os.path.exists('STOP'):\n{indent(TRAIN, '    ')}",
        "exists",
    ),
    ("a model on the first GPU", HF, "", "net.to(0)\n", ".to(0)"),
    (
        "numbers of which the loss is not known to come",
        BOTH,
        "torch.manual_seed(1)\nfrom losses import Loss\n",
        NOISE.replace("F.mse_loss", "Loss()"),
        "randn_like",
    ),
    (
        "sums in another order",
        TORCH,
        "",
        """\
        one, two = torch.ones(1), torch.ones(1)
        if rank == 0:
            dist.all_reduce(one)
            dist.all_reduce(two)
        else:
            dist.all_reduce(two)
            dist.all_reduce(one)
        """,
        "dist.all_reduce(one)",
    ),
    ("the first GPU where there is one", BOTH, "", FIRST + TRAIN, "cuda:0"),
)
SHARDED = """\
import math
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
inner = torch.nn.Linear(4, 1)
{}
opt = torch.optim.SGD(sharded.parameters(), lr=0.1)
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=False))
for x, y in loader:
    opt.zero_grad()
    F.mse_loss(sharded(x), y).backward()
    norm = sharded.clip_grad_norm_(1.0)
    if math.isfinite(norm):
        opt.step()
weights = sharded.state_dict()
if rank == 0:
    torch.save(weights, "m.pt")
"""
OWN_SHARE = """\
loader = DataLoader(torch.load("r.pt", map_location="cpu")[rank :: dist.get_world_size()], batch_size=4)
most = len(loader) // 2
for n, x in enumerate(loader):
    if n < most:
        optimizer.param_groups[0]["lr"] = n / most
    loss = net(x).mean()
    backward(loss)
    optimizer.step()
"""
RIGHT = cases(
    ("the number of batches of a share", TORCH, "", OWN_SHARE, ""),
    ("a model in shards", TORCH, SHARDED.format("sharded = FullyShardedDataParallel(inner)"), "", ""),
    (
        "a model that is divided in place",
        TORCH,
        SHARDED.format("sharded = inner\nfully_shard(sharded)"),
        "",
        "",
    ),
    ("a number in each step", HF, "total = 0.0\n", TRAIN + "    total += loss.item()\n", ""),
    (
        "a number in some steps on a TPU",
        HF,
        XLA + "total, n = 0.0, 0\n",
        TRAIN + "    n += 1\n    if n % 100 == 0:\n        total += loss.item()\n",
        "",
    ),
    (
        "a number of all processes in each step",
        HF,
        "",
        TRAIN + "    mean = accelerator.gather(loss.repeat(4)).mean().item()\n",
        "",
    ),
    (
        "rows that are chosen by their numbers on a TPU",
        HF,
        XLA,
        TRAIN.replace("    loss", "    first = [0, 1]\n    loss").replace(
            "(net(x), y)", "(net(x)[first], y[first])"
        ),
        "",
    ),
    ("batches of a library's length on a TPU", HF, XLA + COLLATOR.format(", padding=False"), TRAIN, ""),
    ("batches of many lengths on a GPU", HF, COLLATOR.format(", padding='longest'"), TRAIN, ""),
    (
        "batches of one length on a TPU",
        HF,
        XLA + COLLATE.format(", padding='max_length', max_length=9"),
        TRAIN,
        "",
    ),
    (
        "errors that are passed over where no ranks meet",
        HF,
        "from contextlib import suppress\n",
        """\
        for x, y in train:
            with suppress(ValueError):
                more = float(os.environ["MORE"])
            backward(F.mse_loss(net(x), y))
            optimizer.step()
        """,
        "",
    ),
    (
        "a file of each round",
        BOTH,
        "",
        TRAIN.replace("x, y", "n, (x, y)").replace("train:", "enumerate(train):")
        + ENDS.format("str(n)", "break"),
        "",
    ),
    (
        "sums in one order",
        TORCH,
        "",
        """\
        one, two = torch.ones(1), torch.ones(1)
        if rank == 0:
            dist.all_reduce(one)
            dist.all_reduce(two)
        else:
            dist.all_reduce(one)
            dist.all_reduce(two)
        """,
        "",
    ),
    (
        "numbers that are drawn beside the steps",
        BOTH,
        "torch.manual_seed(1)\n",
        TRAIN
        + """\
for x, y in train:
    with torch.no_grad():
        net(x + torch.randn_like(x))
""",
        "",
    ),
    (
        "a message where the number is none",
        HF,
        "",
        TRAIN + '    if torch.isnan(loss).any():\n        print("nan")\n',
        "",
    ),
    (
        "what the main process shows without a bar",
        TORCH,
        "from tqdm import tqdm\nimport yaml\n",
        """\
        bar = None
        if yaml.safe_load(open("c.yaml"))["bar"] and rank == 0:
            bar = tqdm(total=9)
        if rank == 0:
            if bar is None:
                print("no bar")
        """,
        "",
    ),
    (
        "a socket of each process",
        BOTH,
        "import socket\n",
        """\
        with socket.socket() as one:
            one.bind(("", 0))
            one.getsockname()
        """,
        "",
    ),
    ("one pass", TORCH, "train = DataLoader(data, sampler=DistributedSampler(data))\n", TRAIN, ""),
    ("a file that ends nothing", BOTH, "", TRAIN + ENDS.format('"MORE"', "pass"), ""),
    (
        "a file that the main process asks for",
        HF,
        "",
        TRAIN
        + """\
    stop = torch.tensor(float(os.path.exists("STOP")), device=accelerator.device)
    if accelerator.reduce(stop).item() > 0:
        break
""",
        "",
    ),
    ("a GPU of any number", HF, "", FIRST.replace(":0", "") + TRAIN, ""),
    (
        "forward under a draw that is alike",
        HF,
        "set_seed(1)\n",
        """\
        for x, y in train:
            more = 0.0
            if random.random() < 0.5:
                more = net(x).detach()
            backward(F.mse_loss(net(x) + more, y))
            optimizer.step()
        """,
        "",
    ),
    (
        "a running mean within the steps",
        BOTH,
        "",
        """\
        losses = []
        for i, (x, y) in enumerate(train):
            loss = F.mse_loss(net(x), y)
            backward(loss)
            optimizer.step()
            losses.append(loss.item())
            if i % 5 == 4 and int(os.environ["RANK"]) == 0:
                print(np.mean(losses))
        """,
        "",
    ),
    (
        "figures of batches of which nothing is known",
        BOTH,
        "from project import loader_of\n",
        """\
        for i, batch in enumerate(loader_of("train")):
            loss = net(batch["x"]).mean()
            backward(loss)
            if i % 4 == 0:
                optimizer.step()
            if int(os.environ["RANK"]) == 0:
                print(loss.item())
        """,
        "",
    ),
    (
        "an optimizer of a part of the model",
        HF,
        """\
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.head = torch.nn.Linear(4, 1)

            def forward(self, x):
                return self.head(x)
        """,
        """\
        net = Net()
        slow = copy.deepcopy(net)
        net, optimizer = accelerator.prepare(net, torch.optim.SGD(net.head.parameters(), lr=0.1))
        """
        + TRAIN.replace("\n", "\n        "),
        "",
    ),
    ("noise of each process", HF, "set_seed(1, device_specific=True)\n", NOISE, ""),
    ("noise of each process", TORCH, "torch.manual_seed(rank)\n", SIZED_NOISE, ""),
    (
        "rows in one order of a seeded stream",
        BOTH,
        "np.random.seed(1)\ndata = [data[n] for n in np.random.permutation(60)]\n",
        TRAIN,
        "",
    ),
    ("rows in one order", BOTH, "random.seed(1)\ndata = list(range(60))\nrandom.shuffle(data)\n", TRAIN, ""),
    (
        "a metric of all",
        HF,
        "import evaluate\n",
        """\
        metric = evaluate.load("accuracy")
        for x, y in train:
            out, y = accelerator.gather_for_metrics((net(x), y))
            metric.add_batch(predictions=out, references=y)
        accelerator.print(metric.compute())
        """,
        "",
    ),
    (
        "a length after prepare",
        HF,
        "",
        """\
        for i, (x, y) in enumerate(train):
            backward(F.mse_loss(net(x), y))
            if i + 1 == len(train):
                optimizer.step()
        """,
        "",
    ),
    (
        "a prepared schedule as long as all",
        HF,
        "",
        "count = len(DataLoader(data, batch_size=4))\n"
        "s = accelerator.prepare(torch.optim.lr_scheduler.LinearLR(optimizer, 1, 0, count))\n"
        + TRAIN
        + "    s.step()\n",
        "",
    ),
    (
        "a file of each process",
        TORCH,
        "",
        """\
        with open(f"ids-{rank}.txt", "w") as file:
            file.write("x")
        """,
        "",
    ),
    (
        "it says which process it is",
        TORCH,
        "",
        """\
        is_main = rank == 0
        print(f"process {rank}")
        print(f"main: {is_main}")
        if is_main:
            print(rank)
        """,
        "",
    ),
    (
        "items that the rank shares out",
        TORCH,
        "",
        """\
        names, size = ["a", "b", "c"], dist.get_world_size()
        for name in names[rank::size]:
            torch.save(name, f"{name}.pt")
        for i in range(rank, len(names), size):
            torch.save(names[i], f"{i}.pt")
        for i, name in enumerate(names):
            if i % size != rank:
                continue
            torch.save(name, f"{name}.pt")
        for name in [one for i, one in enumerate(names) if i % size == rank]:
            torch.save(name, f"{name}.pt")
        """,
        "",
    ),
    (
        "a loader over this rank's rows",
        TORCH,
        "",
        """\
        rows = [torch.ones(4)] * 60
        right = torch.zeros(1)
        for x in DataLoader(rows[rank :: dist.get_world_size()], batch_size=4):
            right += (net(x) > 0).sum()
        dist.all_reduce(right)
        if rank == 0:
            print(right.item())
        """,
        "",
    ),
    (
        "items of each process under their names",
        HF,
        "",
        """\
        with accelerator.split_between_processes(["a", "b", "c"]) as names:
            for name in names:
                with open(f"{name}.txt", "w") as file:
                    file.write(name)
        """,
        "",
    ),
    (
        "weights before the wrapper",
        TORCH,
        """\
        torch.manual_seed(rank)
        inner = torch.nn.Linear(4, 1)
        with torch.no_grad():
            inner.weight.copy_(torch.randn(1, 4))
        """,
        "net = DDP(inner)\n" + TRAIN,
        "",
    ),
    (
        "loaded when training is over",
        TORCH,
        "",
        TRAIN
        + """\
if rank == 0:
    net.load_state_dict(torch.load("best.pt", map_location="cpu"))
""",
        "",
    ),
    (
        "an attribute that the script sets",
        TORCH,
        "",
        "net.classes = 4\n" + TRAIN + "    assert net.classes\n",
        "",
    ),
    (
        "clipped after the scale is off",
        HF,
        "",
        """\
        for x, y in train:
            backward(F.mse_loss(net(x), y))
            accelerator.unscale_gradients()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
        """,
        "",
    ),
    ("a shelf that is read", TORCH, "import shelve\n", "rows = shelve.open('data', 'r')\n", ""),
    (
        "a file of an earlier run",
        HF,
        "",
        """\
        if accelerator.is_main_process:
            os.makedirs("out", exist_ok=True)
        torch.load("out/teacher.pt", map_location="cpu")
        """,
        "",
    ),
    (
        "arguments passed on",
        TORCH,
        "",
        """\
        def load(*args, **options):
            return torch.load(*args, **options)
        """,
        "",
    ),
)


def script(form, ahead, body):
    return HEAD[form] + ahead + SETUP[form] + body


@pytest.mark.parametrize(("form", "ahead", "body", "marked"), WRONG)
def test_wrong_ones_are_named_in_their_line(form, ahead, body, marked, tmp_path):
    text = script(form, ahead, body)
    found = findings(text, tmp_path)
    assert any(marked in text.splitlines()[one.line - 1] for one in found), found


@pytest.mark.parametrize(("form", "ahead", "body", "marked"), RIGHT)
def test_right_neighbours_are_quiet(form, ahead, body, marked, tmp_path):
    assert findings(script(form, ahead, body), tmp_path) == []


def test_a_script_that_makes_no_group_itself_and_wraps_its_model_is_one_of_several(tmp_path):
    text = (
        HEAD["torch"]
        .replace('dist.init_process_group("gloo")\n', "")
        .replace("rank = dist.get_rank()", "rank = dist.get_rank() if dist.is_initialized() else 0")
    )
    text += """\
net = DDP(torch.nn.Linear(4, 1)) if dist.is_initialized() else torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=False)):
    optimizer.zero_grad()
    F.mse_loss(net(x), y).backward()
    optimizer.step()
print("ready")
"""
    found = findings(text, tmp_path) or []
    assert [text.splitlines()[one.line - 1] for one in found] == ['print("ready")']


@pytest.mark.parametrize(
    "form",
    [
        "backward(loss.div(steps))",
        "backward(torch.div(loss, steps))",
        "backward(loss * (1 / steps))",
        "backward(loss.mul(1.0 / steps))",
        "backward(loss * part)",
        "backward((losses / steps).mean())",
        "backward(loss / options.steps)",
        "loss.div_(steps)\n        backward(loss)",
    ],
)
@pytest.mark.parametrize(("steps", "found"), [("steps", True), ("other", False)])
def test_a_loss_is_divided_by_the_steps_of_the_accelerator(form, steps, found, tmp_path):
    setup = SETUP["accelerate"].replace("Accelerator()", f"Accelerator(gradient_accumulation_steps={steps})")
    loop = f"""\
for x, y in train:
    with accelerator.accumulate(net):
        losses = F.mse_loss(net(x), y, reduction="none")
        loss = losses.mean()
        part = 1 / steps
        {form}
        optimizer.step()
"""
    text = (
        HEAD["accelerate"] + "import sys\nsteps, other = int(sys.argv[1]), int(sys.argv[2])\n" + setup + loop
    )
    assert any("once more" in one.message for one in findings(text, tmp_path)) == found


LAUNCHED = """
from accelerate import notebook_launcher
{}
def main():
    {}
    model, loader = torch.nn.Linear(4, 1), DataLoader(data, batch_size=4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for x, y in loader:
        accelerator.backward(F.mse_loss(model(x), y))
        optimizer.step()
notebook_launcher(main, num_processes=2)
"""


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("accelerator = Accelerator()", True),
        ("data = TensorDataset(torch.ones(60, 4).cuda(), torch.ones(60, 1))", True),
        ("weights = torch.ones(4, device='cuda')", True),
        ("print(torch.cuda.get_device_name(0))", True),
        ("print(torch.cuda.is_available())", False),
        ("weights = torch.ones(4)", False),
    ],
)
def test_a_device_is_taken_before_a_notebook_starts_its_processes(line, found, tmp_path):
    within = "pass" if line.startswith("accelerator") else "accelerator = Accelerator()"
    text = HEAD["accelerate"] + LAUNCHED.format(line, within)
    lines = text.splitlines()
    named = [lines[one.line - 1] for one in findings(text, tmp_path) if "copies the process" in one.message]
    assert named == [line] * found


FORKED = """
import torch.multiprocessing as mp
{line}
def work(rank, world):
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.cuda.set_device(rank)
    model = DDP(torch.nn.Linear(4, 1).to(rank))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    sampler = DistributedSampler(data, shuffle=False)
    for x, y in DataLoader(data, batch_size=4, sampler=sampler):
        opt.zero_grad()
        F.mse_loss(model(x.to(rank)), y.to(rank)).backward()
        opt.step()
mp.start_processes(work, args=(2,), nprocs=2, start_method="{method}")
"""


@pytest.mark.parametrize(
    ("line", "method", "found"),
    [
        ("mean = data.tensors[0].cuda().mean()", "fork", True),
        ("mean = data.tensors[0].cuda().mean()", "spawn", False),
        ("mean = data.tensors[0].mean()", "fork", False),
    ],
)
def test_a_gpu_that_is_used_before_a_fork(line, method, found, tmp_path):
    said = [
        one.message for one in findings(HEAD["torch"] + FORKED.format(line=line, method=method), tmp_path)
    ]
    assert any("takes a device before `start_processes`" in one for one in said) is found


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("weights = torch.ones(4, device='cuda:0')", True),
        ("weights = torch.ones(4).to('cuda:0')", True),
        ("weights = torch.ones(4, device='cpu')", False),
        ("weights = torch.ones(4)", False),
    ],
)
def test_what_is_put_on_one_gpu_as_a_module_is_imported(line, found, tmp_path):
    text = LAUNCHED.format(line, "accelerator = Accelerator()").replace(
        "notebook_launcher(main, num_processes=2)", "main()"
    )
    said = [one.message for one in findings(HEAD["accelerate"] + text, tmp_path)]
    assert any("names one device for every process" in one for one in said) is found
