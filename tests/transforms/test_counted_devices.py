"""Batch sizes that count the GPUs of the machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.convert import convert_paths
from tests.transforms.support import check_noop, check_transformed, convert

MODEL = "model = nn.Linear(4, 2)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
COUNT = "torch.cuda.device_count()"
SHARED = "train = DataLoader(data, batch_size=size)\nfor x, y in train:\n    F.cross_entropy(model(x), y).backward()"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (f"size = 8 * {COUNT}", "size = 8"),
        (f"size = {COUNT} * 8", "size = 8"),
        (f"size = 8 * max(1, {COUNT})", "size = 8"),
        (f"n = {COUNT}\nsize = 8 * n", f"n = {COUNT}\nsize = 8"),
        (f"n = {COUNT} if torch.cuda.is_available() else 1\nsize = 8 * n", None),
        (f"size = 8\nn = {COUNT}\nif n > 1:\n    size *= n", f"size = 8\nn = {COUNT}"),
        (
            f"size = 8\nif {COUNT} > 1:\n    size *= {COUNT}\n    n = 1",
            f"size = 8\nif {COUNT} > 1:\n    n = 1",
        ),
    ],
)
def test_the_factor_goes(before: str, after: str | None) -> None:
    conversion = convert(build=f"{MODEL}{before}", end=SHARED)
    assert "ACC413" in {f.code for f in conversion.applied}
    assert "size = 8\n" in conversion.new_text
    if after is not None:
        check_transformed("build", f"{MODEL}{before}", f"{MODEL}{after}", end=SHARED)


@pytest.mark.parametrize("size", ["8 * len(gpus)", "len(gpus) * 8", "8 * max(1, len(gpus))"])
def test_the_length_of_the_list_that_data_parallel_is_given(size: str) -> None:
    gpus = "gpus = [0, 1]\n"
    wrapped = f"{MODEL}{gpus}model = nn.DataParallel(model, device_ids=gpus)\nsize = {size}"
    conversion = check_transformed("build", wrapped, f"{MODEL}{gpus}size = 8", end=SHARED)
    assert "ACC413" in {f.code for f in conversion.applied}


@pytest.mark.parametrize(
    ("size", "named"),
    [
        ("size = 8 * args.n_gpus", True),
        ("size = args.batch_size_per_gpu * args.gpu", True),
        ("num_gpu = 2\nsize = num_gpu * 8", True),
        ("size = args.batch_size_per_gpu", False),
        ("size = 8 * args.accumulation", False),
        ("size = 8 // args.n_gpus", False),
    ],
)
@pytest.mark.parametrize("wrapped", [True, False])
def test_a_number_of_gpus_that_is_told_stays_and_is_named(size: str, named: bool, wrapped: bool) -> None:
    parallel = "model = nn.DataParallel(model)\n" * wrapped
    setup = "import argparse\nargs = argparse.ArgumentParser().parse_args()"
    conversion = convert(setup=setup, build=f"{MODEL}{parallel}{size}", end=SHARED)
    assert size in conversion.new_text
    assert len([f for f in conversion.remaining if f.code == "ACC413"]) == (named and wrapped)


def test_the_length_of_another_list_stays() -> None:
    build = f"{MODEL}gpus = [0, 1]\nparts = [3, 4]\nmodel = nn.DataParallel(model, device_ids=gpus)\n"
    conversion = convert(build=f"{build}size = 8 * len(parts)", end=SHARED)
    assert "ACC413" not in {f.code for f in conversion.applied}


@pytest.mark.parametrize(
    "size", ["size = 8 * 2", f"size = 8 * 2\nworkers = 4 * {COUNT}", f"n = {COUNT}\nsize = 8"]
)
def test_other_sizes_stay(size: str) -> None:
    check_noop("build", f"{MODEL}{size}", "ACC413", end=SHARED)


def test_a_total_counts_the_gpus_rightly() -> None:
    text = convert("total", build=f"{MODEL}size = 8 * {COUNT}", end=SHARED).new_text
    assert f"size = 8 * {COUNT}" in text


BALANCED = """\
from torch.utils.data import DataLoader


class Balanced:
    def __init__(self, opt, data):
        self.loader = DataLoader(data, batch_size=opt.batch_size)
        self.batches = iter(self.loader)

    def get_batch(self):
        return next(self.batches)
