"""Mixed precision is that of a loop by hand with torch.amp, to the bit: losses, learning rates, scales and weights."""

from itertools import pairwise

import pytest
import torch

from accelify.runtime import GradScalerKwargs
from tests.distributed.processes import fresh_accelerator
from tests.runtime.scaled import Setting, accelerated, by_hand

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]

SETTINGS = [
    Setting("no"),
    Setting("no", accumulate=3, clip=0.1),
    Setting("bf16"),
    Setting("bf16", region=False, accumulate=3, clip=0.1),
    Setting("fp16"),
    Setting("fp16", region=False, clip=0.1),
    Setting("fp16", accumulate=3, clip=0.1),
    Setting("fp16", fused=True, region=False),
    Setting("fp16", fused=True, accumulate=3, clip=0.1),
    # The first batch, one in the middle and the last.
    Setting("fp16", overflows=(0, 7, 19)),
    Setting("fp16", overflows=(0, 7, 19), clip=0.1, fused=True),
    Setting("fp16", overflows=(7,), accumulate=3, fused=True),
    Setting("fp16", overflows=(7, 8), accumulate=3, clip=0.1),
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_same_numbers_as_by_hand(setting, device):
    expected, weights, batches = by_hand(setting, device)
    history, own, skipped = accelerated(setting, cpu=device == "cpu")
    assert history == expected
    assert all(map(torch.equal, own, weights))
    assert len(history) == batches == 20
    scales = [2.0**10 if setting.precision == "fp16" else 1.0, *(scale for _, _, scale in history)]
    assert len(skipped) == sum(now < before for before, now in pairwise(scales))
    if setting.accumulate == 1:
        assert tuple(skipped) == setting.overflows


@pytest.mark.parametrize("device", DEVICES)
def test_a_scaler_that_is_kept_knows_of_the_last_step(device):
    accelerator = fresh_accelerator(cpu=device == "cpu", mixed_precision="fp16")
    model = torch.nn.Linear(2, 1)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    kept = accelerator.scaler
    scale = kept.get_scale()
    x = torch.ones(1, 2, device=accelerator.device)
    accelerator.backward(model(x).sum() * float("inf"))
    optimizer.step()
    assert kept.get_scale() == scale / 2
    accelerator.backward(model(x).sum() * float("inf"))
    optimizer.step()
    assert kept.state_dict()["scale"] == scale / 4


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_are_unscaled_at_the_end_of_a_window_only(device):
    accelerator = fresh_accelerator(
        cpu=device == "cpu", mixed_precision="fp16", gradient_accumulation_steps=2
    )
    model = torch.nn.Linear(2, 1)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    x = torch.ones(1, 2, device=accelerator.device)
    norms = []
    for _ in range(2):
        with accelerator.accumulate(model):
            accelerator.backward(model(x).sum())
            accelerator.unscale_gradients(optimizer)
            norms.append(model.bias.grad.item())
            optimizer.step()
    assert norms == [accelerator.scaler.get_scale() / 2, 1.0]


@pytest.mark.parametrize("ask", [lambda s: None, lambda s: s.get_scale(), lambda s: s.state_dict()])
@pytest.mark.parametrize("overflows", [False, True])
def test_asking_for_the_scale_between_two_steps_changes_nothing(ask, overflows):
    settings = [GradScalerKwargs(init_scale=1024.0, growth_interval=2)]
    accelerator = fresh_accelerator(mixed_precision="fp16", kwargs_handlers=settings)
    models = [torch.nn.Linear(2, 1, bias=False) for _ in range(2)]
    for model in models:
        torch.nn.init.ones_(model.weight)
    optimizers = [torch.optim.SGD(m.parameters(), lr=1.0) for m in models]
    prepared = accelerator.prepare(*models, *optimizers)
    scaler, x, scales = accelerator.scaler, torch.ones(1, 2), []
    for step in range(2):
        for optimizer in prepared[2:]:
            optimizer.zero_grad()
        factor = float("inf") if overflows and step else 1.0
        accelerator.backward(sum(m(x).sum() for m in prepared[:2]) * factor)
        accelerator.clip_grad_norm_([*models[0].parameters(), *models[1].parameters()], 1e9)
        for optimizer in prepared[2:]:
            optimizer.step()
            ask(scaler)
        scales.append(scaler.get_scale())
        state = scaler.state_dict()
        assert state["scale"] == scales[-1]
        assert state["_growth_tracker"] == (1 if step == 0 else 0)
    moved = 0.0 if overflows else -1.0
    assert [m.weight.tolist() for m in models] == [[[moved, moved]]] * 2
    assert scales == [1024.0, 512.0 if overflows else 2048.0]
