"""What `--replace-ddp` makes of a script trains as the script did: on two processes, step by step."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

import pytest

from accelify.conversion import ConvertOptions
from accelify.convert import convert_source
from accelify.source import Source
from tests.distributed.processes import run_ranks

pytestmark = pytest.mark.distributed
FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
KEPT: list[object] = []


def run_recorded(path, arguments, ranks):
    """Run a script to its end; the parameters after every step, every loss, and what it printed last."""
    import torch
    import torch.distributed as dist
    import torch.multiprocessing as mp
    from torch.optim.optimizer import register_optimizer_step_post_hook
    from torch.utils.data import DistributedSampler, RandomSampler

    launcher = {k: os.environ[k] for k in ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE")}
    start_group = dist.init_process_group

    def start(*args, **kwargs):
        # The test's own rendezvous, whatever the script says.
        os.environ.update(launcher)
        start_group("gloo")

    def spawn(worker, args=(), nprocs=1, join=True):
        # The processes are there already: this is one of them.
        assert nprocs == ranks
        worker(int(launcher["RANK"]), *args)

    def draw(sampler):
        # torch's two samplers shuffle by different generators; here by the same, anew in every epoch.
        epoch = drawn[0] = drawn[0] + 1
        generator = torch.Generator().manual_seed(1000 + epoch)
        return torch.randperm(len(sampler.data_source), generator=generator).tolist()

    drawn = [0]

    def of_random(self):
        yield from draw(self)

    def of_distributed(self):
        self.data_source = self.dataset
        order = draw(self) if self.shuffle else list(range(len(self.dataset)))
        assert len(order) % self.num_replicas == 0
        yield from order[self.rank :: self.num_replicas]

    weights, losses = [], []

    def stepped(optimizer, *_):
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        weights.append(torch.cat([p.detach().double().flatten() for p in parameters]))

    backward = torch.Tensor.backward

    def recorded(self, *args, **kwargs):
        losses.append(self.item())
        return backward(self, *args, **kwargs)

    make_wrapper = torch.nn.parallel.DistributedDataParallel.__init__

    def make_kept(self, *args, **kwargs):
        # torch's own, where it dies after its process group, hangs in one run of four.
        KEPT.append(self)
        make_wrapper(self, *args, **kwargs)

    torch.nn.parallel.DistributedDataParallel.__init__ = make_kept
    dist.init_process_group = start
    mp.spawn = spawn
    RandomSampler.__iter__ = of_random
    DistributedSampler.__iter__ = of_distributed
    torch.Tensor.backward = recorded
    register_optimizer_step_post_hook(stepped)
    sys.argv = [str(path), *arguments]
    runpy.run_path(str(path), run_name="__main__")
    return torch.stack(weights), losses


CASES = [
    ("ddp_torchrun", ["--epochs", "2"]),
    ("ddp_torchrun", ["--epochs", "2", "--in-order"]),
    ("ddp_spawn", []),
    ("ddp_module", []),
]


@pytest.mark.parametrize(
    ("kind", "arguments"), CASES, ids=lambda value: "_".join(value) if isinstance(value, list) else value
)
def test_two_processes_train_as_before(kind, arguments, tmp_path):
    import torch

    before = FIXTURES / kind / "before.py"
    conversion = convert_source(Source.read(before), ConvertOptions(replace_ddp=True))
    assert conversion.status == "converted", conversion.reason
    after = tmp_path / "after.py"
    after.write_text(conversion.new_text)
    original = run_ranks(2, run_recorded, before, arguments, 2)
    converted = run_ranks(2, run_recorded, after, arguments, 2)
    steps = len(original[0][0])
    assert steps >= 6
    assert original[0][0].diff(dim=0).abs().max() > 1e-4, "it trains"
    for rank in range(2):
        assert converted[rank][0].shape == original[rank][0].shape
        torch.testing.assert_close(converted[rank][0], original[rank][0], rtol=1e-5, atol=1e-6)
    means = [
        [sum(pair) / 2 for pair in zip(*(r[1] for r in run), strict=True)] for run in (original, converted)
    ]
    assert means[1] == pytest.approx(means[0], rel=1e-5)


@pytest.mark.parametrize(
    ("kind", "arguments"), [("ddp_torchrun", ["--epochs", "1"]), ("ddp_spawn", ["--processes", "1"])]
)
def test_one_process_needs_no_group(kind, arguments, tmp_path):
    conversion = convert_source(Source.read(FIXTURES / kind / "before.py"), ConvertOptions(replace_ddp=True))
    after = tmp_path / "after.py"
    after.write_text(conversion.new_text)
    weights, losses = run_ranks(1, run_recorded, after, arguments, 1)[0]
    assert len(weights) == len(losses) >= 6
