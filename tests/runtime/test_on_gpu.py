"""What only a GPU shows of the runtime: where batches go, compiled models, checkpoints, launches, NCCL."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.utils.data import DataLoader

from accelify.runtime import DataLoaderConfiguration, InitProcessGroupKwargs
from tests.distributed.processes import fresh_accelerator, run_ranks
from tests.runtime.scaled import Setting, accelerated, by_hand, parts
from tests.runtime.training import Setting as Loop
from tests.runtime.training import train_accelerated, train_plain

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.parametrize(
    "loop",
    [
        Loop(),
        Loop(clip=0.1, schedule="batch", optimizer="adam"),
        Loop(accumulate=2, samples=75),
        Loop(sampler="stream"),
        Loop(workers=2, epochs=2),
    ],
    ids=str,
)
def test_one_gpu_gives_the_numbers_of_the_plain_loop(loop):
    expected, weights = train_plain(loop, "cuda")
    history, own = train_accelerated(loop, cpu=False)
    assert history == expected
    assert torch.equal(weights, own)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(("pinned", "asked"), [(False, False), (True, False), (False, True)])
def test_batches_come_to_the_gpu(workers, pinned, asked):
    accelerator = fresh_accelerator(cpu=False, dataloader_config=DataLoaderConfiguration(non_blocking=asked))
    data = [{"x": torch.full((1000,), float(i)), "name": str(i)} for i in range(64)]
    loader = DataLoader(data, batch_size=8, num_workers=workers, pin_memory=pinned)
    prepared = accelerator.prepare(loader)
    assert prepared.non_blocking == (pinned or asked)
    seen = 0
    for batch in prepared:
        assert batch["x"].device == torch.device("cuda", 0)
        assert accelerator.device == torch.device("cuda")
        assert batch["name"] == [str(i) for i in range(seen, seen + 8)]
        # While the device is busy, so that the next batch is there before this one was copied.
        torch.cuda._sleep(10_000_000)
        assert torch.equal(batch["x"][:, 0].cpu(), torch.arange(seen, seen + 8).float())
        seen += 8
    assert seen == 64


def _steps(accelerator, model, optimizer, scheduler, loader, losses, save_at=None, folder=None):
    for epoch in range(2):
        for number, (x, y) in enumerate(loader):
            loss = nn.functional.mse_loss(model(x), y)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            losses.append((loss.item(), scheduler.get_last_lr()[0], torch.rand((), device="cuda").item()))
            if save_at == (epoch, number):
                accelerator.save_state(folder)
                losses.clear()


@pytest.mark.parametrize("precision", ["no", "bf16", "fp16"])
@pytest.mark.parametrize("fused", [False, True])
def test_a_resumed_run_goes_on_to_the_bit(precision, fused, tmp_path):
    """Dropout and noise drawn on the GPU, the optimizer's state, the loss scale and the position in the epoch."""

    def begin():
        accelerator = fresh_accelerator(cpu=False, mixed_precision=precision)
        return accelerator, *accelerator.prepare(*parts(Setting(precision, fused=fused), None))

    run = begin()
    expected, model = [], run[1]
    _steps(*run, expected, (0, 3), tmp_path / "state")
    resumed = begin()
    torch.manual_seed(99)
    resumed[0].load_state(tmp_path / "state")
    losses = []
    _steps(*resumed, losses)
    assert losses == expected
    assert len(losses) == 16
    assert all(map(torch.equal, resumed[1].parameters(), model.parameters()))
    assert run[0].scaler.get_scale() == resumed[0].scaler.get_scale()


@pytest.mark.parametrize("compiled", ["the script", "the Accelerator"])
@pytest.mark.parametrize("precision", ["no", "bf16", "fp16"])
def test_compiled_models_have_the_numbers_of_those_compiled_by_hand(compiled, precision, monkeypatch):
    # torch 2.11 keeps the graph of one autocast type for that of another, too; 2.13 does not.
    monkeypatch.setattr("torch._functorch.config.enable_autograd_cache", False)
    setting = Setting(precision, compiled=compiled)
    torch._dynamo.reset()
    expected, weights, _ = by_hand(setting, "cuda")
    torch._dynamo.reset()
    history, own, _ = accelerated(setting, cpu=False)
    # To the bit wherever the compiler takes the same kernels; it tries them out, so it need not.
    assert [loss for loss, _, _ in history] == pytest.approx([loss for loss, _, _ in expected], rel=2e-3)
    assert [others for _, *others in history] == [others for _, *others in expected]
    for a, b in zip(own, weights, strict=True):
        torch.testing.assert_close(a, b, rtol=2e-2, atol=2e-3)


