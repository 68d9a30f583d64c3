"""The DeepSpeed engine, run for real: ZeRO 0 to 3 on the CPU over gloo."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.distributed.processes import fresh_accelerator, run_ranks, try_ranks
from tests.runtime.training import Setting, flat, make_data, make_model, train_accelerated, train_plain

pytestmark = [
    pytest.mark.distributed,
    pytest.mark.skipif(find_spec("deepspeed") is None, reason="deepspeed is not installed"),
]

ROOT = Path(__file__).parents[2]
# 33 samples in batches of 16 end with a batch of 1, of which the second rank gets nothing; 75 with a window of one.
SETTINGS = [
    Setting(samples=33, accumulate=2, clip=0.1, schedule="batch", optimizer="adam"),
    Setting(samples=75, accumulate=2, schedule="epoch"),
    Setting(clip=0.1, loss="sum"),
]


def plugin(stage, **kwargs):
    from accelify.runtime import DeepSpeedPlugin

    return DeepSpeedPlugin(zero_stage=stage, **kwargs)


@pytest.fixture(scope="module", autouse=True)
def _operations_compiled():
    """DeepSpeed compiles an operation the first time, for half a minute and more."""
    run_ranks(1, _take_a_step, 1, timeout=580)


@pytest.fixture(scope="module")
def on_two_ranks():
    """What each of the functions below gives on two ranks, by its name; one start of processes for each stage."""
    known = {}

    def results(stage, name):
        if stage not in known:
            known[stage] = run_ranks(2, _everything, stage, timeout=300)
        return [own[name] for own in known[stage]]

    return results


def _everything(stage):
    found = {}
    for function in (_train_all, _weigh_by_tokens, _unusual, _adversaries_under_deepspeed, _half, _overflow):
        try:
            found[function.__name__] = function(stage)
        except BaseException as error:
            error.add_note(f"in {function.__name__}")
            raise
    return found


def _take_a_step(stage):
    acc = fresh_accelerator(deepspeed_plugin=plugin(stage))
    model = make_model()
    model, optimizer = acc.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    acc.backward(model(torch.ones(2, 6)).sum())
    optimizer.step()
    assert acc.distributed_type == "DEEPSPEED"


def _train_all(stage):
    return [train_accelerated(s, split_batches=True, deepspeed_plugin=plugin(stage)) for s in SETTINGS]


@pytest.mark.parametrize(("stage", "ranks"), [(0, 2), (1, 2), (2, 2), (3, 2), (3, 1)])
def test_training_follows_plain_pytorch(stage, ranks, on_two_ranks):
    results = on_two_ranks(stage, "_train_all") if ranks == 2 else run_ranks(1, _train_all, stage)
    for i, setting in enumerate(SETTINGS):
        expected, weights = train_plain(setting)
        for result in results:
            history, own = result[i]
            assert len(history) == len(expected)
            for step, (a, b) in enumerate(zip(expected, history, strict=True)):
                assert b == pytest.approx(a, rel=2e-5, abs=1e-7), (setting, step)
            torch.testing.assert_close(own, weights, rtol=2e-4, atol=2e-6)
            assert torch.equal(own, results[0][i][1])


# Gradients


def _weigh_by_tokens(stage):
    """Three batches in a window, each of another weight, on each rank."""
    acc = fresh_accelerator(gradient_accumulation_steps=3, deepspeed_plugin=plugin(stage))
    torch.manual_seed(0)
    model = make_model()
    model, optimizer = acc.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for step in range(3):
        with acc.accumulate(model):
            loss = model(_token_batch(acc.process_index, step)).pow(2).mean()
            acc.backward(loss, weight=1 + step + 3 * acc.process_index)
            optimizer.step()
            optimizer.zero_grad()
    return flat_state(acc, model)


def _token_batch(rank, step):
    generator = torch.Generator().manual_seed(10 * rank + step)
    return torch.randn(4, 6, generator=generator)


def flat_state(acc, model):
    return torch.cat([v.reshape(-1) for v in acc.get_state_dict(model).values()])


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_tokens_weigh_over_windows_and_ranks(stage, on_two_ranks):
    torch.manual_seed(0)
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    total = sum(1 + step + 3 * rank for step in range(3) for rank in range(2))
    for step in range(3):
        for rank in range(2):
            loss = model(_token_batch(rank, step)).pow(2).mean()
            (loss * (1 + step + 3 * rank) / total).backward()
    optimizer.step()
    for own in on_two_ranks(stage, "_weigh_by_tokens"):
        torch.testing.assert_close(own, flat(model), rtol=1e-5, atol=1e-7)


class Parts(nn.Module):
    """Two parts, of which a step may use one; and a method besides forward."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 2)
        self.second = nn.Linear(3, 2)

    def forward(self, x, both=True):
        return self.first(x) + self.second(x) if both else self.first(x)

    def energy(self, x):
        return self.forward(x).pow(2).mean()


