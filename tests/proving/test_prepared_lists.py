"""`prepare(*objects)` of a list of which it is not known how long it is, and what is taken of the result by numbers."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import named

LISTED = """
import argparse


def build(args, model):
    loader, opt, val = None, None, None
    if args.train:
        loader = DataLoader(data, batch_size=4, shuffle=True)
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
    if args.val:
        val = DataLoader(data, batch_size=4)
    return loader, opt, val


def prepare(model, loader=None, opt=None, val=None):
    objects = [model]
    trains = {trains}
    if trains:
        objects.extend([opt, loader])
    if val is not None:
        objects.append(val)
    done = {done}
    if not isinstance(done, tuple):
        done = (done,)
    at = 0
    model = done[at]
    if trains:
        opt = done[at + 1]
        {loader}
    return model, loader, opt


parser = argparse.ArgumentParser()
parser.add_argument("--train", action="store_true")
parser.add_argument("--val", action="store_true")
args = parser.parse_args()
accelerator = Accelerator()
model = torch.nn.Linear(4, 1)
loader, opt, val = build(args, model)
model, loader, opt = prepare(model, loader, opt, val)
if args.train:
    for x, y in loader:
        accelerator.backward(F.mse_loss(model(x), y))
        opt.step()
        opt.zero_grad()
{saved}
"""
FLAGS = [
    "all(one is not None for one in (loader, opt))",
    "loader is not None",
    "len(objects) < 1 or opt is not None",
]
TAKEN, GIVEN = "loader = done[at + 2]", "accelerator.prepare(*objects)"
PLAIN = "accelerator.save(accelerator.unwrap_model(model), 'model.pt')"
WRAPPED = "accelerator.save(model, 'model.pt')"


@pytest.mark.parametrize("trains", FLAGS)
def test_each_object_is_prepared_in_its_place(trains, tmp_path):
    text = LISTED.format(trains=trains, done=GIVEN, loader=TAKEN, saved=PLAIN)
    assert named(text, tmp_path, "accelerate") == []


@pytest.mark.parametrize("trains", FLAGS)
def test_one_that_is_not_taken_is_as_it_was(trains, tmp_path):
    text = LISTED.format(trains=trains, done=GIVEN, loader="pass", saved=PLAIN)
    assert [code for code, _ in named(text, tmp_path, "accelerate")] == ["ACC705", "ACC710"]


def test_one_that_is_not_prepared_is_named(tmp_path):
    done = "(accelerator.prepare(model), opt, loader)"
    text = LISTED.format(trains=FLAGS[1], done=done, loader=TAKEN, saved=PLAIN)
    found = [line for code, line in named(text, tmp_path, "accelerate") if code == "ACC705"]
    assert "accelerator.backward(F.mse_loss(model(x), y))" in found


def test_a_model_of_the_list_is_in_its_wrapper(tmp_path):
    text = LISTED.format(trains=FLAGS[0], done=GIVEN, loader=TAKEN, saved=WRAPPED)
    assert named(text, tmp_path, "accelerate") == [("ACC707", WRAPPED)]


@pytest.mark.parametrize(
    "more", ["if len(data) > 3:\n    objects.extend([opt, loader])", "objects += [opt, loader]"]
)
def test_all_that_is_taken_of_a_list_is_no_model(more, tmp_path):
    text = f"""
accelerator = Accelerator()
model = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(data, batch_size=4, shuffle=True)
objects = [model]
{more}
done = accelerator.prepare(*objects)
model, opt, loader = done[0], done[1], done[2]
for x, y in loader:
    accelerator.backward(F.mse_loss(model(x), y))
    opt.step()
    opt.zero_grad()
"""
    assert named(text, tmp_path, "accelerate") == []
