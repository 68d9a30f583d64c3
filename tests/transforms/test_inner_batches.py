"""Loaders whose items are lists that are trained on element by element."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.convert import convert_project
from accelify.source import Source
from tests.transforms.test_project_roles import project
from tests.transforms.test_real_kinds import HEAD

GROUPS = """\
def collate(items):
    return [torch.stack([x for x, _ in items[i : i + 4]]) for i in range(0, len(items), 4)]


"""
TRAIN = """\
model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(data, batch_size=16, collate_fn=collate)
"""
LOOP = """\
for batches in loader:
    for x in batches:
        loss = model(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def codes(tmp_path: Path, main: str, **modules: str) -> list[str]:
    project(tmp_path, main=main, **modules)
    return [f.code for c in convert_project(Source.read(tmp_path / "main.py")) for f in c.remaining]


@pytest.mark.parametrize(
    "main",
    [
        GROUPS + TRAIN + LOOP,
        GROUPS + TRAIN + LOOP.replace("in batches", "in tqdm(batches)"),
        GROUPS + TRAIN + LOOP.replace("for batches in loader", "for i, batches in enumerate(loader)"),
        TRAIN.replace("=collate", "=lambda items: [x for x, _ in items]") + LOOP,
        "class Groups:\n    def __call__(self, items):\n        found = []\n        for x, _ in items:\n"
        "            found.append(x)\n        return found\n\n\n"
        + TRAIN.replace("=collate", "=Groups()")
        + LOOP,
        GROUPS
        + "def update(batches):\n    for x in batches:\n        loss = model(x).pow(2).mean()\n"
        + "        optimizer.zero_grad()\n        loss.backward()\n        optimizer.step()\n\n\n"
        + TRAIN
        + "for batches in loader:\n    update(batches)\n",
    ],
)
def test_a_backward_for_each_element_of_an_item(tmp_path: Path, main: str) -> None:
    assert codes(tmp_path, HEAD + main).count("ACC428") == 1


def test_the_elements_are_gone_through_in_another_module(tmp_path: Path) -> None:
    steps = "def run(model, optimizer, loader):\n" + "".join(f"    {line}\n" for line in LOOP.splitlines())
    main = HEAD + "from steps import run\n\n\n" + GROUPS + TRAIN + "run(model, optimizer, loader)\n"
    assert codes(tmp_path, main, steps=steps).count("ACC428") == 1


@pytest.mark.parametrize(
    "main",
    [
        # All lists are as long.
        GROUPS + TRAIN.replace("collate)", "collate, drop_last=True)") + LOOP,
        GROUPS.replace("[torch.stack([x for x, _ in items[i : i + 4]]) for i in range(0, len(items), 4)]",
                       "[torch.stack(column) for column in zip(*items)]") + TRAIN + LOOP,
        # One backward for the whole item.
        GROUPS + TRAIN + "for batches in loader:\n    loss = sum(model(x).pow(2).mean() for x in batches)\n"
        "    optimizer.zero_grad()\n    loss.backward()\n    optimizer.step()\n",
        TRAIN.replace(", collate_fn=collate", "") + LOOP,
    ],
)  # fmt: skip
def test_items_that_every_process_goes_through_alike(tmp_path: Path, main: str) -> None:
    assert "ACC428" not in codes(tmp_path, HEAD + main)
