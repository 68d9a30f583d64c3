"""Objects of libraries that write themselves into a file, read there by who comes later."""

from __future__ import annotations

import pytest

from tests.transforms.support import check_transformed, convert, place_of

MAKE = """def words(file):
    path = Path(file)
    if not path.exists():
        made = Tokenizer(WordLevel())
        made.save(str(path))
    else:
        made = Tokenizer.from_file(str(path))
    return made"""
IMPORTS = (
    "from pathlib import Path\nfrom tokenizers import Tokenizer\nfrom tokenizers.models import WordLevel"
)


def test_one_process_makes_it_and_the_others_read_it() -> None:
    text = convert(imports=IMPORTS, setup=MAKE, ready="known = words('a.json')").new_text
    turns = "with accelerator.main_process_first():\n        if not path.exists():"
    assert turns in place_of(text, "setup")


@pytest.mark.parametrize("given", ["'a.json'", "str(Path('a.json'))"])
def test_the_main_process_saves_what_is_only_saved(given: str) -> None:
    line = f"made = Tokenizer(WordLevel())\nmade.save({given})"
    after = f"made = Tokenizer(WordLevel())\nif accelerator.is_main_process:\n    made.save({given})"
    check_transformed("end", line, after, imports=IMPORTS)