def _unusual_steps(prepare, backward):
    """Steps with an unused part, two backwards, another method, gradients thrown away, and clipping by value."""
    torch.manual_seed(1)
    model = Parts()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model, optimizer, clip_value, clip_norm = prepare(model, optimizer)
    norms = []
    for step in range(6):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(step))
        if step == 1:
            backward(model(x, both=False).pow(2).mean())
        elif step == 2:
            one, two = model(x).pow(2).mean(), model(2 * x).abs().mean()
            backward(one)
            backward(two)
        elif step == 3:
            backward(model.energy(x))
        elif step == 4:
            backward(100 * model(x).sum())
            optimizer.zero_grad(set_to_none=False)
            backward(model(x).pow(2).mean())
            clip_value(model.parameters(), 0.05)
        else:
            backward(model(x).pow(2).mean())
            norms.append(float(clip_norm(model.parameters(), 0.3, 1.0 if step else float("inf"))))
        optimizer.step()
        # To DeepSpeed a part that is not used has gradients of zero, not none: momentum goes on.
        optimizer.zero_grad(set_to_none=False)
    return model, norms


def _unusual(stage, **shape):
    acc = fresh_accelerator(deepspeed_plugin=plugin(stage, **shape))

    def prepare(model, optimizer):
        return *acc.prepare(model, optimizer), acc.clip_grad_value_, acc.clip_grad_norm_

    model, norms = _unusual_steps(prepare, acc.backward)
    return flat_state(acc, model), norms


def _check_unusual(results):
    def prepare(model, optimizer):
        return model, optimizer, nn.utils.clip_grad_value_, nn.utils.clip_grad_norm_

    model, expected = _unusual_steps(prepare, lambda loss: loss.backward())
    for weights, norms in results:
        assert norms == pytest.approx(expected, rel=1e-5)
        torch.testing.assert_close(weights, flat(model), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_unusual_steps_follow_plain_pytorch(stage, on_two_ranks):
    _check_unusual(on_two_ranks(stage, "_unusual"))


def _unusual_on_the_host():
    host = {"offload_optimizer_device": "cpu"}
    return _unusual(2, **host), _unusual(3, **host, offload_param_device="cpu")


def test_states_on_the_host_change_nothing():
    for results in zip(*run_ranks(2, _unusual_on_the_host), strict=True):
        _check_unusual(results)


# Several models


def _generator():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 6))


def _discriminator():
    return nn.Sequential(nn.Linear(6, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))


def _adversaries(prepare, backward, rank=0, ranks=1):
    torch.manual_seed(2)
    g, d = _generator(), _discriminator()
    opt_g = torch.optim.Adam(g.parameters(), lr=0.01)
    opt_d = torch.optim.Adam(d.parameters(), lr=0.01)
    g, d, opt_g, opt_d = prepare(g, d, opt_g, opt_d)
    loss = nn.BCEWithLogitsLoss()
    data = make_data(48)[:][0]
    noise = torch.randn(48, 4, generator=torch.Generator().manual_seed(4))
    losses = []
    for step in range(6):
        rows = slice(8 * step + 8 // ranks * rank, 8 * step + 8 // ranks * (rank + 1))
        real, z = data[rows], noise[rows]
        ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)
        opt_d.zero_grad()
        fake = g(z)
        backward(loss(d(real), ones))
        backward(loss(d(fake.detach()), zeros))
        opt_d.step()
        opt_g.zero_grad()
        cheat = loss(d(fake), ones)
        backward(cheat)
        opt_g.step()
        losses.append(cheat.item())
    return g, d, losses