@pytest.mark.parametrize("compiled", ["the script", "the Accelerator"])
def test_compiled_models_are_saved_under_the_names_of_the_script(compiled, tmp_path):
    torch._dynamo.reset()
    backend = "inductor" if compiled == "the Accelerator" else None
    accelerator = fresh_accelerator(cpu=False, mixed_precision="bf16", dynamo_backend=backend)
    model, *others = parts(Setting("bf16"), None)
    names = list(model.state_dict())
    model, optimizer, *_ = accelerator.prepare(
        torch.compile(model) if compiled == "the script" else model, *others
    )
    accelerator.backward(model(torch.ones(8, 16, device="cuda")).square().mean())
    optimizer.step()
    accelerator.save_state(tmp_path / "state")
    accelerator.save_model(model, tmp_path / "model")
    for folder in ("state", "model"):
        assert sorted(load_file(tmp_path / folder / "model.safetensors")) == sorted(names)
    assert list(accelerator.get_state_dict(model)) == names
    assert list(accelerator.unwrap_model(model).state_dict()) == names
    before = [p.detach().clone() for p in model.parameters()]
    nn.init.zeros_(accelerator.unwrap_model(model)[0].weight)
    accelerator.load_state(tmp_path / "state")
    assert all(map(torch.equal, model.parameters(), before))


def _launched(*words, **environment):
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.distributed
@pytest.mark.parametrize("precision", ["no", "fp16"])
def test_the_self_test_on_one_gpu(precision):
    told = _launched("-m", "accelify", "test", "--num_processes", 1, "--mixed_precision", precision)
    assert "losses equal plain torch" in told
    assert "FAILS" not in told


@pytest.mark.distributed
def test_a_script_on_one_gpu(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\n"
        "from accelify.runtime import Accelerator\n"
        "accelerator = Accelerator()\n"
        "model = accelerator.prepare(torch.nn.Linear(2, 1))\n"
        "x = torch.ones(3, 2, device=accelerator.device)\n"
        "accelerator.backward(model(x).sum())\n"
        "print(accelerator.device, accelerator.mixed_precision, accelerator.gather(model.weight.grad).tolist())\n"
    )
    told = _launched("-m", "accelify", "launch", "--num_processes", 1, "--mixed_precision", "bf16", script)
    assert told == "cuda bf16 [[3.0, 3.0]]\n"


@pytest.mark.distributed
def test_a_group_of_one_over_nccl(tmp_path):
    """A script that forms its group by itself, as torchrun starts it."""
    script = tmp_path / "train.py"
    script.write_text(
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('nccl')\n"
        "from accelify.runtime import Accelerator\n"
        "accelerator = Accelerator()\n"
        "total = torch.ones(2, device=accelerator.device)\n"
        "dist.all_reduce(total)\n"
        "model = accelerator.prepare(torch.nn.Linear(2, 1))\n"
        "accelerator.backward(model(total[None]).sum())\n"
        "accelerator.wait_for_everyone()\n"
        "print(accelerator.state.backend, accelerator.num_processes, accelerator.gather(model.bias.grad).tolist())\n"
        "accelerator.end_training()\n"
        "dist.destroy_process_group()\n"
    )
    told = _launched("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 1, script)
    assert told == "nccl 1 [1.0]\n"


def _over_gloo(loops):
    group = InitProcessGroupKwargs(backend="gloo")
    return [train_accelerated(s, cpu=False, split_batches=True, kwargs_handlers=[group]) for s in loops]


@pytest.mark.distributed
def test_two_processes_that_share_the_gpu():
    """NCCL wants a GPU for each; gloo reaches the memory of one from both."""
    loops = [Loop(), Loop(samples=33, accumulate=2, clip=0.1, schedule="batch", optimizer="adam")]
    results = run_ranks(2, _over_gloo, loops)
    for i, loop in enumerate(loops):
        expected, weights = train_plain(loop, "cuda")
        for history, own in (result[i] for result in results):
            for a, b in zip(expected, history, strict=True):
                assert b == pytest.approx(a, rel=2e-5, abs=1e-7), loop
            torch.testing.assert_close(own.cpu(), weights.cpu(), rtol=2e-4, atol=2e-6)
