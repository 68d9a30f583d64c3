"""ACC211: files and folders that are named by an id that each process draws."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.conversion import Conversion
from accelify.convert import convert_source
from accelify.source import Source
from tests.transforms.support import PATH, check_noop, check_transformed, codes, names_path

IMPORTS = "import os\nimport secrets\nimport uuid\n"
SAVED = 'torch.save(model.state_dict(), os.path.join(folder, "best.pt"))\n'
TRAIN = """
import os
import torch
from torch import nn
import tools
def main():
    folder = tools.prepare("runs")
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(2, 3)).mean().backward()
        optimizer.step()
    torch.save(model.state_dict(), os.path.join(folder, "net.pt"))
    model.load_state_dict(torch.load(os.path.join(folder, "net.pt")))
main()
"""
KEEPS = """
import os
import uuid
class Place:
    pass
def prepare(root):
    place = Place()
    place.path = os.path.join(root, uuid.uuid4().hex)
    os.makedirs(place.path)
    return place
"""
FOR_A_WHILE = """
import os
import uuid
def prepare(root):
    path = os.path.join(root, uuid.uuid4().hex)
    with open(path, "w") as file:
        file.write("can be written")
    os.remove(path)
    return root
"""


def _beside(tmp_path: Path, tools: str) -> Conversion:
    (tmp_path / "tools.py").write_text(tools)
    return convert_source(Source.from_text(TRAIN, tmp_path / "train.py"))


@pytest.mark.parametrize(
    "made",
    [
        "str(uuid.uuid4())[:8]",
        "uuid.uuid4().hex",
        "f'run-{uuid.uuid1()}'",
        "secrets.token_hex(4)",
        "str(uuid.uuid4()).split('-')[0]",
        "os.path.join('runs', uuid.uuid4().hex[:6])",
    ],
)
def test_a_drawn_id_is_one_for_all(made: str) -> None:
    check_transformed(
        "ready",
        f"folder = {made}\n",
        f"folder = broadcast_object_list([{made}])[0]",
        imports=IMPORTS,
        end=SAVED,
    )


def test_a_name_that_says_its_type() -> None:
    check_transformed(
        "ready",
        "name: str = uuid.uuid4().hex\nfolder = f'runs/{name}'\n",
        "name: str = broadcast_object_list([uuid.uuid4().hex])[0]\nfolder = f'runs/{name}'",
        imports=IMPORTS,
        end=SAVED,
    )


def test_an_id_that_a_helper_gives_back() -> None:
    helper = "def ident():\n    return str(uuid.uuid4()).split('-')[0]\n"
    check_transformed(
        "ready",
        "folder = os.path.join('runs', ident())\n",
        "folder = broadcast_object_list([os.path.join('runs', ident())])[0]",
        imports=IMPORTS + helper,
        end=SAVED,
    )


def test_an_id_that_is_no_name_stays() -> None:
    check_noop("ready", "ident = uuid.uuid4().hex\n", "ACC211", imports=IMPORTS, end="print(ident)\n")


def test_an_id_before_the_accelerator_is_said() -> None:
    made = "class Run:\n    def __init__(self):\n        self.path = os.path.join('runs', uuid.uuid4().hex)\n"
    text = TRAIN.replace("import tools\n", f"import uuid\n{made}").replace("def main():", "def main(run):")
    text = text.replace('tools.prepare("runs")', "run.path").removesuffix("main()\n") + "main(Run())\n"
    found = convert_source(Source.from_text(text, PATH))
    assert names_path(found)


def test_a_module_that_draws_the_name_is_named(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(KEEPS)
    text = TRAIN.replace("join(folder,", "join(folder.path,")
    assert names_path(convert_source(Source.from_text(text, tmp_path / "train.py")))


def test_a_file_for_the_while_is_each_process_s_own(tmp_path: Path) -> None:
    assert "ACC211" not in codes(_beside(tmp_path, FOR_A_WHILE))
