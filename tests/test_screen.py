"""Which files have nothing to say, so that the engine is not asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.project import Imports
from accelify.screen import has_nothing_to_say
from accelify.source import Source, SourceError

LOOP = "import torch\nfor x in loader:\n    loss = model(x)\n    loss.backward()\n    optimizer.step()\n"


def quiet(text: str, *, named: bool = False) -> bool:
    return has_nothing_to_say(Source.from_text(text), Imports(), named)


@pytest.mark.parametrize(
    "text",
    [
        LOOP,
        LOOP.replace("loss.backward()", "getattr(loss, 'backward')()"),
        LOOP.replace("optimizer.step()", "w.data -= w.grad"),
        LOOP.replace("loss.backward()", "accelerator.backward(loss)"),
        "x = 1  # accelify: ignore[ACC704]\n",
    ],
)
def test_what_trains_is_looked_at(text: str) -> None:
    assert not quiet(text)
    assert not quiet(text, named=True)


@pytest.mark.parametrize(
    "text",
    [
        "import os\n",
        '"""torch: loss.backward() and optimizer.step(), distributed"""\n',
        "# torch, backward, optimizer\nx = 1\n",
    ],
)
def test_words_that_no_code_has(text: str) -> None:
    assert quiet(text)
    assert quiet(text, named=True)


@pytest.mark.parametrize(
    "text",
    [
        "import torch\nclass F(torch.autograd.Function):\n    def backward(ctx, g):\n        return g\n",
        "import torch\ndef passed_on(loss):\n    loss.backward()\n",
        "import unittest\n" + LOOP,
        "from torch.testing import assert_close\n" + LOOP,
    ],
)
def test_what_only_folders_leave_out(text: str) -> None:
    assert quiet(text)
    assert not quiet(text, named=True)


def test_what_starts_a_loop_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "trainer.py").write_text("import torch\ndef train():\n    " + LOOP.replace("\n", "\n    "))
    main = tmp_path / "main.py"
    main.write_text("from trainer import train\ntrain()\n")
    assert not has_nothing_to_say(Source.read(main), Imports(), named=False)
    main.write_text("from trainer import train\n")
    assert has_nothing_to_say(Source.read(main), Imports(), named=False)
    assert not has_nothing_to_say(Source.read(main), Imports())


def test_what_is_no_python_is_said() -> None:
    with pytest.raises(SourceError, match="not valid Python"):
        quiet("import torch\nloss.backward(\n")
