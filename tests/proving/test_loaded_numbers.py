"""Files that a script loads without a device for what is in them."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import GROUP, named


@pytest.mark.parametrize(
    ("content", "is_plain"),
    [
        ("[[ord(letter) for letter in word] for word in words]", True),
        ('{"number": 3, "names": ["a", "b"]}', True),
        ("[torch.ones(3).cuda(), 4]", False),
        ("make(words)", False),
        ("[]", False),
    ],
)
def test_what_the_script_itself_writes(content, is_plain, tmp_path):
    """Lists of numbers were on no GPU; of what is not known, and of what others write, that is not known."""
    text = f"""{GROUP}
from project_tools import make
words = open("text.txt").read().split()
torch.cuda.set_device(dist.get_rank())
if dist.get_rank() == 0:
    torch.save({content}, "kept.pt")
dist.barrier()
kept = torch.load("kept.pt")
"""
    line = "kept = torch.load(FILE)"
    assert named(text, tmp_path) == ([] if is_plain else [("ACC714", line.replace("FILE", '"kept.pt"'))])
    other = text.replace('load("kept.pt")', 'load("other.pt")')
    assert named(other, tmp_path) == [("ACC714", line.replace("FILE", '"other.pt"'))]
