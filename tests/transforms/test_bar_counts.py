"""ACC202: bars that are filled by the samples of a batch, up to those of the whole data set."""

from __future__ import annotations

import pytest

from accelify.convert import ConvertOptions, convert_source
from accelify.source import Source
from tests.transforms.support import PATH, convert, frame, place_of

BAR = "from tqdm import tqdm"


def _updated(total: str, added: str, batch_size: str = "per-process", batch: str = "") -> str:
    found = convert(
        batch_size,
        imports=BAR,
        setup="batch_size = 8",
        ready=f"n_train = len(data)\nbar = tqdm(total={total})\n",
        batch=batch,
        update=f"optimizer.step()\nbar.update({added})\n",
    )
    text = place_of(found.new_text, "update").removeprefix("optimizer.step()\n")
    assert text.startswith("bar.update(")
    return text[len("bar.update(") : text.rindex(")")]


@pytest.mark.parametrize("total", ["len(data)", "len(loader.dataset)", "n_train"])
@pytest.mark.parametrize("added", ["len(x)", "x.shape[0]", "x.size(0)", "batch_size"])
def test_the_samples_of_all_processes_fill_it(total: str, added: str) -> None:
    assert _updated(total, added) == f"{added} * accelerator.num_processes"


@pytest.mark.parametrize(
    ("total", "added"),
    [
        ("len(loader)", "1"),
        ("len(loader)", "len(x)"),
        ("100", "len(x)"),
        ("len(data)", "1"),
        ("len(data)", "y.sum()"),
    ],
)
def test_other_bars_are_filled_as_before(total: str, added: str) -> None:
    assert _updated(total, added) == added


def test_a_name_for_the_size_of_the_batch() -> None:
    assert _updated("len(data)", "size", batch="size = x.size(0)") == "size * accelerator.num_processes"


def test_a_batch_that_is_split() -> None:
    assert _updated("len(data)", "batch_size", "total") == "batch_size"
    assert _updated("len(data)", "len(x)", "total") == "len(x) * accelerator.num_processes"


def test_a_bar_of_a_with_statement_and_once_only() -> None:
    text = frame(
        imports=BAR,
        epoch="with tqdm(total=len(data)) as bar:\n    for x, y in loader:\n"
        "        F.cross_entropy(model(x), y).backward()\n"
        "        optimizer.step()\n        bar.update(len(x))\n",
    )
    found = convert_source(Source.from_text(text, PATH), ConvertOptions())
    assert "bar.update(len(x) * accelerator.num_processes)" in found.new_text
    again = convert_source(Source.from_text(found.new_text, PATH), ConvertOptions())
    assert again.new_text == found.new_text


def test_what_an_evaluation_gathers_is_whole() -> None:
    epoch = (
        "bar = tqdm(total=len(test_data))\nhits = 0\nfor a, b in test_loader:\n    out = model(a)\n"
        "    hits += (out.argmax(1) == b).sum().item()\n    bar.update(len(b))\n"
    )
    assert "num_processes" not in convert(imports=BAR, epoch=epoch).new_text
