"""Files that the main process writes and that functions read: all wait behind the place that writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.convert import convert_project
from accelify.source import Source
from tests.transforms.support import check_transformed, convert, frame, place_of

READ = "def read({told}):\n    return open({path}).read()\n"
FOLDER = 'folder = os.environ["FOLDER"]\n'
WAIT = "accelerator.wait_for_everyone()"


def ready(told: str, path: str, call: str) -> tuple[str, str]:
    """A table that is written where it is missing, before and after, with a function that reads behind it."""
    reading = f"{READ.format(told=told, path=path)}\nrows = {call}"
    writing = (
        "not os.path.isdir(folder):\n    os.makedirs(folder)\n"
        "    with open(os.path.join(folder, 't.csv'), 'w') as file:\n        file.write('1')\n"
    )
    before = f"{FOLDER}if {writing}\n{reading}"
    after = f"{FOLDER}if accelerator.is_main_process and {writing}{WAIT}\n\n{reading}"
    return before, after


@pytest.mark.parametrize(
    ("told", "path", "call"),
    [
        ("", "os.path.join(folder, 't.csv')", "read()"),
        ("", "folder + '/t.csv'", "read()"),
        ("", "f'{folder}/t.csv'", "read()"),
        ("path", "path", "read(folder + '/t.csv')"),
        ("name", "os.path.join(folder, name)", "read(names[0])"),
    ],
)
def test_what_a_function_reads_behind_a_question_is_waited_for(told: str, path: str, call: str) -> None:
    before, after = ready(told, path, call)
    check_transformed("ready", before, after)


@pytest.mark.parametrize(
    ("told", "path", "call"),
    [
        ("", "folder + '/u.csv'", "read()"),
        ("name", "f'{folder}/{name}.json'", "read('t')"),
        ("path", "path, 'w'", "read('t.csv')"),
        ("", "'/proc/stat'", "read()"),
        ("", "folder + '/t.csv'", "3"),
    ],
)
def test_what_is_another_file_is_not_waited_for(told: str, path: str, call: str) -> None:
    before, _ = ready(told, path, call)
    assert "wait_for_everyone" not in convert(ready=before).new_text


def test_a_file_that_is_written_in_any_case_is_waited_for_where_its_name_is_told() -> None:
    writing = "with open(folder + '/t.csv', 'w') as file:\n    file.write('1')\n"
    same, other = (
        f"{READ.format(told='name', path=p)}\nrows = read(3)" for p in ("f'{folder}/t.csv'", "name")
    )
    converted = convert(ready=f"{FOLDER}{writing}\n{same}").new_text
    assert f"file.write('1')\n{WAIT}\n" in place_of(converted, "ready")
    assert "wait_for_everyone" not in convert(ready=f"{FOLDER}{writing}\n{other}").new_text


def test_a_function_that_writes_where_one_call_asks_for_it() -> None:
    build = """\
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def make(path):
        with open(path, "w") as file:
            file.write("1")

    def read(folder):
        return open(f"{folder}/t.csv").read()
    """
    before = "if not os.path.exists('a/t.csv'):\n    make('a/t.csv')\nrows = read('a')"
    check_transformed("ready", before, before.replace("rows", f"{WAIT}\nrows"), build=build)


def test_a_log_and_what_every_epoch_writes_are_not_waited_for() -> None:
    reading = READ.format(told="path", path="path") + "\nread('a')\n"
    log = "if not os.path.exists('log.csv'):\n    with open('log.csv', 'w') as file:\n        file.write('epoch')\n"
    epoch = "with open('log.csv', 'a') as file:\n    file.write('1')\n"
    assert "wait_for_everyone" not in convert(ready=log + reading, epoch=epoch).new_text
    own = READ.format(told="", path="'log.csv'")
    assert "wait_for_everyone" not in convert(ready=own, epoch=epoch, end="print(read())").new_text


def test_functions_of_other_modules_and_objects_that_read(tmp_path: Path) -> None:
    (tmp_path / "rows.py").write_text(
        "class Rows:\n    def __init__(self, folder):\n        self.folder = folder\n\n"
        "    def get(self):\n        return open(self.folder + '/t.csv').read()\n"
    )
    opening = "with open('a/t.csv', 'w') as f:\n        f.write('1')\n"
    writing = f"if not os.path.isdir('a'):\n    os.mkdir('a')\n    {opening}"
    text = frame(imports="from rows import Rows", ready=f"{writing}rows = Rows('a')")
    (tmp_path / "train.py").write_text(text)
    found = convert_project(Source.read(tmp_path / "train.py"))[0]
    assert f"f.write('1')\n{WAIT}\nrows = Rows('a')" in found.new_text


CUT = """\
import cv2


def cut(source, folder):
    os.makedirs(folder)
    for n, name in enumerate(os.listdir(source)):
        picture = cv2.imread(os.path.join(source, name))
        {write}
"""
PICTURE = "cv2.imwrite(os.path.join(folder, f'{n}.png'), picture)"
ASKED = """\
device = torch.device('cuda')
if not os.path.isdir('data/cut'):
    cut('data/all', 'data/cut')
else:
    print('there')
"""


@pytest.mark.parametrize(
    "write", [PICTURE, "with open(f'{folder}/{n}.txt', 'w') as file:\n            file.write('1')"]
)
def test_files_of_a_data_set_that_a_loop_makes_are_waited_for(write: str) -> None:
    setup = place_of(convert(imports=CUT.format(write=write), setup=ASKED).new_text, "setup")
    assert setup.endswith(f"else:\n    accelerator.print('there')\n{WAIT}")


def test_pictures_that_a_module_makes_are_waited_for(tmp_path: Path) -> None:
    (tmp_path / "cutting.py").write_text(f"import os\n{CUT.format(write=PICTURE)}")
    (tmp_path / "train.py").write_text(frame(imports="from cutting import cut", setup=ASKED))
    (conversion,) = convert_project(Source.read(tmp_path / "train.py"))
    assert place_of(conversion.new_text, "setup").endswith(f"else:\n    accelerator.print('there')\n{WAIT}")


def test_pictures_of_the_training_and_plots_are_not_waited_for(tmp_path: Path) -> None:
    shown = "for n in range(3):\n    cv2.imwrite(f'{n}.png', model(x).detach().numpy())"
    assert "wait_for" not in convert(imports="import cv2", epoch=shown).new_text
    first = "for n, (x, y) in enumerate(test_loader):\n    cv2.imwrite(f'{n}.png', model(x).detach().numpy())"
    assert "wait_for" not in convert(imports="import cv2", ready=first).new_text
    assert (
        "wait_for" not in convert(imports="import cv2", end="cv2.imwrite('0.png', model(x).numpy())").new_text
    )
    (tmp_path / "drawing.py").write_text(
        "import matplotlib.pyplot as plt\n\n\ndef draw(x):\n    plt.plot(x)\n    plt.savefig('x.png')\n"
    )
    (tmp_path / "train.py").write_text(frame(imports="from drawing import draw", setup="draw([1])"))
    (conversion,) = convert_project(Source.read(tmp_path / "train.py"))
    assert "wait_for" not in conversion.new_text
