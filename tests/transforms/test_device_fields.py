"""A device that a field of a configuration class has by default, and that whoever makes the object can set."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.convert import convert_paths, convert_source
from accelify.source import Source
from tests.transforms.support import PATH, convert

SCRIPT = """\
import argparse
from dataclasses import dataclass
import torch
from torch import nn


{mark}
class Config:
    device: str = "{default}"


def train({name}: Config):
    x = torch.randn(64, 4, device={name}.device)
    net = nn.Linear(4, 1)
    net.to({name}.device)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    for step in range(10):
        loss = net(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    train({made})
"""


def converted(made: str, mark: str = "@dataclass", default: str = "cpu", name: str = "config") -> str:
    text = SCRIPT.format(made=made, mark=mark, default=default, name=name)
    conversion = convert_source(Source.from_text(text, PATH))
    assert conversion.status == "converted", conversion.reason
    return conversion.new_text


@pytest.mark.parametrize(
    "made", ["Config(**vars(parser.parse_args()))", "Config(device=parser.parse_args().device)", "Config()"]
)
@pytest.mark.parametrize("mark", ["@dataclass", "@dataclass()", "@dataclass(frozen=False)"])
def test_the_option_decides_and_not_its_default(made: str, mark: str) -> None:
    text = converted(made, mark)
    assert (
        "def train(config: Config):\n"
        '    accelerator = Accelerator(cpu=str(config.device) == "cpu")\n'
        "    config.device = accelerator.device.type\n"
        "    x = torch.randn(64, 4, device=config.device)\n"
        "    net = nn.Linear(4, 1)\n"
        "    optimizer"
    ) in text
    assert 'device: str = "cpu"' in text


@pytest.mark.parametrize("mark", ["", "@dataclass(frozen=True)"])
def test_what_cannot_be_set_stays_the_choice(mark: str) -> None:
    # A constant of a class, and a field that takes no other value once the object is made.
    text = converted("Config()", mark)
    assert "Accelerator(cpu=True)" in text
    assert "config.device =" not in text


def test_so_does_what_nobody_asks_for() -> None:
    text = SCRIPT.format(made="Config()", mark="@dataclass", default="cpu", name="config")
    text = text.replace(", device=config.device", "").replace("    net.to(config.device)\n", "")
    conversion = convert_source(Source.from_text(text, PATH))
    assert "Accelerator(cpu=True)" in conversion.new_text


@pytest.mark.parametrize(
    "line", ["json.dump(asdict(config), file)", "pyrallis.dump(config, file)", "OmegaConf.save(config, file)"]
)
def test_what_is_written_to_a_file_is_a_text(line: str) -> None:
    text = SCRIPT.format(made="Config()", mark="@dataclass", default="cpu", name="config")
    text = text.replace("    net = ", f"    {line}\n    net = ", 1)
    conversion = convert_source(Source.from_text(text, PATH))
    assert "    config.device = accelerator.device.type\n" in conversion.new_text


LATE_MAIN = """import argparse
import torch
from parts import build, note
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1){option}
opts = parser.parse_args()
note(opts)
opts.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
work = build(opts)
for _ in range(3):
    work.round()
"""
LATE_PARTS = """import json
import torch
from torch import nn

class Work:
    def __init__(self, opts, net):
        self.opts, self.net = opts, net
        self.optimizer = torch.optim.SGD(net.parameters(), lr=opts.lr)

    def round(self):
        x = torch.zeros(3, 2).to(device=self.opts.device)
        loss = self.net(x).pow(2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

def note(opts):
    with open("opts.json", "w") as file:
        json.dump(vars(opts), file)

def build(opts):
    start = torch.ones(2).to(device=opts.device)
    return Work(opts, nn.Linear(2, 1).to(device=opts.device))
"""


@pytest.mark.parametrize("option", ["", '\nparser.add_argument("--device", default="cuda")'])
def test_an_attribute_that_the_script_adds_later(tmp_path: Path, option: str) -> None:
    """What is stored of the options above that has no entry of this name, unless a parser has it."""
    (tmp_path / "parts.py").write_text(LATE_PARTS)
    (tmp_path / "train.py").write_text(LATE_MAIN.format(option=option))
    text = next(c for c in convert_paths([tmp_path / "train.py"]) if "argparse" in c.new_text).new_text
    above = text[: text.index("note(accelerator, opts)")]
    assert ("opts.device = " in above) == bool(option)
    assert "opts.device = accelerator.device" in text[len(above) :]


READ = """import argparse, types, yaml
parser = argparse.ArgumentParser()
parser.add_argument("--gpus", default="cuda:0")
conf = {}
"""
LOADED = 'yaml.safe_load(open("conf.yaml"))'


@pytest.mark.parametrize(
    ("conf", "entry", "more"),
    [
        (LOADED, 'conf["gpus"]', ""),
        (LOADED, 'conf["run"]["gpus"]', ""),
        (f"types.SimpleNamespace(**{LOADED})", "conf.gpus", ""),
        ("parser.parse_args()", "conf.gpus", ""),
        (LOADED, "place", 'place = conf["gpus"]\n'),
        ("parser.parse_args()", "conf.gpus", "torch.cuda.set_device(conf.gpus)\n"),
        (LOADED, "kind", 'kind = conf["kind"]\nmask = torch.zeros(3, dtype=kind)\n'),
        (LOADED, "conf['kind']", "mask = torch.zeros(3, dtype=conf['kind'])\n"),
    ],
)
def test_an_entry_that_a_model_and_batches_are_moved_to(conf: str, entry: str, more: str) -> None:
    """It is a device, whatever its name, where nothing else is made of it."""
    made = (
        f"{more}model = nn.Linear(4, 2).to({entry})\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
    )
    batch = f"x, y = x.to({entry}), y.to({entry})"
    text = convert(imports=READ.format(conf), build=made, batch=batch).new_text
    assigned = " = accelerator.device" in text or " = str(accelerator.device)" in text
    assert assigned == (not more or entry == "place"), text


@pytest.mark.parametrize(
    ("conf", "device"),
    [
        (LOADED, "accelerator.device"),
        ("Net.parts()", 'conf.get("device", "cuda:0")'),
    ],
)
def test_a_device_that_is_got_of_settings(conf: str, device: str) -> None:
    """Of settings, with a default; not of what else has a method of that name."""
    imports = READ.format("None") + "from nets import Net"
    setup = f'conf = {conf}\ndevice = conf.get("device", "cuda:0")'
    use = "model = nn.Linear(4, 2).to(device)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
    text = convert(
        imports=imports, setup=setup, build=use, batch="x, y = x.to(device), y.to(device)"
    ).new_text
    assert f"device = {device}\n" in text
