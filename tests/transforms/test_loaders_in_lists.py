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
    assert within or text.index("prepare(loader)") < text.index(UNPACKED)
    assert "gather_for_metrics(net(x))" in text
    assert ".to(device)" not in text


def test_one_place_with_a_name_and_one_without() -> None:
    loop = "other = loaders[1]\n" + RUN.format(train="loaders[0]", test="other")
    text = converted(HEAD + in_function(loop) + COMPREHENSION + NET + "run(net, opt, loaders)\n")
    assert text.count("prepare(loader)") == 1
    assert "other = accelerator" not in text


def test_a_list_is_prepared_before_names_take_its_elements() -> None:
    taken = 'first, other = loaders["a"], loaders["b"]\n'
    made = 'loaders = {x: DataLoader(data, batch_size=4, shuffle=True) for x in ("a", "b")}\n'
    text = converted(HEAD + made + taken + NET + RUN.format(train='loaders["a"]', test="other"))
    assert text.index("accelerator.prepare(loader)") < text.index(taken)
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


SPLIT = """
from torch.utils.data import random_split

def halves(loader, share):
    first, second = random_split(loader.dataset, [share, 1 - share])
    return DataLoader(first, batch_size=loader.batch_size, shuffle=True), DataLoader(second, batch_size=4)

def maybe_halves(loader, share):
    if share == 1:
        return loader, None
    return halves(loader, share)

def main(share=None):
    train = DataLoader(data, batch_size=4, shuffle=True)
    if share is not None:
        train, test = {split}(train, share)
"""


def split(loop: str, how: str = "halves") -> str:
    lines = "".join(f"    {line}\n" for line in (NET + loop).splitlines())
    return f"{HEAD}{SPLIT.format(split=how)}{lines}\nmain(0.5)\n"


TRAINING = RUN[: RUN.index("    found")].format(train="train")
BY_NEXT = TRAINING.replace(
    "    for x, y in train:\n",
    "    batches = iter(train)\n    for _ in range(len(train)):\n        x, y = next(batches)\n",
)


SAME_NAME = """
    loader = DataLoader(first, batch_size=loader.batch_size, shuffle=True)
    return loader, DataLoader(second, batch_size=4)
"""


def test_a_function_whose_parameter_is_bound_to_the_new_loader() -> None:
    before = split(TRAINING)
    old = before[before.index("    return DataLoader(first") : before.index("def maybe_halves")]
    text = converted(before.replace(old, SAME_NAME))
    assert text.count("prepare(") == 1
    assert "net, opt, train = accelerator.prepare(net, opt, train)" in text


def test_a_function_that_may_give_back_what_it_was_given() -> None:
    text = converted(split(TRAINING, "maybe_halves"))
    assert text.count("prepare(") == 1
    assert "net, opt, train = accelerator.prepare(net, opt, train)" in text


def test_what_is_put_around_a_loader_goes_around_the_prepared_one() -> None:
    prefetcher = """
class Prefetcher:
    def __init__(self, loader, share):
        self.loader = loader

    def __iter__(self):
        yield from self.loader

    def __len__(self):
        return len(self.loader)

"""
    before = split(TRAINING, "Prefetcher").replace("train, test = Pref", "train = Pref")
    text = converted(before.replace("def main", prefetcher + "def main"))
    assert text.index("train = accelerator.prepare(train)") < text.index("train = Prefetcher(train, share)")


@pytest.mark.parametrize("loop", [TRAINING, BY_NEXT])
def test_a_loader_that_is_made_anew_of_its_data_is_prepared_after_that(loop: str) -> None:
    text = converted(split(loop))
    assert text.index("halves(train, share)\n    net") < text.index(
        "net, opt, train = accelerator.prepare(net, opt, train)"
    )
    assert text.count("prepare(") == 1
    assert ".to(device)" not in text
