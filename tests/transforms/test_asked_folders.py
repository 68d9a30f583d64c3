"""Folders that are asked for, removed in one branch and made in the other: every process asks before one goes on."""

from __future__ import annotations

import pytest

from tests.transforms.support import convert

OVERWRITES = """\
    if input('Overwrite? ') == 'y':
        shutil.rmtree('out')
        os.makedirs('out')
    else:
        sys.exit(0)
"""
MAKES = "    os.makedirs('out')\n"
WAITS = (
    "    accelerator.wait_for_everyone()\n    if accelerator.is_main_process:\n        os.makedirs('out')\n"
)


@pytest.mark.parametrize("other", [OVERWRITES, "    if epochs:\n        raise FileExistsError\n"])
@pytest.mark.parametrize(
    ("test", "first"), [("os.path.exists('out')", False), ("not os.path.isdir('out')", True)]
)
def test_a_folder_that_is_made_beside_a_question_is_made_when_all_have_asked(
    test: str, first: bool, other: str
) -> None:
    before = f"if {test}:\n{MAKES}else:\n{other}" if first else f"if {test}:\n{other}else:\n{MAKES}"
    text = convert(imports="import shutil, sys", setup="epochs = 3", ready=before).new_text
    assert WAITS in text
    assert ("else:\n" if not first else f"if {test}:\n") + WAITS in text
    assert "rmtree('out')\n            os.makedirs('out')" in text or "rmtree" not in text


REMOVED = """\
    {branch}
        accelerator.wait_for_everyone()
        if accelerator.is_main_process:
            shutil.rmtree('out')
"""


@pytest.mark.parametrize("branch", ["if '--again' in sys.argv:", "if epochs > 2:"])
@pytest.mark.parametrize("first", [False, True])
def test_a_folder_that_is_made_beside_a_question_is_removed_when_all_have_asked(
    branch: str, first: bool
) -> None:
    """Whichever way a process goes, it has asked before another removes or makes the folder, and waits as often."""
    other = OVERWRITES.replace("if input('Overwrite? ') == 'y':", branch)
    test = "not os.path.isdir('out')" if first else "os.path.isdir('out')"
    before = f"if {test}:\n{MAKES}else:\n{other}" if first else f"if {test}:\n{other}else:\n{MAKES}"
    text = convert(imports="import shutil, sys", setup="epochs = 3", ready=before).new_text
    assert REMOVED.format(branch=branch) in text
    assert WAITS in text
    assert (
        text.count("wait_for_everyone") == 3
    )  # the last behind both, as the training may go through the folder


def test_a_helper_that_removes_the_folder() -> None:
    before = f"if os.path.isdir('out'):\n    clear('out')\n    if epochs:\n        exit()\nelse:\n{MAKES}"
    clear = "def clear(folder):\n    shutil.rmtree(folder)\n"
    text = convert(imports="import shutil", setup=f"epochs = 3\n{clear}", ready=before).new_text
    assert "    accelerator.wait_for_everyone()\n    clear('out')\n" in text
    assert WAITS in text


def test_a_removal_that_not_all_come_to_is_said() -> None:
    other = OVERWRITES.replace(
        "if input('Overwrite? ') == 'y':", "if torch.rand(1, device=device).item() > 0.5:"
    )
    before = f"if os.path.exists('out'):\n{other}else:\n{MAKES}"
    conversion = convert(imports="import shutil, sys", setup="device = 'cpu'", ready=before)
    assert WAITS in conversion.new_text
    assert any("remove this" in f.message for f in conversion.remaining)


def test_a_folder_that_is_made_behind_a_nested_way_out() -> None:
    before = """
        if os.path.exists('out'):
            if epochs:
                shutil.rmtree('out')
            else:
                exit()
        os.makedirs('out')
    """
    text = convert(imports="import shutil", setup="epochs = 3", ready=before).new_text
    assert "accelerator.wait_for_everyone()\nif accelerator.is_main_process:\n    os.makedirs('out')" in text


def test_a_folder_beside_a_word_is_not_waited_for() -> None:
    before = f"if os.path.exists('out'):\n    print('again')\nelse:\n{MAKES}"
    assert "wait_for_everyone" not in convert(ready=before).new_text


@pytest.mark.parametrize("before", ["", "        open('log.txt', 'w').write('again')\n"])
def test_the_wait_stands_outside_of_what_the_main_process_does_alone(before: str) -> None:
    """All of the branch is the main process's, or what comes before the wait: no guard goes around the wait."""
    other = f"    again = input('Overwrite? ') == 'y'\n    if again:\n{before}        shutil.rmtree('out')\n"
    asks = f"if not os.path.exists('out'):\n{MAKES}else:\n{other}        os.makedirs('out')\n"
    text = convert(imports="import shutil", setup="epochs = 3", ready=asks).new_text
    guarded = "        if accelerator.is_main_process:\n            "
    log = f"{guarded}open('log.txt', 'w').write('again')\n" if before else ""
    waits = f"        accelerator.wait_for_everyone()\n{guarded}shutil.rmtree('out')\n"
    assert f"    if again:\n{log}{waits}" in text
