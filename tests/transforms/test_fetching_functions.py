"""Functions that look what is there before they download: processes run them one after the other, as a whole."""

from __future__ import annotations

import textwrap

import pytest

from accelify.conversion import Conversion, ConvertOptions
from accelify.convert import convert_source
from accelify.source import Source

SCRIPT = """\
import os
import tarfile
import urllib.request
import requests
import torch
from torch import nn
from torch.utils.data import DataLoader
from data import Pictures

{function}

def main():
    device = torch.device("cuda")
    path = "weights.pt"
{call}
    model = nn.Linear(4, 2).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(Pictures(path), batch_size=2)
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


main()
"""
PLAIN = """\
def fetch(path):
    urllib.request.urlretrieve("http://example.org/x", path)
"""
LOOKING = """\
def fetch(path):
    if os.path.exists(path):
        return path
    urllib.request.urlretrieve("http://example.org/x", path)
    return path
"""
ANSWER = """\
def fetch(path):
    if os.path.isfile(path):
        return path
    answer = requests.get("http://example.org/x")
    with open(path, "wb") as file:
        file.write(answer.content)
    return path
"""
UNPACKING = """\
def fetch(path):
    archive = path + ".tgz"
    if not os.path.exists(archive):
        os.makedirs("archives")
        urllib.request.urlretrieve("http://example.org/x", archive)
    if os.path.isdir(path):
        return path
    with tarfile.open(archive) as packed:
        packed.extractall(path)
    return path
"""
OUTER = """\
def get(path):
    if os.path.exists(path):
        return path
    fetch(path)
    return path
"""


def converted(function: str, call: str) -> Conversion:
    text = SCRIPT.format(function=function, call=textwrap.indent(call, "    "))
    found = convert_source(Source.from_text(text, "/nowhere/train.py"), ConvertOptions())
    assert found.status == "converted", found.reason
    return found


@pytest.mark.parametrize(
    ("function", "call"),
    [
        # Nobody looks: it is fetched each time, by one process.
        (PLAIN, "fetch(path)"),
        # It is fetched before anybody looks.
        (
            LOOKING.replace("(path):\n", "(path):\n    urllib.request.urlretrieve('http://x', 'names')\n", 1),
            "fetch(path)",
        ),
        # What is looked for is something else, which it does not write.
        (LOOKING.replace("exists(path)", 'exists("cache")'), "fetch(path)"),
    ],
)
def test_who_does_not_look_fetches_once(function: str, call: str) -> None:
    text = converted(function, call).new_text
    assert "main_process_first" not in text
    assert f"{call.replace('(', '(accelerator, ')}\n" in text
    assert "    if accelerator.is_main_process:\n        urllib.request.urlretrieve(" in text
    assert "accelerator.wait_for_everyone()\n" in text


ASKED = "if not os.path.isfile(path):\n    fetch(path)"


@pytest.mark.parametrize(
    ("function", "call"),
    [
        (PLAIN, ASKED),
        (LOOKING, "fetch(path)"),
        (LOOKING, ASKED),
        (ANSWER, "fetch(path)"),
        (ANSWER, ASKED),
        (UNPACKING, "fetch(path)"),
        (UNPACKING, "path = fetch(path)"),
    ],
)
def test_who_looks_takes_turns(function: str, call: str) -> None:
    found = converted(function, call)
    inner = textwrap.indent(call, "        ")
    assert f"    with accelerator.main_process_first():\n{inner}\n" in found.new_text
    assert f"\n{function}" in found.new_text
    assert "wait_for_everyone" not in found.new_text
    assert not found.remaining


def test_turns_are_taken_where_the_outermost_look_stands() -> None:
    found = converted(f"{PLAIN}\n\n{OUTER}", "get(path)")
    assert "    with accelerator.main_process_first():\n        get(path)\n" in found.new_text
    assert f"\n{PLAIN}\n\n{OUTER}" in found.new_text


def test_one_call_looks_and_another_does_not() -> None:
    call = "if not os.path.exists(path):\n    fetch(path)\nfetch('other')"
    text = converted(PLAIN, call).new_text
    assert "    with accelerator.main_process_first():\n        if not os.path.exists(path):\n" in text
    assert (
        "    if accelerator.is_main_process:\n        fetch('other')\n    accelerator.wait_for_everyone()\n"
        in text
    )
    assert f"\n{PLAIN}" in text


def test_what_is_written_by_hand_behind_a_look() -> None:
    call = """\
if not os.path.exists(path):
    answer = requests.get("http://example.org/x")
    with open(path, "wb") as file:
        file.write(answer.content)"""
    text = converted("", call).new_text
    assert f"    with accelerator.main_process_first():\n{textwrap.indent(call, '        ')}\n" in text


def test_what_saves_behind_the_look_takes_no_turns() -> None:
    """Processes wait for each other in there: nobody can come first."""
    function = f"{PLAIN}    torch.save({{}}, path)\n"
    text = converted(function, "if not os.path.exists(path):\n    fetch(path)").new_text
    assert "main_process_first" not in text
