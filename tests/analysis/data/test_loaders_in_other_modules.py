"""Loaders that functions of other modules go through."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.proving import prove
from tests.transforms.support import place_of
from tests.transforms.test_effects_in_modules import converted, findings

EVALUATE = """
def evaluate(model, batches):
    hits = 0
    for x, y in batches:
        hits += (model(x).argmax(1) == y).sum().item()
    return hits
"""
COUNT = """
def weights(batches):
    counts = np.zeros(2)
    for i, (x, y) in enumerate(batches):
        counts += np.bincount(y.numpy(), minlength=2)
    return counts
"""
DRAWN = """
def some(batches, wanted):
    drawn = iter(batches)
    counts = np.zeros(2)
    while counts.sum() < wanted:
        x, y = next(drawn)
        counts += np.bincount(y.numpy(), minlength=2)
    return counts
"""
ON_CPU = "device = torch.device('cpu')"
LOADERS = "loaders = {name: DataLoader(data, batch_size=8) for name in ('train', 'val')}\n"


def test_a_loader_that_only_they_read_stays_whole(tmp_path: Path) -> None:
    """Each process then comes to the original's figures, which a share of the data would not give."""
    ready = LOADERS + "loader = loaders['train']\nval_loader = loaders['val']"
    conversion = converted(tmp_path, EVALUATE, ready=ready, epoch="hits = evaluate(model, val_loader)")
    expected = "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)"
    assert expected in place_of(conversion.new_text, "ready")
    assert not findings(conversion, "ACC301")


def test_through_a_function_of_the_script(tmp_path: Path) -> None:
    imports = "def score(loader):\n    print(len(loader))\n    return evaluate(model, loader)\n"
    ready = LOADERS + "loader = loaders['train']\nval_loader = loaders['val']"
    conversion = converted(tmp_path, EVALUATE, imports=imports, ready=ready, epoch="hits = score(val_loader)")
    assert "accelerator.prepare(model, optimizer, loader)" in conversion.new_text


def test_one_that_the_script_reads_too_is_shared_out(tmp_path: Path) -> None:
    ready = LOADERS + "loader = loaders['train']\nval_loader = loaders['val']"
    epoch = "for x, y in val_loader:\n    model(x)\nhits = evaluate(model, val_loader)"
    conversion = converted(tmp_path, EVALUATE, ready=ready, epoch=epoch)
    assert "prepare(model, optimizer, loader, val_loader)" in conversion.new_text.replace("\n    ", "")


@pytest.mark.parametrize("around", ["{}", "if True:\n    {}"])
def test_what_is_counted_before_the_training_is_of_the_whole_data(tmp_path: Path, around: str) -> None:
    ready = around.format("counts = weights(loader)")
    conversion = converted(tmp_path, COUNT, ready=ready, setup=ON_CPU)
    assert place_of(conversion.new_text, "ready").startswith(f"{ready}\nmodel, optimizer, loader = ")
    assert not findings(conversion, "ACC301")


def test_what_is_drawn_before_the_training_is_of_the_whole_data(tmp_path: Path) -> None:
    conversion = converted(tmp_path, DRAWN, ready="counts = some(loader, 8)", setup=ON_CPU)
    assert place_of(conversion.new_text, "ready").startswith(
        "counts = some(loader, 8)\nmodel, optimizer, loader = "
    )


def test_a_length_that_is_taken_behind_the_count_is_one_process_s(tmp_path: Path) -> None:
    ready = "counts = weights(loader)\nsteps = 3 * len(loader)\nmodel.half()"
    conversion = converted(tmp_path, COUNT, ready=ready, setup=ON_CPU)
    prepared = "counts = weights(loader)\nloader = accelerator.prepare(loader)\nsteps = 3 * len(loader)"
    assert prepared in place_of(conversion.new_text, "ready")


def test_what_is_counted_behind_the_training_is_said(tmp_path: Path) -> None:
    conversion = converted(tmp_path, COUNT, epoch="print(weights(loader))", setup=ON_CPU)
    prove([conversion], conversion)
    assert findings(conversion, "ACC701")


HANDS_ON = """
def pictures(batches):
    for x, y in batches:
        yield x, y
class Ahead:
    def __init__(self, batches):
        self.batches = batches
    def __iter__(self):
        for x, y in self.batches:
            yield x, y
def first(batches):
    return range(len(batches))
"""


@pytest.mark.parametrize("call", ["pictures(loader)", "Ahead(loader)", "first(loader)"])
def test_what_hands_the_batches_on_is_no_matter(tmp_path: Path, call: str) -> None:
    conversion = converted(tmp_path, HANDS_ON, epoch=f"batches = {call}")
    assert not findings(conversion, "ACC301")