def _adversaries_under_deepspeed(stage):
    acc = fresh_accelerator(deepspeed_plugin=plugin(stage))
    g, d, losses = _adversaries(acc.prepare, acc.backward, acc.process_index, 2)
    return flat_state(acc, g), flat_state(acc, d), acc.reduce(torch.tensor(losses), "mean")


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_two_models_train_each_other(stage, on_two_ranks):
    g, d, losses = _adversaries(lambda *objects: objects, lambda loss: loss.backward())
    for own_g, own_d, own_losses in on_two_ranks(stage, "_adversaries_under_deepspeed"):
        torch.testing.assert_close(own_losses, torch.tensor(losses), rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(own_g, flat(g), rtol=1e-3, atol=1e-5)
        torch.testing.assert_close(own_d, flat(d), rtol=1e-3, atol=1e-5)


# Precision


def _let_fp16_run():
    """torch computes in fp16 on any CPU; DeepSpeed allows it only where the CPU is made for it."""
    os.environ["DS_ACCELERATOR"] = "cpu"
    from deepspeed.accelerator import get_accelerator

    get_accelerator().is_fp16_supported = lambda: True


def _half_precision(stage, precision, clip):
    """SGD, which unlike Adam shows a wrong scale of the gradients."""
    from accelify.runtime import GradScalerKwargs

    _let_fp16_run()
    # From the usual scale on, the first steps would overflow and be left out.
    handlers = [GradScalerKwargs(init_scale=256.0)] if precision == "fp16" else []
    acc = fresh_accelerator(
        mixed_precision=precision, deepspeed_plugin=plugin(stage), kwargs_handlers=handlers
    )
    torch.manual_seed(0)
    model = make_model()
    model, optimizer = acc.prepare(model, torch.optim.SGD(model.parameters(), lr=0.05))
    data = make_data(64)
    losses = []
    for step in range(8):
        rows = slice(8 * step + 4 * acc.process_index, 8 * step + 4 * (acc.process_index + 1))
        x, y = data[rows]
        output = model(x)
        assert output.dtype == torch.float32
        loss = nn.functional.mse_loss(output, y)
        acc.backward(loss)
        if clip:
            acc.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(acc.reduce(loss.detach(), "mean").item())
    weights = acc.get_state_dict(model)
    assert {v.dtype for v in weights.values()} == {torch.float32}
    return losses, torch.cat([v.reshape(-1) for v in weights.values()])


def _half(stage):
    return {p: _half_precision(stage, p, clip=stage != 1) for p in ("bf16", "fp16")}


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_half_precision_stays_near_plain_pytorch(stage, precision, on_two_ranks):
    clip = stage != 1
    torch.manual_seed(0)
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    expected = []
    for step in range(8):
        x, y = make_data(64)[8 * step : 8 * step + 8]
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
        expected.append(loss.item())
    for losses, weights in [own[precision] for own in on_two_ranks(stage, "_half")]:
        assert losses == pytest.approx(expected, rel=0.02 if precision == "bf16" else 0.005)
        torch.testing.assert_close(weights, flat(model), rtol=0.05, atol=0.01)


def _overflow(stage):
    _let_fp16_run()
    acc = fresh_accelerator(
        mixed_precision="fp16",
        deepspeed_plugin=plugin(stage, hf_ds_config={"fp16": {"enabled": True, "hysteresis": 1}}),
    )
    model = make_model()
    model, optimizer = acc.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    scheduler = acc.prepare(torch.optim.lr_scheduler.StepLR(optimizer.optimizer, 1, gamma=0.5))
    seen = []
    for factor in (1e-3, 1e6, 1e-3):
        acc.backward(model(torch.ones(2, 6)).sum() * factor)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        seen.append((acc.optimizer_step_was_skipped, optimizer.param_groups[0]["lr"]))
    return seen


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_an_overflow_is_seen_by_scheduler_and_script(stage, on_two_ranks):
    for seen in on_two_ranks(stage, "_overflow"):
        assert seen == [(False, 0.05), (True, 0.05), (False, 0.025)]


# Files


def _train_and_save(stage, precision, asynchronous, home):
    from accelify.runtime import load_weights

    acc = fresh_accelerator(mixed_precision=precision, deepspeed_plugin=plugin(stage))
    assert acc.state.deepspeed_plugin.deepspeed_config["gradient_accumulation_steps"] == 1
    torch.manual_seed(0)
    model, frozen = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)), make_model()
    model[0].bias.requires_grad_(False)
    frozen.requires_grad_(False)
    model, frozen, optimizer = acc.prepare(
        model, frozen, torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.05)
    )
    scheduler = acc.prepare(torch.optim.lr_scheduler.StepLR(optimizer.optimizer, 2, gamma=0.5))

    def steps(first, last):
        losses = []
        for step in range(first, last):
            x = torch.randn(4, 6, generator=torch.Generator().manual_seed(step + 100 * acc.process_index))
            loss = (model(x) - frozen(x)).pow(2).mean()
            acc.backward(loss)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        return losses

    steps(0, 3)
    # Asked to write in the background, DeepSpeed writes at once: the checkpoint holds what there was at the call.
    acc.save_state(home / "state", asynchronous=asynchronous)
    acc.save_model(model, home / "weights")
    own = acc.unwrap_model(model).state_dict()
    acc.save(own, home / "plain.pt")
    whole = acc.get_state_dict(model)
    went_on = steps(3, 6)
    acc.load_state(home / "state")
    again = steps(3, 6)
    load_weights(model, home / "weights", engine=acc.backend)
    back = acc.get_state_dict(model)
    assert all(torch.equal(back[n], whole[n]) for n in whole)
    return went_on, again, {n: v.clone() for n, v in whole.items()}


