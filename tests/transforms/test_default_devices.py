"""Devices that a function takes by default."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.conversion import Conversion, ConvertOptions
from accelify.convert import convert_paths, convert_source
from accelify.source import Source
from tests.transforms.support import PATH

SCRIPT = """\
import argparse, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

def sample(n, device={default}):
    return torch.rand(n, 4, device=device)

class Pool:
    def draw(self, n, *, device={default}):
        return torch.rand(n, 4, device=device)

def train(model, loader, device={default}):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    pool = Pool()
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        {noise}
        loss = (model(x + noise) - y).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

if __name__ == "__main__":
    {options}
    loader = DataLoader(TensorDataset(torch.randn(16, 4), torch.randn(16, 1)), batch_size=4)
    model = nn.Linear(4, 1).to("cuda")
    {call}
"""


def converted(
    noise: str, call: str = "train(model, loader)", options: str = "pass", default: str = '"cuda"'
) -> Conversion:
    text = SCRIPT.format(noise=noise, call=call, options=options, default=default)
    found = convert_source(Source.from_text(text, PATH), ConvertOptions())
    assert found.status == "converted", found.reason
    again = convert_source(Source.from_text(found.new_text, PATH), ConvertOptions())
    assert again.new_text == found.new_text
    return found


@pytest.mark.parametrize("default", ['"cuda"', '"cuda:0"', 'torch.device("cuda")'])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("noise = sample(len(x))", "noise = sample(len(x), device=accelerator.device)"),
        ("noise = pool.draw(len(x))", "noise = pool.draw(len(x), device=accelerator.device)"),
    ],
)
def test_calls_that_leave_it_out(before: str, after: str, default: str) -> None:
    found = converted(before, default=default)
    assert after in found.new_text
    # What only the moves read that are gone is not handed over.
    assert "    train(accelerator, model, loader)\n" in found.new_text
    assert "accelerator = Accelerator()\n" in found.new_text
    assert not found.remaining


def test_one_that_hands_it_on() -> None:
    found = converted("noise = sample(len(x), device=device)")
    assert "noise = sample(len(x), device=device)" in found.new_text
    assert "train(accelerator, model, loader, device=accelerator.device)" in found.new_text
    assert not found.remaining


def test_one_that_is_told() -> None:
    options = "args = argparse.ArgumentParser().parse_args()"
    found = converted("noise = sample(len(x), device)", "train(model, loader, args.device)", options)
    assert 'accelerator = Accelerator(cpu=str(args.device) == "cpu")\n' in found.new_text
    assert "args.device = accelerator.device\n" in found.new_text
    assert "sample(len(x), device)" in found.new_text
    assert "train(accelerator, model, loader, args.device)" in found.new_text


@pytest.mark.parametrize("call", ["sample(*[len(x)])", "sample(len(x), **{})", "sample(len(x), x.device)"])
def test_calls_that_may_tell_it(call: str) -> None:
    assert f"noise = {call}\n" in converted(f"noise = {call}").new_text


@pytest.mark.parametrize("default", ['"cpu"', '"mean"', "None"])
def test_other_defaults(default: str) -> None:
    assert "noise = sample(len(x))\n" in converted("noise = sample(len(x))", default=default).new_text


def test_functions_of_other_modules(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(
        'import torch\ndef sample(n, device="cuda"):\n    return torch.rand(n, 4, device=device)\n'
    )
    text = SCRIPT.format(
        noise="noise = sample(4)", call="train(model, loader)", options="pass", default="None"
    )
    start, end = text.index("def sample"), text.index("class Pool")
    (tmp_path / "train.py").write_text(f"{text[:start]}from tools import sample\n{text[end:]}")
    found = next(c for c in convert_paths([tmp_path / "train.py"]) if c.source.path.name == "train.py")
    assert "noise = sample(4, device=accelerator.device)" in found.new_text
