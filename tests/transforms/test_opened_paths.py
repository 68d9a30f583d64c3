"""Files that a path of pathlib opens and a script keeps open."""

from __future__ import annotations

import pytest

from tests.transforms.support import check_noop, check_transformed

PATHS = "import gzip\nfrom pathlib import Path"
FOLDER = "folder = Path('runs')"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "(folder / 'a').open('a')",
            "open(folder / 'a' if accelerator.is_main_process else os.devnull, 'a')",
        ),
        (
            "folder.joinpath('a').open('wt', encoding='utf8')",
            "open(folder.joinpath('a') if accelerator.is_main_process else os.devnull, 'wt', encoding='utf8')",
        ),
        (
            "Path('a').open(mode='w')",
            "open(Path('a') if accelerator.is_main_process else os.devnull, mode='w')",
        ),
    ],
)
def test_the_other_processes_write_to_nothing(before: str, after: str) -> None:
    check_transformed(
        "ready",
        f"{FOLDER}\nlog = {before}\nprint('begun', file=log)",
        f"{FOLDER}\nlog = {after}\nprint('begun', file=log)",
        imports=f"import os\n{PATHS}",
        epoch="log.write('epoch')",
    )


@pytest.mark.parametrize(
    "opening",
    ["(folder / 'a').open()", "(folder / 'a').open('r')", "gzip.open('a')", "shelf.open('weights')"],
)
def test_files_that_are_read_are_opened_by_all(opening: str) -> None:
    check_noop("ready", f"log = {opening}", "ACC203", imports=PATHS, setup=f"{FOLDER}\nshelf = None")
