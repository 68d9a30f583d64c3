"""Casts of a script's own, around some of its forwards or without loss scaling, which stay as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.convert import convert_project
from accelify.source import Source
from tests.transforms.support import check_transformed, convert, frame, place_of

AMP = "from torch.amp import GradScaler, autocast"
DEVICE = "device = 'cuda' if torch.cuda.is_available() else 'cpu'"
LOSS = "loss = F.cross_entropy(model(x), y)"
CAST = f"with autocast(device_type=device, dtype=torch.bfloat16):\n    {LOSS}"
EVALUATION = """
model.eval()
with torch.no_grad():
    for x, y in test_loader:
        {region}
            total = F.cross_entropy(model(x.to(device)), y.to(device))
"""
BUILD = "model = nn.Linear(4, 2).to(device)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
PLAIN = EVALUATION.format(region="if True:")
SCALED = {
    "setup": f"{DEVICE}\nscaler = GradScaler(device)",
    "backward": "scaler.scale(loss).backward()",
    "update": "scaler.step(optimizer)\nscaler.update()",
}


def kept(**snippets: str) -> None:
    others = {"imports": AMP, "setup": DEVICE, "loss": CAST, **snippets}
    loss = others.pop("loss")
    conversion = check_transformed("loss", loss, loss, **others)
    assert "mixed_precision" not in conversion.new_text


def test_an_evaluation_outside_of_the_casts_stays_outside() -> None:
    kept(epoch=PLAIN)


def test_a_function_that_evaluates_outside_of_the_casts() -> None:
    function = "def evaluate(net):\n    return net(torch.ones(1, 4, device=device))\n"
    kept(build=f"{BUILD}\n{function}", epoch="evaluate(model)")


HANDED = """
import search


def evaluate(model, loader):
    model.eval()
    with torch.no_grad():
        return sum({score} for x, y in loader)


def objective(trial):
    loader = DataLoader(data, batch_size=8)
    model = nn.Linear(4, 2).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=trial.rate)
    scaler = GradScaler()
    for x, y in loader:
        with autocast("cuda"):
            loss = F.cross_entropy(model(x.cuda()), y.cuda())
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    return {result}


search.minimize(objective)
"""
HEAD = (
    "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n"
    "from torch.amp import GradScaler, autocast\nfrom torch.utils.data import DataLoader, TensorDataset\n\n"
    "data = TensorDataset(torch.zeros(64, 4), torch.zeros(64).long())\n"
)


@pytest.mark.parametrize(("result", "own"), [("evaluate(model, loader)", True), ("loss.item()", False)])
def test_a_function_that_a_library_calls(result: str, own: bool) -> None:
    score = "F.cross_entropy(model(x.cuda()), y.cuda()).item()" if own else "len(x)"
    script = HEAD + HANDED.format(score=score, result=result)
    (conversion,) = convert_project(Source.from_text(script, Path("/nowhere/train.py")))
    assert conversion.status == "converted"
    assert ("mixed_precision=" in conversion.new_text) == (not own)
    assert ("scaler.scale(loss)" in conversion.new_text) == own


def test_the_scripts_scaler_stays_with_its_casts() -> None:
    loss = f"with autocast(device_type=device):\n    {LOSS}"
    conversion = convert(imports=AMP, loss=loss, epoch=PLAIN, **SCALED)
    assert place_of(conversion.new_text, "backward") == "accelerator.backward(scaler.scale(loss))"
    assert place_of(conversion.new_text, "update") == SCALED["update"]
    assert "mixed_precision" not in conversion.new_text


def test_half_precision_without_loss_scaling_gets_none() -> None:
    kept(loss=f"with autocast(device_type=device):\n    {LOSS}")


def test_a_switch_that_is_known_after_the_accelerator_is_made_stays() -> None:
    use = "use_amp = '--amp' in sys.argv and model.weight.device.type == 'cuda'"
    cast = f"with autocast(device_type=device, dtype=torch.bfloat16, enabled=use_amp):\n    {LOSS}"
    kept(setup=f"import sys\n{DEVICE}", build=f"{BUILD}\n{use}", loss=cast)


def test_a_region_that_is_switched_off_stays_switched_off() -> None:
    loss = f"with autocast('cuda'):\n    out = model(x)\nwith autocast('cuda', enabled=False):\n    {LOSS}"
    conversion = convert(imports=AMP, loss=loss, **SCALED)
    assert place_of(conversion.new_text, "loss") == loss


@pytest.mark.parametrize("inside", ["with", "call"])
def test_casts_around_every_forward_are_the_accelerators(inside: str) -> None:
    if inside == "with":
        others = {"epoch": EVALUATION.format(region="with autocast(device, dtype=torch.bfloat16):")}
    else:
        function = "def forward(net, x):\n    return net(x)\n"
        call = "with autocast(device, dtype=torch.bfloat16):\n    forward(model, torch.ones(1, 4, device=device))"
        others = {"build": f"{BUILD}\n{function}", "epoch": call}
    conversion = check_transformed(
        "loss", CAST, f"with accelerator.autocast():\n    {LOSS}", imports=AMP, setup=DEVICE, **others
    )
    assert 'Accelerator(mixed_precision="bf16"' in conversion.new_text


PARTS = """
import torch
from torch import nn