"""
TRAIN = """\
import argparse
import torch
from torch import nn
from data import Balanced

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=8)
opt = parser.parse_args()
opt.num_gpu = torch.cuda.device_count()
if opt.num_gpu > 1:
    {counted}
data = Balanced(opt, [(torch.ones(4), torch.ones(1))] * 99)
model = {model}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(2):
    x, y = data.get_batch()
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    "counted", ["opt.batch_size = opt.batch_size * opt.num_gpu", "opt.batch_size *= opt.num_gpu"]
)
def test_where_the_loader_is_not_seen_the_factor_is_named(tmp_path: Path, counted: str) -> None:
    (tmp_path / "data.py").write_text(BALANCED)
    found = {}
    for model in ("nn.DataParallel(nn.Linear(4, 1))", "nn.Linear(4, 1)"):
        (tmp_path / "train.py").write_text(TRAIN.format(counted=counted, model=model))
        (conversion,) = convert_paths([tmp_path / "train.py"])
        assert counted in conversion.new_text
        found[model[:7]] = {f.code: f.message for f in conversion.remaining}
    assert "ACC413" in found["nn.Data"]
    assert "ACC413" not in found["nn.Line"]
    assert "slower than DataParallel was" in found["nn.Data"]["ACC402"]
    assert "right but no faster" in found["nn.Line"]["ACC402"]


@pytest.mark.parametrize(
    "given",
    [
        "given = {'batch_size': 8 * %s, 'shuffle': True}",
        "given = dict(batch_size=8 * %s, shuffle=True)",
        "given = {'shuffle': True}\ngiven['batch_size'] = 8 * %s",
    ],
)
@pytest.mark.parametrize("count", [COUNT, "n"])
def test_a_size_in_a_dictionary_of_arguments(given: str, count: str) -> None:
    build = f"{MODEL}n = {COUNT}\n{given}"
    shared = SHARED.replace("batch_size=size", "**given")
    check_transformed(
        "build", build % count, f"{MODEL}n = {COUNT}\n{given % '!'}".replace(" * !", ""), end=shared
    )


def test_a_size_written_out_in_the_call_s_own_dictionary() -> None:
    shared = SHARED.replace("batch_size=size", f"**{{'batch_size': 8 * {COUNT}}}")
    assert "**{'batch_size': 8})" in convert(end=shared).new_text


def test_another_entry_of_such_a_dictionary_stays() -> None:
    shared = SHARED.replace("batch_size=size", "**given")
    check_noop(
        "build", f"{MODEL}given = {{'batch_size': 8, 'num_workers': 4 * {COUNT}}}", "ACC413", end=shared
    )