def _resume(stage, home):
    acc = fresh_accelerator(deepspeed_plugin=plugin(stage))
    model, frozen = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)), make_model()
    model[0].bias.requires_grad_(False)
    frozen.requires_grad_(False)
    model, frozen, optimizer = acc.prepare(
        model, frozen, torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.05)
    )
    acc.prepare(torch.optim.lr_scheduler.StepLR(optimizer.optimizer, 2, gamma=0.5))
    acc.load_state(home / "state")
    return optimizer.param_groups[0]["lr"], acc.get_state_dict(model)


@pytest.mark.parametrize(
    ("stage", "precision", "asynchronous"),
    [(0, "no", False), (1, "no", True), (2, "bf16", False), (3, "no", True), (3, "bf16", False)],
)
def test_checkpoints_go_on_and_weights_load_in_plain_pytorch(stage, precision, asynchronous, tmp_path):
    from accelify.runtime import load_weights

    for went_on, again, whole in run_ranks(2, _train_and_save, stage, precision, asynchronous, tmp_path):
        assert again == went_on
        model = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))
        load_weights(model, tmp_path / "weights")
        assert all(torch.equal(model.state_dict()[n], v) for n, v in whole.items())
        model.load_state_dict(torch.load(tmp_path / "plain.pt"))
        for name, value in whole.items():
            torch.testing.assert_close(model.state_dict()[name], value, rtol=1e-2, atol=1e-2)
    if precision == "no":
        for rate, weights in run_ranks(2, _resume, stage, tmp_path):
            assert rate == 0.025
            assert all(torch.equal(weights[n], v) for n, v in whole.items())


def _load_with(stage, home):
    acc = fresh_accelerator(deepspeed_plugin=plugin(stage))
    model = make_model()
    acc.prepare(model, torch.optim.Adam(model.parameters()))
    acc.load_state(home / "state")


def _save_with(stage, home):
    acc = fresh_accelerator(deepspeed_plugin=plugin(stage))
    model = make_model()
    acc.prepare(model, torch.optim.Adam(model.parameters()))
    acc.save_state(home / "state")


def test_a_checkpoint_that_does_not_fit_says_so(tmp_path):
    run_ranks(1, _save_with, 1, tmp_path)
    (other,) = try_ranks(1, _load_with, 2, tmp_path)
    assert "was saved with zero_stage 1, this run has 2" in other.error
    assert all("was saved by 1 processes" in o.error for o in try_ranks(2, _load_with, 1, tmp_path))
    (tmp_path / "state/model_0/latest").write_text("torn off here")
    (torn,) = try_ranks(1, _load_with, 1, tmp_path)
    assert "is torn" in torn.error


# Told by a file, by the launcher, or by DeepSpeed's own launcher

JSON = {
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
    "bf16": {"enabled": "auto"},
    "fp16": {"enabled": "auto", "loss_scale": "auto"},
    "zero_optimization": {
        "stage": 3,
        "overlap_comm": "auto",
        "reduce_bucket_size": "auto",
        "stage3_prefetch_bucket_size": "auto",
        "stage3_param_persistence_threshold": "auto",
    },
    "optimizer": {
        "type": "AdamW",
        "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto", "torch_adam": True},
    },
    "scheduler": {
        "type": "WarmupDecayLR",
        "params": {
            "warmup_min_lr": "auto",
            "warmup_max_lr": "auto",
            "warmup_num_steps": "auto",
            "total_num_steps": "auto",
            "warmup_type": "linear",
        },
    },
}


