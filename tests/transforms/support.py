"""A minimal training script with places for snippets, so that a case is only the lines that it is about.

The places, in order: `imports`, `setup`, `build`, `ready` (behind the model, before the loops), `batch` (first thing in
the loop over the batches), `loss`, `backward`, `update`, `epoch` (behind that loop) and `end`. Those not given hold the
plainest thing that trains.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

from accelify.conversion import Conversion, ConvertOptions
from accelify.convert import convert_source
from accelify.obsolete_keywords import modernised
from accelify.proving import prove, settled
from accelify.source import Source

PATH = Path("/nowhere/train.py")  # beside no other modules, which the analysis would follow
DEFAULTS = {
    "imports": "",
    "setup": "",
    "build": "model = nn.Linear(4, 2)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n",
    "ready": "",
    "batch": "",
    "loss": "loss = F.cross_entropy(model(x), y)\n",
    "backward": "loss.backward()\n",
    "update": "optimizer.step()\n",
    "epoch": "",
    "end": "",
}
FRAME = """\
import os

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
{imports}
{setup}
data = TensorDataset(torch.randn(64, 4), torch.randint(0, 2, (64,)))
{build}
loader = DataLoader(data, batch_size=8, shuffle=True)
test_loader = DataLoader(data, batch_size=8)
{ready}
for epoch in range(3):
    for i, (x, y) in enumerate(loader):
{batch}
        optimizer.zero_grad()
{loss}
{backward}
{update}
{epoch}
{end}
"""
DEPTHS = {"batch": 8, "loss": 8, "backward": 8, "update": 8, "epoch": 4}


def frame(**snippets: str) -> str:
    """The script with snippets in their places, each between two comments that mark it."""
    unknown = set(snippets) - set(DEFAULTS)
    assert not unknown, f"no such place: {unknown}"
    filled = {}
    for place, default in DEFAULTS.items():
        text = textwrap.dedent(snippets.get(place, default)).strip("\n")
        marked = f"# <{place}>\n{text}\n# </{place}>" if text else f"# <{place}>\n# </{place}>"
        filled[place] = textwrap.indent(marked, " " * DEPTHS.get(place, 0))
    return FRAME.format(**filled)


def place_of(text: str, place: str) -> str:
    """What stands between the marks of a place, without its indentation and the blank lines around it."""
    lines = text.splitlines()
    first = next(n for n, line in enumerate(lines) if line.strip() == f"# <{place}>")
    last = next(n for n, line in enumerate(lines) if line.strip() == f"# </{place}>")
    return textwrap.dedent("\n".join(lines[first + 1 : last])).strip("\n")


def convert(batch_size: str = "per-process", **snippets: str) -> Conversion:
    """Convert the script; its result has to be Python, and conversion has to find nothing more to do in it."""
    text = frame(**snippets)
    compile(modernised(text), "before.py", "exec", dont_inherit=True)
    conversion = convert_source(Source.from_text(text, PATH), ConvertOptions(batch_size))
    assert conversion.status == "converted", conversion.reason
    compile(conversion.new_text, "after.py", "exec", dont_inherit=True)
    again = convert_source(Source.from_text(conversion.new_text, PATH), ConvertOptions(batch_size))
    assert again.new_text == conversion.new_text
    return conversion


def settled_source(text: str) -> Conversion:
    """Convert a script as the command line does: the engine has moves come back that prepare does not replace."""
    conversion = convert_source(Source.from_text(text, PATH))
    assert conversion.status == "converted", conversion.reason
    settled([conversion], conversion)
    return conversion


def clean(text: str) -> str:
    return textwrap.dedent(text).strip("\n")


def codes(conversion: Conversion) -> set[str]:
    """The codes of all findings, mended or not."""
    return {f.code for f in [*conversion.applied, *conversion.remaining]}


def names_figures(conversion: Conversion) -> bool:
    """Whether a figure of one process's share is named, or that processes go on otherwise, by the engine too."""
    prove([conversion], conversion)
    return bool({"ACC302", "ACC405", "ACC701", "ACC704"} & {f.code for f in conversion.remaining})


def named(conversion: Conversion, code: str = "ACC702") -> list[str]:
    """What the engine says by one of its rules of what was written."""
    prove([conversion], conversion)
    return [f.message for f in conversion.remaining if f.code == code]


def names_path(conversion: Conversion) -> bool:
    """Whether the engine names a path that differs between processes."""
    return bool(named(conversion, "ACC703"))


def prints_by_all(conversion: Conversion) -> list[str]:
    """What the engine says that every process prints."""
    return [message for message in named(conversion) if message.startswith("every process prints this")]


def check_transformed(
    place: str, before: str, after: str, *, batch_size: str = "per-process", **others: str
) -> Conversion:
    """`before` in a place of the script becomes `after`, whatever else is converted around it."""
    conversion = convert(batch_size, **{place: before}, **others)
    assert place_of(conversion.new_text, place) == clean(after)
    return conversion


def check_noop(
    place: str, snippet: str, *rules: str, batch_size: str = "per-process", **others: str
) -> Conversion:
    """A snippet stays as it is, and none of the rules finds anything anywhere in the script."""
    conversion = check_transformed(place, snippet, snippet, batch_size=batch_size, **others)
    found = codes(conversion) & set(rules)
    assert not found, f"found {found}"
    return conversion