MAKING = """\
import torch
from torch.utils.data import DataLoader


def loaders(data, batch_size):
    {counted}
    return {{"train": DataLoader(data, batch_size=batch_size), "val": DataLoader(data, batch_size=8)}}
"""
MADE = """\
import torch
from torch import nn
from data import loaders

model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
made = loaders([(torch.ones(4), torch.ones(1))] * 99, 8)
for x, y in made["train"]:
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("counted", "line"),
    [
        (f"batch_size = batch_size * {COUNT}", 6),
        (f"if {COUNT} > 1:\n        batch_size *= {COUNT}", 7),
        (f"n = {COUNT}\n    batch_size = n * batch_size", 7),
        (f"print({COUNT})", None),
        ("batch_size *= 2", None),
    ],
)
def test_a_module_that_is_not_converted_counts_them(tmp_path: Path, counted: str, line: int | None) -> None:
    (tmp_path / "data.py").write_text(MAKING.format(counted=counted))
    (tmp_path / "train.py").write_text(MADE)
    (conversion,) = convert_paths([tmp_path / "train.py"])
    said = [(f.line, f.message) for f in conversion.remaining if f.code == "ACC413"]
    assert [at for at, _ in said] == ([7] if line else [])
    assert all(f"data.py, line {line})" in message for _, message in said)


SIZED = f"n = {COUNT}\nsize = 8 * n\n"
OPTIMIZER = "model = nn.Linear(4, 2)\noptimizer = torch.optim.SGD(model.parameters(), %s)"


@pytest.mark.parametrize(
    ("rate", "given", "after"),
    [
        ("rate = 0.1\nif n:\n    rate *= n", "lr=rate", "    rate *= accelerator.num_processes"),
        ("rate = 0.1 * n", "lr=rate", "rate = 0.1 * accelerator.num_processes"),
        ("", f"0.1 * max(1, {COUNT})", "0.1 * accelerator.num_processes)"),
        ("", "**{'lr': n * 0.1}", "'lr': accelerator.num_processes * 0.1"),
        ("rate = 0.1 * size / 256", "lr=rate", "rate = 0.1 * size * accelerator.num_processes / 256"),
        ("", "lr=0.1 * size ** 0.5", "lr=0.1 * (size * accelerator.num_processes) ** 0.5"),
        (
            "options = lambda: None\noptions.lr = 0.1 * n",
            "lr=0.1",
            "options.lr = 0.1 * accelerator.num_processes",
        ),
    ],
)
def test_a_rate_that_counts_the_gpus_with_the_batch_goes_with_the_processes(
    rate: str, given: str, after: str
) -> None:
    conversion = convert(build=f"{SIZED}{rate}\n{OPTIMIZER % given}", end=SHARED)
    assert after in conversion.new_text
    assert "size = 8\n" in conversion.new_text
    assert [f.code for f in conversion.applied].count("ACC413") == 2


@pytest.mark.parametrize(
    ("test", "after"),
    [("n > 1", "accelerator.num_processes > 1"), ("n > 1 and model", "n > 1 and model")],
)
def test_a_test_around_size_and_rate_alone_asks_for_the_processes(test: str, after: str) -> None:
    build = f"{MODEL}n = {COUNT}\nsize, rate = 8, 0.1\nif {test}:\n    %s"
    before = "model = nn.DataParallel(model)\n    size *= n\n    rate *= n"
    used = "optimizer = torch.optim.SGD(model.parameters(), lr=rate)"
    conversion = convert(build=f"{build % before}\n{used}", end=SHARED)
    assert f"if {after}:\n    rate *= accelerator.num_processes\n" in conversion.new_text


@pytest.mark.parametrize(
    "build",
    [
        f"n = {COUNT}\nsize = 8\n{OPTIMIZER % 'lr=0.1 * n'}",  # of a batch that never counted them
        f"{SIZED}steps = len(data) // size\n{OPTIMIZER % 'lr=0.1 / steps'}",
        f"size = 8\nrate = 0.1 * size\nsize *= {COUNT}\n{OPTIMIZER % 'lr=rate'}",  # read before
    ],
)
def test_other_rates_stay(build: str) -> None:
    conversion = convert(build=build, end=SHARED)
    assert "num_processes" not in conversion.new_text
    assert not [f for f in conversion.remaining if f.code == "ACC413"]


def test_a_rate_keeps_the_gpus_where_the_total_counts_them() -> None:
    text = convert("total", build=f"{SIZED}{OPTIMIZER % 'lr=0.1 * n'}", end=SHARED).new_text
    assert "lr=0.1 * n)" in text


def test_where_the_size_is_only_named_the_rate_is_too(tmp_path: Path) -> None:
    (tmp_path / "data.py").write_text(BALANCED)
    counted = "opt.batch_size *= opt.num_gpu\n    opt.lr = 0.1 * opt.num_gpu"
    (tmp_path / "train.py").write_text(
        TRAIN.format(counted=counted, model="nn.DataParallel(nn.Linear(4, 1))")
    )
    (conversion,) = convert_paths([tmp_path / "train.py"])
    assert counted in conversion.new_text
    said = [f.message for f in conversion.remaining if f.code == "ACC413"]
    assert [message.split(" counts")[0] for message in said] == ["the batch size", "the learning rate"]


def test_loaders_of_another_module_stand_at_no_place_of_the_script(tmp_path: Path) -> None:
    made = "def loader(data, n_gpus):\n    return DataLoader(data, batch_size=8 * n_gpus)\n"
    blank = "\n" * 99
    (tmp_path / "data.py").write_text(f"from torch.utils.data import DataLoader\n{blank}\n{made}")
    script = """\
import torch
from torch import nn
from data import loader

batches = loader(samples, 2)
model = nn.DataParallel(nn.Linear(4, 2)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in batches:
    loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
    (tmp_path / "train.py").write_text(script)
    found = convert_paths([tmp_path / "train.py"])[0]
    assert found.status == "converted", found.reason
