"""Tensors that are fitted to each batch: their gradients are each process's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.convert import convert_project, convert_source
from accelify.source import Source
from tests.transforms.support import PATH

FIT = """\
def fit(init, wanted):
    pose = init.detach().clone()
    shape = torch.zeros(len(init), 2)
    pose.requires_grad = True
    shape.requires_grad_()
    fitted = [pose, shape]
    optimizer = torch.optim.Adam(fitted, lr=0.01)
    for _ in range(5):
        error = (body({run}) + shape.sum() - wanted).pow(2).sum()
        optimizer.zero_grad()
        error.backward()
        optimizer.step()
    return pose
"""
TRAIN = """\
import torch
from torch.utils.data import DataLoader, TensorDataset

model = torch.nn.Linear(4, 4)
body = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(8, 4), torch.randn(8, 1)), batch_size=2)


{fit}

for x, y in loader:
    better = fit(model(x), y)
    loss = (model(x) - better).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def converted(text: str) -> str:
    found = convert_source(Source.from_text(text, PATH))
    assert found.status == "converted", found.reason
    compile(found.new_text, "train.py", "exec", dont_inherit=True)
    return found.new_text


def test_what_is_fitted_stays_as_it_is() -> None:
    text = converted(TRAIN.format(fit=FIT.format(run="pose")))
    assert FIT.format(run="pose") in text
    assert "accelerator.backward(loss)" in text
    assert "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)" in text


def test_a_trained_model_has_no_part_in_it() -> None:
    text = converted(TRAIN.format(fit=FIT.format(run="model(pose)")))
    assert "        error.backward(inputs=[pose, shape])\n" in text


def test_in_the_loop_over_the_batches() -> None:
    loop = "    code = torch.zeros(2, 4).requires_grad_()\n    inner = torch.optim.SGD([code], lr=1.0)\n"
    loop += "    for _ in range(3):\n        inner.zero_grad()\n        (body(code) - y).pow(2).sum().backward()\n"
    loop += "        inner.step()\n    better = code.detach()\n"
    text = converted(TRAIN.format(fit="").replace("    better = fit(model(x), y)\n", loop))
    assert loop in text


ATTACK = """\
def attack(x, y):
    noisy = torch.autograd.Variable(x.data, requires_grad=True)
    for _ in range(5):
        inner = torch.optim.SGD([noisy], lr=0.001)
        inner.zero_grad()
        error = (model(noisy) - y).pow(2).sum()
        error.backward()
        noisy = torch.autograd.Variable(noisy.data + noisy.grad.data.sign(), requires_grad=True)
    return noisy
"""


def test_an_optimizer_that_only_clears_what_is_made_for_the_batch_is_not_prepared() -> None:
    text = converted(TRAIN.format(fit=ATTACK).replace("fit(model(x), y)", "attack(x, y)"))
    assert ATTACK.replace("error.backward()", 'accelerator.backward(error, reduction="sum")') in text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("pose = init.detach().clone()", "pose = torch.nn.Parameter(init.detach().clone())"),
        ("def fit(init, wanted):", "pose = torch.zeros(4)\n\n\ndef fit(init, wanted):\n    global pose"),
    ],
)
def test_what_lasts_longer_is_trained(before: str, after: str) -> None:
    text = converted(TRAIN.format(fit=FIT.format(run="pose").replace(before, after)))
    assert "error.backward()" not in text


def test_a_package_goes_before_a_file_of_its_name(tmp_path: Path) -> None:
    """`train.py` beside `train/`: `from train import Trainer` is of the package."""
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "__init__.py").write_text("from .trainer import Trainer\n")
    trainer = TRAIN.format(fit="").replace("    better = fit(model(x), y)\n", "    better = y\n")
    body = "".join(f"        {line}\n" if line else "\n" for line in trainer.splitlines()[3:])
    (tmp_path / "train" / "trainer.py").write_text(
        "import torch\nfrom torch.utils.data import DataLoader, TensorDataset\n\n\n"
        f"class Trainer:\n    def __init__(self):\n        self.rounds = 1\n\n    def train(self):\n{body}"
    )
    script = tmp_path / "train.py"
    script.write_text("from train import Trainer\n\nif __name__ == '__main__':\n    Trainer().train()\n")
    found = convert_project(Source.read(script))
    assert found[0].status == "converted", found[0].reason
    assert any("accelerator.backward(loss)" in one.new_text for one in found)
