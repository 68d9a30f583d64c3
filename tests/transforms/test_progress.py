"""Progress bars."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from accelify.convert import convert_source
from accelify.source import Source
from tests.transforms.support import check_noop, check_transformed, convert, frame

TQDM = "from tqdm import tqdm, trange"
OFF = "disable=not accelerator.is_local_main_process"


@pytest.mark.parametrize(
    "head",
    [
        "for k in tqdm(range(4), disable=True):",
        "for k in tqdm(range(4), disable=rank != 0):",
        "for k in tqdm(range(4), **{'disable': rank > 0}):",
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
    shared = "options = dict(disable={}, leave=False)\nfor k in tqdm(test_loader, **options):\n    pass\n"
    shared += "bar = trange(4, **options)"
    check_transformed("epoch", shared.format(quiet), shared.format(silent), imports=TQDM, setup=setup)


def test_a_bar_with_options_that_say_nothing_of_it() -> None:
    made = "options = {{'leave': False}}\nbar = tqdm(test_loader, **options{})"
    check_transformed("epoch", made.format(""), made.format(f", {OFF}"), imports=TQDM)


@pytest.mark.parametrize(
    "made",
    [
        "options = {'disable': quiet}\nfor k in range(4):\n    bar = tqdm(test_loader, **options)\n    show(**options)",
        "options = {}\noptions['disable'] = quiet\nbar = tqdm(test_loader, **options)",
        "bar = tqdm(test_loader, **dict(more))",
    ],
)
def test_a_bar_whose_options_are_not_seen_is_named(made: str) -> None:
    setup = "from conf import more, quiet, show"
    conversion = check_transformed("epoch", made, made, imports=TQDM, setup=setup)
    (said,) = [f.message for f in conversion.remaining if f.code == "ACC202"]
    assert said.endswith("may hold `disable`, and is not seen here")


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


SILENT = "file=None if accelerator.is_local_main_process else open(os.devnull, 'w')".replace("'", '"')


@pytest.mark.parametrize(
    ("made", "read"),
    [
        ("bar = tqdm(total=8{})", "print(1 / bar.n)"),
        ("bar = tqdm(range(8){})\nfor k in bar:\n    pass", "left = 8 - bar.format_dict['n']"),
        ("with tqdm(total=8{}) as bar:\n    bar.update(1)", "left = 8 - bar.last_print_n"),
        ("bar = tqdm(total=8{})", "show(bar)"),
        ("app = App()\napp.bar = tqdm(total=8{})", "left = 8 - app.bar.n"),
    ],
)
def test_a_bar_that_is_read_counts_on_every_process(made: str, read: str) -> None:
    setup = "def show(line):\n    line.set_description(str(1 / line.n))\nclass App:\n    pass"
    conversion = check_transformed(
        "epoch", made.format(""), made.format(f", {SILENT}"), imports=TQDM, setup=setup, end=read
    )
    assert "import os\n" in conversion.new_text


@pytest.mark.parametrize(
    "read", ["bar.update(1)", "left = bar.total", "bar.n = 3", "callback = bar.update", "show(bar)"]
)
def test_other_uses_of_a_bar(read: str) -> None:
    setup = "def show(line):\n    line.set_description('a')"
    check_transformed(
        "epoch", "bar = tqdm(total=8)", f"bar = tqdm(total=8, {OFF})", imports=TQDM, setup=setup, end=read
    )


@pytest.mark.parametrize(("maker", "more"), [("tqdm", ", file=sys.stdout"), ("tqdm_notebook", "")])
def test_a_bar_that_is_read_and_has_a_place_of_its_own_is_named(maker: str, more: str) -> None:
    made = f"bar = {maker}(total=8{more})"
    imports = "import sys\nfrom tqdm import tqdm, tqdm_notebook"
    conversion = check_transformed("epoch", made, made, imports=imports, end="left = 8 - bar.n")
    (said,) = [f.message for f in conversion.remaining if f.code == "ACC202"]
    assert "`bar.n`" in said


TEXT_BARS = "import sys\nfrom progress.bar import Bar\nfrom progress import spinner"


@pytest.mark.parametrize("made", ["Bar('train', max=3)", "spinner.Spinner('x')"])
def test_a_bar_that_cannot_be_turned_off_is_written_nowhere(made: str) -> None:
    place = 'file=sys.stderr if accelerator.is_local_main_process else open(os.devnull, "w")'
    check_transformed("epoch", f"bar = {made}", f"bar = {made[:-1]}, {place})", imports=TEXT_BARS)


@pytest.mark.parametrize("made", ["Bar('train', file=None)", "Bar('train', **{})", "spinner.name()"])
def test_text_bars_that_stay(made: str) -> None:
    check_noop("epoch", f"bar = {made}", "ACC202", imports=TEXT_BARS)


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


@pytest.mark.parametrize(
    ("handed_on", "edited"),
    [("from progress.bar import Bar as Bar", True), ("class Bar:  # of progress\n    pass", False)],
)
def test_a_text_bar_that_a_package_hands_on(tmp_path: Path, handed_on: str, edited: bool) -> None:
    package = tmp_path / "utils"
    package.mkdir()
    (package / "__init__.py").write_text(handed_on + "\n")
    script = tmp_path / "train.py"
    script.write_text(frame(imports="from utils import Bar", epoch="bar = Bar('train', max=3)"))
    text = convert_source(Source.read(script)).new_text
    assert ("bar = Bar('train', max=3, file=sys.stderr if" in text) is edited


def _bar(total: str, step: str) -> str:
    return (
        f"with tqdm(total={total}) as bar:\n    for x, y in loader:\n        optimizer.zero_grad()\n"
        f"        F.cross_entropy(model(x), y).backward()\n        optimizer.step()\n        bar.update({step})\n"
    )


SHARE = "total=math.ceil({} / accelerator.num_processes), disable=not accelerator.is_local_main_process"


@pytest.mark.parametrize(
    ("total", "step", "own"),
    [
        ("len(data)", "len(x)", "len(data)"),
        ("len(data) // 8", "1", "(len(data) // 8)"),
        ("len(data) // 8", "", "(len(data) // 8)"),
        ("rows", "x.size(0)", "rows"),
        ("len(loader)", "1", None),
        ("count", "len(x)", None),
    ],
)
def test_a_bar_over_all_the_data_ends_with_a_process_s_share(total: str, step: str, own: str | None) -> None:
    imports = "import math\nfrom tqdm import tqdm\nfrom m import count"
    text = convert(imports=imports, epoch=_bar(total, step), ready="rows = len(data)").new_text
    assert (SHARE.format(own) in text) == (own is not None)
    assert ("math.ceil" in text) == (own is not None)


def test_a_bar_over_all_the_data_that_a_loop_draws() -> None:
    loop = (
        "for x, y in tqdm(loader, total=len(data) // 8):\n    optimizer.zero_grad()\n"
        "    F.cross_entropy(model(x), y).backward()\n    optimizer.step()"
    )
    imports = "import math\nfrom tqdm import tqdm"
    assert SHARE.format("(len(data) // 8)") in convert(imports=imports, epoch=loop).new_text
    assert "math.ceil" not in convert("total", imports=imports, epoch=loop).new_text


def test_bars_that_count_batches_of_the_original_or_data_that_all_go_through_keep_their_total() -> None:
    imports = "import math\nfrom tqdm import tqdm"
    assert "math.ceil" not in convert("total", imports=imports, epoch=_bar("len(data) // 8", "1")).new_text
    shares = convert("total", imports=imports, epoch=_bar("len(data)", "len(x)")).new_text
    assert SHARE.format("len(data)") in shares
    whole = "with tqdm(total=len(data)) as bar:\n    for row in data:\n        bar.update(1)"
    assert "math.ceil" not in convert(imports=imports, epoch=whole).new_text


def test_a_bar_of_rich() -> None:
    before, after = (f"for k in track(test_loader, 'testing'{off}):\n    pass" for off in ("", f", {OFF}"))
    check_transformed("epoch", before, after, imports="from rich.progress import track")
