"""Files and folders that are asked for: all processes come together behind the question, whatever it answered them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.transforms.support import check_noop, check_transformed, place_of
from tests.transforms.test_effects_in_modules import converted

MORE = "import json\nfrom pathlib import Path\nimport numpy as np\nimport torchvision"
WRITING = "with open(path, 'w') as f:\n        json.dump(1, f)"
GUARDED = "if accelerator.is_main_process:\n        with open(path, 'w') as f:\n            json.dump(1, f)"


@pytest.mark.parametrize(
    "question", ["not os.path.exists(path)", "not path.is_file()", "not os.path.isfile(path)"]
)
@pytest.mark.parametrize("read", ["rows = json.load(open(path))", "rows = np.fromfile(path)"])
def test_who_finds_the_file_waits_with_the_others(question: str, read: str) -> None:
    rest = "else:\n    i = 1\n"
    check_transformed(
        "end",
        f"path = Path('a.json')\nif {question}:\n    {WRITING}\n{rest}{read}",
        f"path = Path('a.json')\nif {question}:\n    {GUARDED}\n{rest}accelerator.wait_for_everyone()\n{read}",
        imports=MORE,
    )


def test_so_does_who_finds_it_first() -> None:
    check_transformed(
        "end",
        f"path = 'a.json'\nif os.path.exists(path):\n    i = 1\nelse:\n    {WRITING}\nrows = json.load(open(path))",
        f"path = 'a.json'\nif os.path.exists(path):\n    i = 1\nelse:\n    {GUARDED}\naccelerator.wait_for_everyone()\n"
        "rows = json.load(open(path))",
        imports=MORE,
    )


def test_what_is_read_where_it_is_not_written_is_read_in_turns() -> None:
    choice = f"if not os.path.exists(path):\n    {WRITING}\nelse:\n    rows = json.load(open(path))"
    indented = choice.replace("\n", "\n    ")
    check_transformed(
        "end",
        f"path = 'a.json'\n{choice}",
        f"path = 'a.json'\nwith accelerator.main_process_first():\n    {indented}",
        imports=MORE,
    )


def test_so_is_what_is_read_in_a_new_folder() -> None:
    writing = "with open('a/b', 'w') as f:\n        f.write('1')\n    rows = open('a/b').read()"
    block = f"if not os.path.isdir('a'):\n    os.makedirs('a')\n    {writing}"
    indented = block.replace("\n", "\n    ")
    check_transformed("end", block, f"with accelerator.main_process_first():\n    {indented}")


def test_a_file_that_only_its_writer_reads_is_waited_for_by_nobody() -> None:
    check_transformed(
        "end",
        f"path = 'a.json'\nif not os.path.exists(path):\n    {WRITING}\nelse:\n    i = 1\nother = np.fromfile('b')",
        f"path = 'a.json'\nif not os.path.exists(path):\n    {GUARDED}\nelse:\n    i = 1\nother = np.fromfile('b')",
        imports=MORE,
    )


@pytest.mark.parametrize(
    "read", ["torchvision.io.read_image(str(path))", "np.fromfile(path)", "np.fromfile(Path(path))"]
)
def test_functions_of_libraries_that_read_by_their_name(read: str) -> None:
    written = "with open(path, 'w') as f:\n    json.dump(1, f)"
    check_transformed(
        "end",
        f"path = 'a.json'\n{written}\nrows = {read}",
        "path = 'a.json'\nif accelerator.is_main_process:\n    with open(path, 'w') as f:\n        json.dump(1, f)\n"
        f"accelerator.wait_for_everyone()\nrows = {read}",
        imports=MORE,
    )


def test_a_module_that_was_just_written() -> None:
    written = "with open('extra_tools.py', 'w') as f:\n    f.write('a = 1')"
    check_transformed(
        "end",
        f"{written}\nfrom extra_tools import a",
        "if accelerator.is_main_process:\n    with open('extra_tools.py', 'w') as f:\n        f.write('a = 1')\n"
        "accelerator.wait_for_everyone()\nfrom extra_tools import a",
    )


@pytest.mark.parametrize(
    "need",
    [
        "if not os.path.isdir(save):\n    raise ValueError(save)",
        "assert os.path.exists(save)",
        "os.chdir(save)",
        "while not os.path.isdir(save):\n    save = 'other'",
    ],
)
def test_a_folder_that_all_need_at_once(need: str) -> None:
    check_transformed(
        "ready",
        f"save = 'out'\nif not os.path.exists(save):\n    os.makedirs(save)\n{need}",
        "save = 'out'\nif accelerator.is_main_process and not os.path.exists(save):\n    os.makedirs(save)\n"
        f"accelerator.wait_for_everyone()\n{need}",
    )


@pytest.mark.parametrize("other", ["if not os.path.exists('b'):\n    os.makedirs('b')", "print(save)"])
def test_a_folder_that_nobody_asks_for(other: str) -> None:
    after = other.replace("if not", "if accelerator.is_main_process and not").replace(
        "print", "accelerator.print"
    )
    check_transformed(
        "ready",
        f"save = 'out'\nif not os.path.exists(save):\n    os.makedirs(save)\n{other}",
        f"save = 'out'\nif accelerator.is_main_process and not os.path.exists(save):\n    os.makedirs(save)\n{after}",
    )


def test_files_that_are_there_are_no_reason_to_wait() -> None:
    check_noop(
        "end",
        "path = 'a.json'\nif os.path.exists(path):\n    rows = json.load(open(path))",
        "ACC203",
        imports=MORE,
    )


BUILDS = "def build(names, path):\n    words = [open(n).read() for n in names]\n"
BUILDS += "    with open(path, 'w') as f:\n        f.write(' '.join(words))\n"
WAIT = "accelerator.wait_for_everyone()\n"


def test_what_is_built_where_it_is_missing_is_waited_for_behind_the_question(tmp_path: Path) -> None:
    before = "device = torch.device('cuda')\npath = 'words.txt'\nif not os.path.isfile(path):\n"
    before += "    names = ['a', 'b']\n    build(names, path)\n"
    conversion = converted(tmp_path, BUILDS, setup=before + "n = len('other')")
    built = "    names = ['a', 'b']\n    if accelerator.is_main_process:\n        build(names, path)\n"
    text = place_of(conversion.new_text, "setup") + "\n"
    assert f"if not os.path.isfile(path):\n{built}{WAIT}n = " in text
    assert text.count("wait_for_everyone") == 1


@pytest.mark.parametrize("alone", [True, False])
def test_a_read_behind_the_question_waits_once(tmp_path: Path, alone: bool) -> None:
    names = "['a']" if alone else "names"
    built = f"build({names}, path)\n"
    before = "device = torch.device('cuda')\npath = 'words.txt'\nif not os.path.isfile(path):\n"
    before += f"    {built}" if alone else f"    names = ['a']\n    {built}"
    conversion = converted(tmp_path, BUILDS, setup=before + "words = open(path).read()")
    text = place_of(conversion.new_text, "setup")
    assert f"{built}{WAIT}words = open(path)" in text
    assert text.count("wait_for_everyone") == 1


def test_what_is_read_in_the_same_branch_is_built_when_each_has_asked(tmp_path: Path) -> None:
    before = "device = torch.device('cuda')\nif not os.path.isfile('words'):\n    build(['a'], 'words')\n"
    conversion = converted(tmp_path, BUILDS, setup=before + "    words = open('words').read()\n")
    text = place_of(conversion.new_text, "setup")
    guard = "    if accelerator.is_main_process:\n        build(['a'], 'words')\n"
    assert f"'words'):\n    {WAIT}{guard}    {WAIT}    words = open('words').read()" in text
    assert text.count("wait_for_everyone") == 2
