"""One training loop in mixed precision: by hand with torch.amp, and with the Accelerator."""

import contextlib
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.distributed.processes import fresh_accelerator

DTYPES = {"no": None, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Setting:
    """What both loops do.

    Args:
        precision: "no", "bf16" or "fp16".
        region: the loss is worked out within autocast; False: the forward alone, whose output is float32.
        accumulate: batches of a window.
        clip: norm to which gradients are clipped; None: they are not.
        fused: AdamW in one kernel, which leaves overflowing steps out by itself.
        overflows: batches whose gradients are infinite in fp16.
        compiled: by torch.compile, in "the script" or, with the same numbers, by "the Accelerator".
    """

    precision: str = "fp16"
    region: bool = True
    accumulate: int = 1
    clip: float | None = None
    fused: bool = False
    overflows: tuple[int, ...] = ()
    compiled: str = ""


def parts(setting, device):
    """Model, optimizer, scheduler and loader; the model on the host."""
    torch.manual_seed(4)
    x = torch.randn(76, 16)
    loader = DataLoader(TensorDataset(x, x.roll(1, 1)), batch_size=8, shuffle=True)
    model = nn.Sequential(nn.Linear(16, 64), nn.LayerNorm(64), nn.GELU(), nn.Dropout(0.1), nn.Linear(64, 16))
    model = model if device is None else model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, fused=setting.fused or None)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + 0.2 * step))
    return model, optimizer, scheduler, loader


def _loss(model, x, y, overflows):
    loss = nn.functional.mse_loss(model(x), y)
    return loss * 1e38 * 1e10 if overflows else loss


def by_hand(setting, device):
    """(loss, learning rate, scale) of every batch, and the weights at the end."""
    dtype = DTYPES[setting.precision]

    def region():
        return torch.autocast(device, dtype=dtype) if dtype else contextlib.nullcontext()

    def in_autocast(x):
        with region():
            output = model(x)
        return output.float()

    model, optimizer, scheduler, loader = parts(setting, device)
    model = torch.compile(model) if setting.compiled else model
    scaled = setting.precision == "fp16"
    scaler = torch.amp.GradScaler(device, init_scale=2.0**10, growth_interval=5, enabled=scaled)
    history, number = [], 0
    for _ in range(2):
        for i, (x, y) in enumerate(loader):
            x, y = x.to(device), y.to(device)
            overflows = number in setting.overflows
            number += 1
            if setting.region:
                with region():
                    loss = _loss(model, x, y, overflows)
            else:
                loss = _loss(in_autocast, x, y, overflows)
            history.append((loss.item(), optimizer.param_groups[0]["lr"]))
            begun = i - i % setting.accumulate
            scaler.scale(loss / min(setting.accumulate, len(loader) - begun)).backward()
            if (i + 1) % setting.accumulate == 0 or i + 1 == len(loader):
                if setting.clip is not None:
                    scaler.unscale_(optimizer)
                    nn.utils.clip_grad_norm_(model.parameters(), setting.clip)
                before = scaler.get_scale()
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
                if scaler.get_scale() >= before:
                    scheduler.step()
            history[-1] += (scaler.get_scale(),)
    return history, [p.detach().clone() for p in model.parameters()], number


def accelerated(setting, cpu):
    """The same with the Accelerator, and how many of its steps it says were left out."""
    from accelify.runtime import GradScalerKwargs

    accelerator = fresh_accelerator(
        cpu=cpu,
        dynamo_backend="inductor" if setting.compiled == "the Accelerator" else None,
        mixed_precision=setting.precision,
        gradient_accumulation_steps=setting.accumulate,
        kwargs_handlers=[GradScalerKwargs(init_scale=2.0**10, growth_interval=5)],
    )
    model, *others = parts(setting, None)
    model = torch.compile(model) if setting.compiled == "the script" else model
    model, optimizer, scheduler, loader = accelerator.prepare(model, *others)
    history, skipped, number = [], [], 0
    for _ in range(2):
        for x, y in loader:
            with accelerator.accumulate(model):
                overflows = number in setting.overflows
                with accelerator.autocast() if setting.region else contextlib.nullcontext():
                    loss = _loss(model, x, y, overflows)
                history.append((loss.item(), optimizer.param_groups[0]["lr"]))
                accelerator.backward(loss)
                if accelerator.sync_gradients and setting.clip is not None:
                    accelerator.clip_grad_norm_(model.parameters(), setting.clip)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
                if accelerator.sync_gradients and accelerator.optimizer_step_was_skipped:
                    skipped.append(number)
                history[-1] += (accelerator.scaler.get_scale(),)
            number += 1
    return history, [p.detach().clone() for p in model.parameters()], skipped
