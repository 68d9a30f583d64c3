"""DistributedDataParallel written by hand, taken out on demand."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from accelify.conversion import Conversion, ConvertOptions
from accelify.convert import convert_source
from accelify.source import Source

SCRIPT = """\
import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

{setup}
dist.init_process_group("nccl")
data = TensorDataset(torch.randn(64, 4), torch.randint(0, 2, (64,)))
{loader}
model = nn.Linear(4, 2).cuda()
{wrap}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{ready}
for epoch in range(3):
{epoch}
    for x, y in loader:
        loss = F.cross_entropy(model(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
{end}
"""
DEFAULTS = {
    "setup": "local_rank = int(os.environ['LOCAL_RANK'])",
    "loader": "sampler = DistributedSampler(data)\nloader = DataLoader(data, batch_size=8, sampler=sampler)",
    "wrap": "model = DDP(model, device_ids=[local_rank])",
    "ready": "",
    "epoch": "    sampler.set_epoch(epoch)",
    "end": "",
}


def script(**parts: str) -> str:
    filled = {**DEFAULTS, **{k: textwrap.dedent(v).strip("\n") for k, v in parts.items()}}
    filled["epoch"] = textwrap.indent(textwrap.dedent(filled["epoch"]), "    ")
    return SCRIPT.format(**filled)


def convert(text: str, **options: object) -> Conversion:
    source = Source.from_text(text, Path("/nowhere/train.py"))
    return convert_source(source, ConvertOptions(**{"replace_ddp": True, **options}))  # type: ignore[arg-type]


def converted(**parts: str) -> str:
    conversion = convert(script(**parts))
    assert conversion.status == "converted", conversion.reason
    compile(conversion.new_text, "after.py", "exec", dont_inherit=True)
    assert "__accelerator__" not in conversion.new_text
    again = convert(conversion.new_text)
    assert again.new_text == conversion.new_text
    return conversion.new_text


def refused(**parts: str) -> str:
    text = script(**parts)
    conversion = convert(text)
    assert conversion.status == "refused"
    assert conversion.new_text == text
    return conversion.reason


def test_without_the_flag_the_script_stays_and_the_reason_names_it() -> None:
    conversion = convert(script(), replace_ddp=False)
    assert conversion.status == "refused"
    assert not conversion.changed
    assert "--replace-ddp" in conversion.reason


def test_a_plain_script_converts_as_ever() -> None:
    text = (
        "import torch\nfrom torch import nn\nm = nn.Linear(2, 1)\no = torch.optim.SGD(m.parameters(), lr=1)\n"
    )
    text += "m(torch.zeros(1, 2)).sum().backward()\no.step()\n"
    assert convert(text).new_text == convert(text, replace_ddp=False).new_text


def test_what_distributes_goes() -> None:
    text = converted()
    for word in ("dist", "DDP", "sampler", "LOCAL_RANK", "import os"):
        assert word not in text, word
    assert "loader = DataLoader(data, batch_size=8, shuffle=True)" in text
    assert "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)" in text


@pytest.mark.parametrize(
    ("product", "kept"),
    [
        ("args.gpus * args.nodes", False),
        ("args.gpus * args.world_size", True),
        ("args.gpus + args.nodes", True),
    ],
)
def test_the_number_of_processes_is_the_launchers(product: str, kept: bool) -> None:
    setup = f"args = argparse.ArgumentParser().parse_args()\nargs.world_size = {product}\n"
    setup += "local_rank = int(os.environ['LOCAL_RANK'])"
    text = script(setup=setup, end="print(args.world_size)").replace(
        '("nccl")', '("nccl", world_size=args.world_size)'
    )
    made = product if kept else "accelerator.num_processes"
    assert f"args.world_size = {made}\n" in convert(text).new_text


def test_findings_point_into_the_script_as_it_was() -> None:
    text = script()
    lines = text.splitlines()
    conversion = convert(text)
    by_message = {f.message: lines[f.line - 1] for f in conversion.applied}
    assert "init_process_group" in by_message["the Accelerator makes the process group and leaves it"]
    assert "DDP(model" in by_message["prepare wraps the model for several processes"]
    assert "loss.backward()" in by_message["gradients are not averaged over processes"]


@pytest.mark.parametrize(
    ("sampler", "argument"),
    [
        ("DistributedSampler(data)", ", shuffle=True"),
        ("DistributedSampler(data, shuffle=False)", ""),
        ("DistributedSampler(data, num_replicas=2, rank=0, shuffle=True, drop_last=True)", ", shuffle=True"),
    ],
)
@pytest.mark.parametrize(
    "given",
    ["sampler=sampler", "shuffle=False, sampler=sampler", "shuffle=(sampler is None), sampler=sampler"],
)
def test_the_loader_draws_as_its_sampler_did(sampler: str, argument: str, given: str) -> None:
    text = converted(loader=f"sampler = {sampler}\nloader = DataLoader(data, batch_size=8, {given})")
    assert f"loader = DataLoader(data, batch_size=8{argument})" in text


def test_both_cases_of_a_flag_become_one() -> None:
    text = converted(
        setup="""
        args = argparse.ArgumentParser().parse_args()
        local_rank = int(os.environ["LOCAL_RANK"])
        args.distributed = True
        """,
        loader="""
        if args.distributed:
            sampler = DistributedSampler(data)
        else:
            sampler = None
        loader = DataLoader(data, batch_size=8, shuffle=(sampler is None), sampler=sampler)
        """,
        wrap="if args.distributed:\n    model = DDP(model)\nelse:\n    model = nn.DataParallel(model)",
        epoch="if args.distributed:\n    sampler.set_epoch(epoch)",
    )
    assert "if args.distributed" not in text
    assert "shuffle=True" in text


@pytest.mark.parametrize(
    ("test", "attribute"),
    [
        ("dist.get_rank() == 0", "is_main_process"),
        ("rank == 0", "is_main_process"),
        ("not rank", "is_main_process"),
        ("rank in [-1, 0]", "is_main_process"),
        ("local_rank == 0", "is_local_main_process"),
        ("rank % torch.cuda.device_count() == 0", "is_local_main_process"),
    ],
)
def test_tests_of_the_rank(test: str, attribute: str) -> None:
    ready = (
        f"rank = dist.get_rank()\nif {test}:\n    print('here')\n    torch.save(model.state_dict(), 'a.pt')"
    )
    text = converted(ready=ready)
    assert f"if accelerator.{attribute}:\n    print('here')\n    accelerator.save(" in text
    assert "wait_for_everyone" not in text, "the others do not come here"


def test_sizes_barriers_and_reductions() -> None:
    text = converted(
        ready="lr = 0.1 * dist.get_world_size()\ndist.barrier()",
        end="total = torch.zeros(1)\ndist.all_reduce(total, op=dist.ReduceOp.SUM)\n"
        "print(f'{dist.get_rank()}: {total}')",
    )
    assert "lr = 0.1 * accelerator.num_processes\naccelerator.wait_for_everyone()" in text
    assert 'total = accelerator.reduce(total, reduction="sum")' in text
    assert "{accelerator.process_index}: {total}" in text


def test_helpers_that_ask_first_stay_as_they_are() -> None:
    helper = """
    def world_size():
        if not dist.is_initialized():
            return 1
        return dist.get_world_size()

    local_rank = int(os.environ["LOCAL_RANK"])
    """
    text = converted(setup=helper, ready="print(world_size())")
    assert textwrap.dedent(helper).strip().split("\n\n")[0] in text
    assert "import torch.distributed as dist" in text


def test_options_of_the_wrapper_are_kept() -> None:
    text = converted(
        wrap="model = DDP(model, device_ids=[local_rank], find_unused_parameters=True, static_graph=False)"
    )
    handler = "DistributedDataParallelKwargs(find_unused_parameters=True, static_graph=False)"
    assert f"kwargs_handlers=[{handler}]" in text
    assert "from accelify.runtime import Accelerator, DistributedDataParallelKwargs" in text


def test_sync_batch_norm_stays() -> None:
    text = converted(wrap="model = nn.SyncBatchNorm.convert_sync_batchnorm(model)\nmodel = DDP(model)")
    assert "model = nn.SyncBatchNorm.convert_sync_batchnorm(model)" in text
    assert text.index("convert_sync_batchnorm") < text.index("accelerator.prepare(")


def test_apex_leaves_batch_norm_to_torch() -> None:
    text = converted(
        setup="import apex\nlocal_rank = 0", wrap="model = DDP(apex.parallel.convert_syncbn_model(model))"
    )
    assert "model = nn.SyncBatchNorm.convert_sync_batchnorm(model)" in text
    assert "apex" not in text


def test_the_wrapped_name_is_prepared() -> None:
    text = converted(wrap="wrapped = DDP(model)\nmodel = wrapped", ready="")
    assert "accelerator.prepare(" in text
    text = script(wrap="wrapped = DDP(model)").replace("model(x.cuda())", "wrapped(x.cuda())")
    assert (
        "wrapped, optimizer, loader = accelerator.prepare(wrapped, optimizer, loader)"
        in convert(text).new_text
    )


def test_a_prefetcher_around_the_loader_gets_the_prepared_one() -> None:
    ready = """
    class Prefetcher:
        def __init__(self, loader):
            self.loader = iter(loader)
            self.next = next(self.loader, None)
    first = Prefetcher(loader)
    """
    before, _, after = converted(ready=ready).partition("class Prefetcher")
    assert re.search(r"loader = accelerator.prepare\(.*loader\)", before)
    assert "prepare" not in after


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        (
            {"wrap": "model = DDP(model, process_group=dist.new_group([0]))"},
            "line 17 gives DistributedDataParallel",
        ),
        ({"loader": "loader = DataLoader(data, batch_size=8)", "epoch": "pass"}, "has no DistributedSampler"),
        (
            {"end": "tensors = [torch.zeros(1)]\ndist.all_gather(tensors, tensors[0])"},
            "calls `dist.all_gather`",
        ),
        ({"end": "for p in model.parameters():\n    dist.all_reduce(p.grad)"}, "reduces gradients by hand"),
        ({"end": "t = torch.zeros(1)\ndist.all_reduce(t, op=dist.ReduceOp.MAX)"}, "reduces in a way that"),
        ({"end": "print(len(sampler))"}, "line 27 uses a DistributedSampler for something else"),
        ({"ready": "model.require_backward_grad_sync = False"}, "line 19 switches the reduction"),
        ({"ready": "steps = len(loader.sampler)"}, "line 19 counts the samples of one process"),
    ],
)
def test_what_is_not_understood_is_left_alone(parts: dict[str, str], why: str) -> None:
    assert why in refused(**parts)


def test_lengths_before_prepare_are_not_understood() -> None:
    assert "counts the batches of one process" in refused(wrap="steps = len(loader)\nmodel = DDP(model)")


def test_spawned_processes_are_the_launchers() -> None:
    text = '''\
import os
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def setup(rank, world_size):
    """Join the others."""
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = "12355"
    dist.init_process_group("gloo", rank=rank, world_size=world_size)


def worker(rank, world_size, steps):
    setup(rank, world_size)
    model = nn.Linear(2, 1).to(rank)
    model = DDP(model, device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 / world_size)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(4, 2).to(rank)).sum().backward()
        optimizer.step()


if __name__ == "__main__":
    world_size = torch.cuda.device_count()
    mp.spawn(worker, args=(world_size, 3), nprocs=world_size)
'''
    new = convert(text).new_text
    assert "    worker(accelerator, accelerator.process_index, accelerator.num_processes, 3)\n" in new
    assert "def worker(accelerator, rank, world_size, steps):\n    model = nn.Linear(2, 1)\n" in new
    assert "torch.randn(4, 2).to(accelerator.device)" in new
    assert "setup" not in new
    unclear = text.replace("args=(world_size, 3)", "args=arguments")
    assert "line 29 starts processes with arguments" in convert(unclear).reason


def test_the_total_batch_size_is_not_offered() -> None:
    assert "its batch sizes are those of one process" in convert(script(), batch_size="total").reason


@pytest.mark.parametrize(
    "text",
    [
        "f\"cuda:{os.environ['LOCAL_RANK']}\"",
        "'cuda:' + os.environ['LOCAL_RANK']",
        "'cuda:' + str(dist.get_rank())",
    ],
)
def test_a_gpu_that_is_named_by_the_rank_in_place(text: str) -> None:
    setup = f"device = {text} if torch.cuda.is_available() else 'cpu'"
    found = convert(script(setup=setup, wrap="model = DDP(model.to(device))"), replace_ddp=True)
    assert found.changed, found.reason
    assert "LOCAL_RANK" not in found.new_text
    assert "device = accelerator.device" in found.new_text
