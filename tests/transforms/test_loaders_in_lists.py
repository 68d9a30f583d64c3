"""Loaders that one call makes for a list, and that names or places in it are gone through by."""

from __future__ import annotations

import pytest

from tests.transforms.test_real_kinds import converted

HEAD = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
data = TensorDataset(torch.randn(32, 3), torch.randn(32, 1))
"""
FILLED = """\
loaders = []
for first in (True, False):
    loaders.append(DataLoader(data, batch_size=4, shuffle=first))
"""
COMPREHENSION = "loaders = [DataLoader(data, batch_size=4, shuffle=first) for first in (True, False)]\n"
WRITTEN_OUT = """\
first = DataLoader(data, batch_size=4, shuffle=True)
second = DataLoader(data, batch_size=4)
loaders = [first, second]
"""
NET = """\
net = nn.Linear(3, 1).to(device)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
"""
RUN = """\
for epoch in range(2):
    for x, y in {train}:
        x, y = x.to(device), y.to(device)
        loss = (net(x) - y).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    found = []
    with torch.no_grad():
        for x, y in {test}:
            found.append(net(x.to(device)))
    print(torch.cat(found).mean())
"""
UNPACKED = "train_loader, test_loader = loaders\n"


def in_function(loop: str) -> str:
    lines = "".join(f"    {line}\n" for line in loop.splitlines())
    return f"def run(net, opt, loaders):\n{lines}\n"


@pytest.mark.parametrize("made", [FILLED, COMPREHENSION])
@pytest.mark.parametrize("within", [False, True])
def test_what_is_unpacked_is_prepared_in_its_list(made: str, within: bool) -> None:
    loop = UNPACKED + RUN.format(train="train_loader", test="test_loader")
    script = HEAD + made + NET + loop
    if within:
        script = HEAD + in_function(loop) + made + NET + "run(net, opt, loaders)\n"
    text = converted(script)
    assert text.count("loaders = [accelerator.prepare(loader) for loader in loaders]") == 1
    assert "gather_for_metrics(net(x))" in text
    assert ".to(device)" not in text


def test_one_place_with_a_name_and_one_without() -> None:
    loop = "other = loaders[1]\n" + RUN.format(train="loaders[0]", test="other")
    text = converted(HEAD + in_function(loop) + COMPREHENSION + NET + "run(net, opt, loaders)\n")
    assert text.count("prepare(loader)") == 1
    assert "other = accelerator" not in text


def test_loaders_with_names_are_prepared_before_the_list_has_them() -> None:
    loop = UNPACKED + RUN.format(train="train_loader", test="test_loader")
    text = converted(HEAD + in_function(loop) + WRITTEN_OUT + NET + "run(net, opt, loaders)\n")
    assert text.index("first, second = accelerator.prepare(first, second)") < text.index(
        "loaders = [first, second]"
    )
    assert "prepare(loader)" not in text


def test_names_of_places_in_one_function_stay_prepared_by_name() -> None:
    loop = "train_loader = loaders[0]\ntest_loader = loaders[1]\n" + RUN.format(
        train="train_loader", test="test_loader"
    )
    text = converted(HEAD + COMPREHENSION + NET + loop)
    assert "prepare(loader)" not in text
    assert "train_loader, test_loader = accelerator.prepare(" in text.replace("net, opt, ", "")
