"""CUDA_VISIBLE_DEVICES that is set when the Accelerator is made already."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.convert import Conversion, convert_project
from accelify.source import Source
from tests.transforms.support import convert, frame

HIDE = 'os.environ["CUDA_VISIBLE_DEVICES"] = "1"'
SGD = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
HIDING = f"def hide():\n    {HIDE}\n"
LATE, SHARED = "this has no effect behind the Accelerator", "all processes share the GPUs named here"


def said(found: Conversion) -> bool:
    (message,) = [f.message for f in found.remaining if f.code == "ACC113"]
    late = "behind the Accelerator" in message
    assert (LATE in found.new_text) == late
    assert (SHARED in found.new_text) != late
    return late


@pytest.mark.parametrize("place", ["epoch", "end"])
def test_set_further_down(place: str) -> None:
    assert said(convert(**{place: HIDE}, build="model = nn.Linear(4, 2).cuda()\n" + SGD))


def test_set_by_a_function() -> None:
    model = f"model = nn.Linear(4, 2).cuda()\n{SGD}"
    assert said(convert(setup=HIDING, build=model, end="hide()"))
    assert not said(convert(setup=HIDING, build=model))


def test_set_first() -> None:
    assert not said(convert(setup=HIDE))


@pytest.mark.parametrize(
    ("helper", "imports", "file"),
    [
        (f"import os\n{HIDE}\nsize = 3\n", "from helper import size", "helper.py"),
        ("from deeper import size\n", "from helper import size", "deeper.py"),
        ("import setGPU\nsize = 3\n", "from helper import size", "setGPU"),
        ("size = 3\n", "import setGPU\nfrom helper import size", "setGPU"),
        (f"import os\nif __name__ == '__main__':\n    {HIDE}\nsize = 3\n", "from helper import size", None),
        (f"import os\n{HIDING}size = 3\n", "from helper import size", None),
    ],
)
def test_set_when_a_module_is_imported(tmp_path: Path, helper: str, imports: str, file: str | None) -> None:
    (tmp_path / "helper.py").write_text(helper)
    (tmp_path / "deeper.py").write_text(f"import os\n{HIDE}\nsize = 3\n")
    (tmp_path / "train.py").write_text(frame(imports=imports, ready="print(size)"))
    found = convert_project(Source.read(tmp_path / "train.py"))[0]
    messages = [f.message for f in found.remaining if f.code == "ACC113"]
    assert [m.split()[0] for m in messages] == ([file] if file else [])
    assert found.new_text.count("# TODO(accelify ACC113)") == len(messages)
