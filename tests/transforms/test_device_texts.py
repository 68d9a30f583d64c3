"""Devices that a script names by a text which it puts together."""

from __future__ import annotations

import pytest

from accelify.convert import convert_source
from accelify.source import Source
from tests.transforms.support import PATH, check_transformed, convert

TOLD = "import argparse, json\nargs = argparse.ArgumentParser().parse_args()"
TEXTS = [
    '"cuda:" + str(args.gpu)',
    '"cuda:%d" % args.gpu',
    '"cuda:{}".format(args.gpu)',
    'f"cuda:{args.gpu}"',
]
texts = pytest.mark.parametrize("text", TEXTS)


@texts
def test_a_number_behind_the_kind(text: str) -> None:
    made = "accelerator = Accelerator()\ndevice = str(accelerator.device)"
    check_transformed(
        "setup", f"device = {text}", made, imports=TOLD, batch="x, y = x.to(device), y.to(device)"
    )


@texts
def test_a_choice_between_it_and_the_cpu(text: str) -> None:
    made = "accelerator = Accelerator(cpu=args.gpu < 0)\ndevice = str(accelerator.device)"
    one = f"device = {text} if args.gpu >= 0 else 'cpu'"
    check_transformed("setup", one, made, imports=TOLD)
    lines = f"if args.gpu >= 0:\n    device = {text}\nelse:\n    device = 'cpu'"
    check_transformed("setup", lines, made, imports=TOLD)


@texts
def test_options_that_are_written_out_keep_a_text(text: str) -> None:
    setup = f"args.device = {text} if args.gpu >= 0 else 'cpu'"
    batch = "x, y = x.to(args.device), y.to(args.device)"
    end = "json.dump(vars(args), open('a.json', 'w'))"
    found = convert(imports=TOLD, setup=setup, batch=batch, end=end)
    assert "args.device = str(accelerator.device)\n" in found.new_text


@texts
def test_where_it_is_used(text: str) -> None:
    check_transformed("batch", f"x, y = x.to({text}), y.to({text})", "", imports=TOLD)
    for before, after in (
        (f"torch.zeros(4, device={text})", "torch.zeros(4, device=accelerator.device)"),
        (f"torch.zeros(4, device=torch.device({text}))", "torch.zeros(4, device=accelerator.device)"),
        (f"summary(model, device={text})", "summary(model, device=str(accelerator.device))"),
    ):
        given = {"imports": f"{TOLD}\nfrom torchsummary import summary"}
        check_transformed("end", f"noise = {before}", f"noise = {after}", **given)


@pytest.mark.parametrize(
    "text", ['"cuda: " + str(args.gpu)', '"cuda:%d is used" % args.gpu', 'f"cuda: {args.gpu}"']
)
def test_messages(text: str) -> None:
    found = convert(imports=TOLD, setup=f"said = {text}", end="print(said)")
    assert f"said = {text}\n" in found.new_text


PICK = """parser = argparse.ArgumentParser()
parser.add_argument("--device", default="auto")
args = parser.parse_args()
def pick(wanted){}:
    if wanted != "auto":
        return wanted
    return {}
device = pick({})
"""


@pytest.mark.parametrize(
    ("returns", "given", "taken", "device"),
    [
        ("", '"cuda"', "args.device", "accelerator.device.type"),
        ("", '"cuda" if torch.cuda.is_available() else "cpu"', "args.device", "accelerator.device.type"),
        ("", '"cuda:0"', "args.device", "str(accelerator.device)"),
        (" -> str", "kind(wanted)", "args.device", "accelerator.device.type"),
        ("", 'torch.device("cuda")', "args.device", "accelerator.device"),
        ("", '"cuda"', "torch.device(args.device)", "accelerator.device"),
    ],
)
def test_a_function_that_chooses_by_an_option(returns: str, given: str, taken: str, device: str) -> None:
    """A library that takes nothing but a text (safetensors) gets one, and an object where it was one."""
    setup = PICK.format(returns, given, taken)
    loads = "from somewhere import kind, load\nimport argparse"
    text = convert(imports=loads, setup=setup, ready="load(model, device=device)").new_text
    assert f"device = {device}\n" in text


SETTINGS = """\
import hydra, torch
from omegaconf import DictConfig
from torch.utils.data import DataLoader


class Mover:
    def __init__(self, device):
        self.device = device


def train(cfg{annotation}):
    model = torch.nn.Linear(4, 1).to({option})
    optimizer = torch.optim.SGD(model.parameters(), lr=cfg.lr)
    mover = Mover({option})
    for x, y in DataLoader(torch.load("d"), batch_size=4):
        loss = torch.nn.functional.mse_loss(model(x.to(mover.device)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


{mark}def main(cfg):
    train(cfg)


main()
"""


@pytest.mark.parametrize(
    ("annotation", "mark", "option", "is_text"),
    [
        (": DictConfig", "", "cfg.device", True),
        (": DictConfig", "", 'cfg["device"]', True),
        ("", "@hydra.main(config_path='c', config_name='t')\n", "cfg.device", True),
        ("", "", "cfg.device", False),
    ],
)
def test_options_that_take_no_device_get_a_text(
    annotation: str, mark: str, option: str, is_text: bool
) -> None:
    text = SETTINGS.format(annotation=annotation, mark=mark, option=option)
    conversion = convert_source(Source.from_text(text, PATH))
    made = "str(accelerator.device)" if is_text else "accelerator.device"
    assert f"    {option} = {made}\n" in conversion.new_text


SECTION = """\
import configparser
import torch
from torch.utils.data import DataLoader


def load():
    config = configparser.ConfigParser()
    config.read("c.ini")
    return config


def train(config):
    {section}
    model = torch.nn.Linear(4, 1).to({option})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in DataLoader(torch.load("d"), batch_size=4):
        loss = torch.nn.functional.mse_loss(model(x.to({option})), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    train(load())
"""


@pytest.mark.parametrize(
    ("section", "option"),
    [("pass", 'config["model"]["device"]'), ("part = config['model']", 'part["device"]')],
)
def test_a_section_of_configparser_takes_text_only(section: str, option: str) -> None:
    text = SECTION.format(section=section, option=option)
    assert f"{option} = str(accelerator.device)\n" in convert_source(Source.from_text(text, PATH)).new_text


HELPER = """\
import json
def resolve(given):
    {lines}
    return torch.device({taken})
settings = json.load(open("c.json"))
device = resolve(settings["device"])
"""


@pytest.mark.parametrize(
    ("lines", "taken"),
    [
        ("name = given.strip().lower()", "name"),
        ("pass", "given.lower()"),
        ("given = given.lower()", "given"),
        ("name = (given or 'cpu').casefold()", "name"),
        (
            "name = given.strip()\n    if name.startswith('cuda'):\n        return torch.device('cuda')",
            "name",
        ),
    ],
)
def test_a_function_that_changes_the_text_of_a_device(lines: str, taken: str) -> None:
    text = convert(setup=HELPER.format(lines=lines, taken=taken)).new_text
    assert 'Accelerator(cpu=str(resolve(settings["device"])) == "cpu")' in text
    other = HELPER.format(lines="name = best()", taken="name")
    assert "Accelerator()" in convert(imports="from m import best", setup=other).new_text
