"""Mixed precision."""

from __future__ import annotations

import pytest

from tests.transforms.support import check_noop, check_transformed, convert

AMP = "from torch.cuda.amp import GradScaler, autocast"
DEVICE = "device = torch.device('cuda')"
LOSS = "loss = F.cross_entropy(model(x), y)"
UNDER = {"imports": AMP, "loss": f"with autocast():\n    {LOSS}"}
STEP = "scaler.step(optimizer)\nscaler.update()"
SCALED = "scaler.scale(loss).backward()"
MADE = f"{DEVICE}\nscaler = GradScaler()"


def test_a_dtype_from_a_variable_stays_the_scripts_own() -> None:
    check_noop(
        "loss",
        f"with torch.autocast(device_type='cuda', dtype=dtype):\n    {LOSS}",
        "ACC110",
        "ACC111",
        setup="dtype = torch.float16",
    )


@pytest.mark.parametrize(
    "head", ["autocast()", "torch.autocast('cuda', dtype=torch.bfloat16)", "torch.autocast('cuda')"]
)
def test_autocast(head: str) -> None:
    check_transformed(
        "loss", f"with {head}:\n    {LOSS}", f"with accelerator.autocast():\n    {LOSS}", imports=AMP
    )


@pytest.mark.parametrize(
    ("place", "before", "after"),
    [
        ("update", STEP, "optimizer.step()"),
        ("backward", SCALED, "accelerator.backward(loss)"),
        (
            "backward",
            f"{SCALED}\nscaler.unscale_(optimizer)\ntorch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
            "accelerator.backward(loss)\naccelerator.clip_grad_norm_(model.parameters(), 1.0)",
        ),
        (
            "setup",
            MADE,
            'accelerator = Accelerator(mixed_precision="fp16" if torch.cuda.is_available() else "no")\n'
            "device = accelerator.device",
        ),
    ],
)
def test_scaler(place: str, before: str, after: str) -> None:
    others = {"setup": MADE, "backward": SCALED, "update": STEP, **UNDER}
    others.pop(place)
    check_transformed(place, before, after, **others)


def test_a_scaler_that_is_saved_keeps_its_name() -> None:
    conversion = convert(
        setup=MADE, backward=SCALED, update=STEP, end="torch.save(scaler.state_dict(), 's.pt')", **UNDER
    )
    assert "scaler = accelerator.scaler\n" in conversion.new_text
