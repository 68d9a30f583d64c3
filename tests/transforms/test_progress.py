"""Progress bars."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from accelify.conversion import ConvertOptions
from accelify.convert import convert_project, convert_source
from accelify.project import Imports
from accelify.proving import checked
from accelify.source import Source
from tests.transforms.support import check_noop, check_transformed

TQDM = "from tqdm import tqdm, trange"
OFF = "disable=not accelerator.is_local_main_process"


@pytest.mark.parametrize(
    "head",
    [
        "for k in tqdm(range(4), disable=True):",
        "for k in tqdm(range(4), disable=rank != 0):",
        "for k in range(4):",
        "for k in tqdm_like(range(4)):",
    ],
)
def test_others_stay(head: str) -> None:
    check_noop("epoch", f"{head}\n    pass", "ACC202", imports=TQDM, setup="rank = 0\ntqdm_like = list")


def test_a_function_of_that_name_stays() -> None:
    check_noop("epoch", "for k in tqdm(range(4)):\n    pass", "ACC202", setup="def tqdm(x):\n    return x")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("tqdm(test_loader)", "tqdm(test_loader, disable=not accelerator.is_local_main_process)"),
        ("trange(4)", "trange(4, disable=not accelerator.is_local_main_process)"),
        (
            "tqdm(range(4), desc='é',)",
            "tqdm(range(4), desc='é', disable=not accelerator.is_local_main_process)",
        ),
        (
            "enumerate(tqdm(test_loader))",
            "enumerate(tqdm(test_loader, disable=not accelerator.is_local_main_process))",
        ),
    ],
)
def test_bars(before: str, after: str) -> None:
    body = "    pass"
    check_transformed("epoch", f"for k in {before}:\n{body}", f"for k in {after}:\n{body}", imports=TQDM)


@pytest.mark.parametrize(
    ("quiet", "after"),
    [
        ("quiet", "{} or quiet"),
        ("not loud", "{} or not loud"),
        ("quiet or not loud", "{} or quiet or not loud"),
        ("quiet if loud else loud", "{} or (quiet if loud else loud)"),
        ("None", "{} or None"),
        ("False", "{}"),
    ],
)
def test_a_bar_that_may_be_off(quiet: str, after: str) -> None:
    silent = after.format(OFF.removeprefix("disable="))
    made = "bar = tqdm(test_loader, disable={}, leave=False)"
    setup = "quiet, loud = False, True"
    check_transformed("epoch", made.format(quiet), made.format(silent), imports=TQDM, setup=setup)


@pytest.mark.parametrize("options", ["options", "{'leave': False}"])
def test_a_bar_whose_options_are_not_in_the_call_is_named(options: str) -> None:
    made = f"bar = tqdm(test_loader, **{options})"
    conversion = check_transformed("epoch", made, made, imports=TQDM, setup="from conf import options")
    (said,) = [f.message for f in conversion.remaining if f.code == "ACC202"]
    assert said.endswith("may hold `disable`")


def test_by_module() -> None:
    check_transformed(
        "epoch",
        "bar = tqdm.tqdm(total=3)",
        "bar = tqdm.tqdm(total=3, disable=not accelerator.is_local_main_process)",
        imports="import tqdm",
    )


@pytest.mark.parametrize("others", ["", "from torchvision.transforms import *"])
def test_a_bar_that_a_star_brings_is_a_bar(others: str) -> None:
    script = f"""
    import torch
    from torch.utils.data import DataLoader
    from tqdm import *
    {others}
    loader = DataLoader([(torch.ones(4), torch.ones(2))] * 8, batch_size=2)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    bar = tqdm(enumerate(loader))
    for i, (x, y) in bar:
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    """
    text = convert_source(Source.from_text(textwrap.dedent(script))).new_text
    assert "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n" in text
    assert "bar = tqdm(enumerate(loader), disable=not accelerator.is_local_main_process)\n" in text


@pytest.mark.parametrize(
    "read", ["bar.update(1)", "left = bar.total", "bar.n = 3", "callback = bar.update", "show(bar)"]
)
def test_other_uses_of_a_bar(read: str) -> None:
    setup = "def show(line):\n    line.set_description('a')"
    check_transformed(
        "epoch", "bar = tqdm(total=8)", f"bar = tqdm(total=8, {OFF})", imports=TQDM, setup=setup, end=read
    )


@pytest.mark.parametrize(
    ("maker", "more"), [("tqdm", ""), ("tqdm", ", file=sys.stdout"), ("tqdm_notebook", "")]
)
def test_a_bar_that_is_read_is_named(maker: str, more: str) -> None:
    made = f"bar = {maker}(total=8{more})"
    imports = "import sys\nfrom tqdm import tqdm, tqdm_notebook"
    conversion = check_transformed("epoch", made, made, imports=imports, end="left = 8 - bar.n")
    (said,) = [f.message for f in conversion.remaining if f.code == "ACC202"]
    assert "`bar.n`" in said


def test_a_function_that_draws_a_bar_takes_the_accelerator_from_who_has_it() -> None:
    text = """
    import torch
    from tqdm import tqdm
    from torch.utils.data import DataLoader

    def read(count):
        return torch.tensor([[float(i)] for i in tqdm(range(count))])

    def main():
        loader = DataLoader(read(64), batch_size=8)
        model = torch.nn.Linear(1, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
        for x in loader:
            optimizer.zero_grad()
            model(x).pow(2).mean().backward()
            optimizer.step()

    main()
    """
    found = convert_source(Source(None, textwrap.dedent(text))).new_text
    assert (
        f"def read(accelerator, count):\n    return torch.tensor([[float(i)] for i in tqdm(range(count), {OFF})])"
        in found
    )
    assert "DataLoader(read(accelerator, 64), batch_size=8)" in found


def test_a_bar_of_rich() -> None:
    before, after = (f"for k in track(test_loader, 'testing'{off}):\n    pass" for off in ("", f", {OFF}"))
    check_transformed("epoch", before, after, imports="from rich.progress import track")


def test_a_bar_that_is_read_has_a_way_out_that_check_takes(tmp_path: Path) -> None:
    """A bar that is off does not count; one that is written to nowhere does."""
    made = "bar = tqdm(total=8)"
    conversion = check_transformed(
        "epoch", made, made, imports="import os\nfrom tqdm import tqdm", end="left = 8 - bar.n"
    )
    (message,) = [one.message for one in conversion.remaining if one.code == "ACC202"]
    way = re.search(r"`(file=[^`]*)`", message)
    assert way is not None
    for given, codes in ((f", {way[1]}", []), ("", ["ACC702"])):
        script = tmp_path / "train.py"
        text = conversion.new_text.replace(made, f"bar = tqdm(total=8{given})")
        script.write_text(re.sub(r" *# TODO\(accelify.*\n(?: *#     .*\n)*", "", text))
        found = checked(convert_project(Source.read(script), ConvertOptions(), Imports())[0]) or []
        assert [one.code for one in found if "bar" in one.message] == codes
