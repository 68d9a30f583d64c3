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
        ("[torch.from_numpy(numpy.ones(3)), 4]", True),
        ("torch.ones(3).cuda().cpu()", True),
        ("torch.ones(3, device=place)", False),
        ("make(words)", False),
        ("[]", False),
    ],
)
def test_what_the_script_itself_writes(content, is_plain, tmp_path):
    """Numbers and tensors on the host were on no GPU; of what others write, that is not known."""
    text = f"""{GROUP}
import numpy
from project_tools import make, place
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


LOADING = """
import os
accelerator = Accelerator()
model = torch.nn.Linear(4, 1)
kept = torch.load(os.path.join("out", "kept.pt"))
USE
opt = torch.optim.SGD(model.parameters(), lr=0.1)
model, opt, loader = accelerator.prepare(model, opt, DataLoader(data, batch_size=4))
for x, y in loader:
    opt.zero_grad()
    accelerator.backward(F.mse_loss(model(x), y))
    opt.step()
    AFTER
"""


@pytest.mark.parametrize(
    ("use", "after", "is_plain"),
    [
        ("", "", False),
        ("model.load_state_dict(kept)", "", False),
        ("labels = dict(zip(kept, range(9)))", "", True),
        ("labels = dict(zip(range(9), kept))", "", False),
        ("", "kept += 1", True),
        ("", "kept += x.mean()", False),
    ],
)
def test_what_the_script_does_with_it(use, after, is_plain, tmp_path):
    """What it counts on is a number, and what become keys of a dictionary are names."""
    found = named(LOADING.replace("USE", use).replace("AFTER", after), tmp_path, "accelerate")
    assert (("ACC714", 'kept = torch.load(os.path.join("out", "kept.pt"))') in found) is not is_plain


def test_weights_that_are_loaded_before_there_is_an_accelerator(tmp_path):
    text = LOADING.replace("accelerator = Accelerator()\n", "").replace(
        "opt = t", "accelerator = Accelerator()\nopt = t"
    )
    weights = text.replace("USE", 'model.load_state_dict(kept["model"])').replace("AFTER", "")
    line = 'kept = torch.load(os.path.join("out", "kept.pt"))'
    assert named(weights, tmp_path, "accelerate") == [("ACC714", line)]
    assert named(text.replace("USE", "").replace("AFTER", ""), tmp_path, "accelerate") == []
    mapped = weights.replace('"kept.pt"))', '"kept.pt"), map_location="cpu")')
    assert named(mapped, tmp_path, "accelerate") == []
