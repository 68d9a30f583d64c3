"""Noise that NumPy draws for the batch at hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.conversion import ConvertOptions
from accelify.convert import convert_project, convert_source
from accelify.proving import prove
from accelify.source import Source
from tests.transforms.support import PATH, check_noop, check_transformed, frame

IMPORTS = "import random\nimport numpy as np"
USED = "x = x + torch.tensor(z)"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "z = np.random.normal(0, 1, (x.shape[0], 4))",
            "z = accelerator.numpy_random.normal(0, 1, (x.shape[0], 4))",
        ),
        ("z = np.random.rand(x.size(0), 4)", "z = accelerator.numpy_random.rand(x.size(0), 4)"),
        (
            "n = len(x)\nz = np.random.randint(0, 2, n)",
            "n = len(x)\nz = accelerator.numpy_random.randint(0, 2, n)",
        ),
        (
            "z = np.random.uniform(-1, 1, size=(batch_size, 4))",
            "z = accelerator.numpy_random.uniform(-1, 1, size=(batch_size, 4))",
        ),
    ],
)
def test_each_process_draws_its_own(before: str, after: str) -> None:
    snippets = {"imports": IMPORTS, "setup": "batch_size = 8"}
    check_transformed("batch", f"{before}\n{USED}", f"{after}\n{USED}", **snippets)


@pytest.mark.parametrize(
    ("given", "made"),
    [("x", "given.size(0), 4"), ("x.shape[0]", "given, 4"), ("given=x.shape[0]", "given, 4")],
)
def test_a_function_that_the_loop_calls(given: str, made: str) -> None:
    noise = f"def noise(given=9):\n    return torch.tensor(np.random.randn({made}))\n"
    check_transformed(
        "ready",
        noise,
        noise.replace("np.random", "accelerator.numpy_random"),
        imports=IMPORTS,
        batch=f"x = x + noise({given})",
    )


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("batch", "flip = np.random.rand() < 0.5"),
        ("batch", "k = np.random.randint(0, 4)"),
        ("batch", "k = random.choice([1, 2])"),
        ("ready", "z = np.random.normal(0, 1, (8, 4))"),
        ("end", "z = np.random.normal(0, 1, (len(data), 4))"),
    ],
)
def test_decisions_and_what_is_drawn_elsewhere_stay(place: str, text: str) -> None:
    check_noop(place, text, "ACC423", imports=IMPORTS)


def test_for_accelerate_it_is_said() -> None:
    text = frame(imports=IMPORTS, batch=f"z = np.random.rand(x.size(0), 4)\n{USED}")
    conversion = convert_source(Source.from_text(text, PATH), ConvertOptions(runtime="accelerate"))
    assert "z = np.random.rand(x.size(0), 4)" in conversion.new_text
    assert "ACC423" in {f.code for f in conversion.remaining}


HELPER = """\
import numpy as np
import torch


def noise(x, count, device=None):
    size = len(x)
    z = {drawn}
    return torch.tensor(z, device=device)
"""


@pytest.mark.parametrize(
    ("drawn", "named"),
    [
        ("np.random.randint(2, size=count)", True),
        ("np.random.normal(0, 1, (x.size(0), 4))", True),
        ("np.random.rand(size, 4)", True),
        ("np.random.rand() < 0.5", False),
        ("np.random.randn(4, 4)", False),
        ("torch.randn(count, 4)", False),
    ],
)
@pytest.mark.parametrize("given", ["len(x)", "n"])
def test_a_function_of_another_module_is_named(tmp_path: Path, drawn: str, named: bool, given: str) -> None:
    (tmp_path / "helper.py").write_text(HELPER.format(drawn=drawn))
    text = frame(imports="import helper", batch=f"n = x.size(0)\nx = x + helper.noise(x, {given})")
    (tmp_path / "train.py").write_text(text)
    (conversion,) = convert_project(Source.read(tmp_path / "train.py"))
    prove([conversion], conversion)
    found = [f.message for f in conversion.remaining if f.code == "ACC705"]
    assert any("draws random numbers: the same on every process" in message for message in found) is named


def test_a_function_of_another_module_that_no_batch_calls(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text(HELPER.format(drawn="np.random.randn(count, 4)"))
    (tmp_path / "train.py").write_text(frame(imports="import helper", ready="z = helper.noise([1], 8)"))
    (conversion,) = convert_project(Source.read(tmp_path / "train.py"))
    prove([conversion], conversion)
    assert "ACC705" not in {f.code for f in conversion.remaining}