try:
    autocast = torch.cuda.amp.autocast
except AttributeError:
    class autocast:
        def __init__(self, enabled):
            pass


class Net(nn.Module):
    def __init__(self, half):
        super().__init__()
        self.half, self.a, self.b = half, nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x):
        with {region}:
            h = self.a(x)
        h = h.float()
        return self.b(h) + (h @ h.t()).mean(1, keepdim=True)
"""


@pytest.mark.parametrize(
    ("region", "why"),
    [
        ("autocast(enabled=self.half)", "a model casts a part of its forward by itself"),
        ("torch.enable_grad()", "nothing is computed in half precision"),
    ],
)
def test_parts_of_a_forward_that_another_module_casts_or_nobody(
    tmp_path: Path, region: str, why: str
) -> None:
    (tmp_path / "net.py").write_text(PARTS.format(region=region))
    build = BUILD.replace("nn.Linear(4, 2)", "Net(True)")
    script = frame(imports=f"{AMP}\nfrom net import Net", build=build, **SCALED)
    (tmp_path / "train.py").write_text(script)
    (conversion,) = convert_project(Source.read(tmp_path / "train.py"))
    assert "mixed_precision" not in conversion.new_text
    assert "scaler.scale(loss)" in conversion.new_text
    assert any(why in one.message for one in conversion.remaining)


ELSEWHERE = """
import torch


class Half:
    def __init__(self, enabled):
        self.enabled = enabled

    def casts(self):
        return torch.autocast("cuda", dtype=torch.float16, enabled=self.enabled)


def make_scaler(half):
    return torch.amp.GradScaler("cuda", enabled=half.enabled)
"""


@pytest.mark.parametrize("here", [False, True])
def test_a_scaler_and_casts_of_another_module(tmp_path: Path, here: bool) -> None:
    # Nothing in the script says when to scale: what is not made here goes on to do it.
    (tmp_path / "half.py").write_text(ELSEWHERE)
    own = "GradScaler()" if here else "make_scaler(half)"
    build = f"{BUILD}\nhalf = Half(torch.cuda.is_available())\nscaler = {own}"
    parts = {
        "loss": f"with half.casts():\n    {LOSS}",
        "backward": "scaler.scale(loss).backward()\nscaler.unscale_(optimizer)",
        "update": "scaler.step(optimizer)\nscaler.update()",
    }
    imports = f"{AMP}\nfrom half import Half, make_scaler"
    (tmp_path / "train.py").write_text(frame(imports=imports, setup=DEVICE, build=build, **parts))
    (conversion,) = convert_project(Source.read(tmp_path / "train.py"))
    text = conversion.new_text
    assert ("accelerator.backward(scaler.scale(loss))" in text) is not here
    assert ("scaler.update()" in text) is not here
    assert ("mixed_precision=" in text) is here
    said = any("made in another module" in f.message for f in conversion.remaining if f.code == "ACC110")
    assert said is not here