def _follow_the_file(path):
    from accelify.runtime import DeepSpeedPlugin, DummyOptim, DummyScheduler

    acc = fresh_accelerator(
        split_batches=True, gradient_accumulation_steps=2, deepspeed_plugin=DeepSpeedPlugin(hf_ds_config=path)
    )
    torch.manual_seed(0)
    model = make_model()
    optimizer = DummyOptim(model.parameters(), lr=0.02, weight_decay=0.1)
    scheduler = DummyScheduler(optimizer, total_num_steps=8, warmup_num_steps=3)
    loader = torch.utils.data.DataLoader(make_data(40), batch_size=8)
    model, optimizer, loader, scheduler = acc.prepare(model, optimizer, loader, scheduler)
    config = acc.backend.trainings()[0].engine.config
    assert config["train_micro_batch_size_per_gpu"] == 4
    assert not config["bf16"]["enabled"]
    rates = []
    for _ in range(2):
        for x, y in loader:
            with acc.accumulate(model):
                acc.backward(nn.functional.mse_loss(model(x), y))
                optimizer.step()
                optimizer.zero_grad()
                if acc.sync_gradients:
                    rates.append(optimizer.param_groups[0]["lr"])
                scheduler.step()
    return rates, flat_state(acc, model)


def test_open_values_of_the_users_file_are_filled_in(tmp_path):
    path = tmp_path / "zero3.json"
    path.write_text(json.dumps(JSON))
    (rates, weights), (_, other) = run_ranks(2, _follow_the_file, path)
    assert torch.equal(weights, other)
    # As in DeepSpeed's own loop: nothing before the schedule begins, up to 0.02, down to nothing at the end.
    assert rates == pytest.approx([0.0, 0.0, 0.02 / 3, 0.04 / 3, 0.02, 0.016], rel=1e-5)
    torch.manual_seed(0)
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02, weight_decay=0.1)
    for step, rate in enumerate(rates):
        optimizer.param_groups[0]["lr"] = rate
        size = 8 if step % 3 == 2 else 16
        x, y = make_data(40)[step % 3 * 16 : step % 3 * 16 + size]
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    torch.testing.assert_close(weights, flat(model), rtol=1e-4, atol=1e-6)


def _names_no_engine():
    acc = fresh_accelerator()
    model = make_model()
    model, optimizer = acc.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    acc.backward(model(torch.ones(2, 6)).sum())
    optimizer.step()
    return str(acc.distributed_type), acc.backend.plugin.zero_stage, acc.gradient_accumulation_steps


def test_a_script_that_names_no_engine():
    told = {"deepspeed": {"zero_stage": 2, "gradient_accumulation_steps": 4, "offload_param_device": "none"}}
    env = {"ACCELIFY_ENGINE": json.dumps(told)}
    assert run_ranks(1, _names_no_engine, env=env) == [("DEEPSPEED", 2, 4)]


SCRIPT = """
import argparse, os, sys
import torch
from accelify.runtime import Accelerator, DeepSpeedPlugin

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
args = parser.parse_args()
acc = Accelerator(deepspeed_plugin=DeepSpeedPlugin(zero_stage=1))
model = torch.nn.Linear(2, 1)
model, optimizer = acc.prepare(model, torch.optim.SGD(model.parameters(), lr=args.lr))
acc.backward(model(torch.ones(1, 2)).sum())
optimizer.step()
print(f"rank {acc.process_index} of {acc.num_processes}, lr {args.lr}, {sys.argv[1:]}", os.environ["LOCAL_RANK"])
"""


def test_the_deepspeed_launchers_argument_does_not_break_a_script(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "DS_ACCELERATOR": "cpu",
        "OMP_NUM_THREADS": "1",
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
    }
    command = [
        sys.executable,
        "-m",
        "deepspeed.launcher.runner",
        "--num_gpus=1",
        "--master_port=0",
        str(script),
        "--lr",
        "0.5",
    ]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert "rank 0 of 1, lr 0.5, ['--lr', '0.5'] 0" in done.stdout, done.stdout + done.stderr
