"""What keeps several processes from sharing the work."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from accelify.convert import convert_source
from accelify.source import Source
from tests.transforms.support import PATH, check_noop, check_transformed, codes, convert

SIZE = {"setup": "batch_size = 8"}
CODES = ("ACC402", "ACC404", "ACC405")


@pytest.mark.parametrize(
    "snippet",
    [
        "h = torch.zeros(x.size(0), 4)",
        "batch_size = x.size(0)\nh = torch.zeros(batch_size, 4)",
        "h = torch.zeros(8, 4)",
        "h = x.view(-1, 4)",
        "if i > 100:\n    break",
        "if epoch == 3:\n    break",
        "h = torch.matmul(x, x.new_ones(4, 2))",
    ],
)
def test_sizes_and_exits_that_are_right_stay(snippet: str) -> None:
    check_noop("batch", snippet, *CODES)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("h = torch.zeros(batch_size, 4)", "h = torch.zeros(x.size(0), 4)"),
        ("é = torch.randn(batch_size, 4) + 1", "é = torch.randn(x.size(0), 4) + 1"),
        ("h = x.view(batch_size, -1)", "h = x.view(x.size(0), -1)"),
        ("h = x.reshape(batch_size, 4)", "h = x.reshape(-1, 4)"),
        ("h = x.reshape((batch_size, 4))", "h = x.reshape((-1, 4))"),
        (
            "h = x.view((batch_size, 2, -1))",
            "# TODO(accelify ACC404): take the size of the current batch, as in data.size(0)\n"
            "h = x.view((batch_size, 2, -1))",
        ),
    ],
)
def test_the_batchs_own_size(before: str, after: str) -> None:
    check_transformed("batch", before, after, **SIZE)


NAMED = {
    "build": "model = nn.Linear(4, 2)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nROWS = 8",
    "ready": "loader = DataLoader(data, batch_size=ROWS, shuffle=True)",
}


def test_the_size_that_a_loader_is_told_by_another_name() -> None:
    check_transformed("batch", "h = x.view(ROWS, 2, 2)", "h = x.view(-1, 2, 2)", **NAMED)
    check_transformed("batch", "h = torch.zeros(ROWS, 4)", "h = torch.zeros(x.size(0), 4)", **NAMED)
    check_noop("batch", "h = x.view(ROWS, 2, 2)", "ACC404", setup="ROWS = 8")


def test_a_function_that_is_called_for_each_batch() -> None:
    helper = "def shaped(z, batch_size):\n    return z.view({}, 2, 2), z.view(batch_size, 2, 2)\n"
    calls = {"batch": "h = shaped(x, x.size(0))", **NAMED}
    check_transformed("setup", helper.format("ROWS"), helper.format("-1"), **calls)
    check_noop("setup", helper.format("ROWS"), "ACC404", **NAMED)


@pytest.mark.parametrize(
    ("test", "agreed"),
    [
        ("loss.item() < 0.1", 'accelerator.reduce(loss.item(), reduction="mean") < 0.1'),
        ("i > 3 and loss < 0.1", 'i > 3 and accelerator.reduce(loss, reduction="mean") < 0.1'),
        ("torch.isnan(loss).any()", 'torch.isnan(accelerator.reduce(loss, reduction="mean")).any()'),
    ],
)
def test_processes_agree_when_to_leave(test: str, agreed: str) -> None:
    check_transformed(
        "update",
        f"optimizer.step()\nif {test}:\n    break",
        f"optimizer.step()\nif {agreed}:\n    break",
    )


def test_processes_agree_which_batch_to_skip() -> None:
    loss = "loss = F.cross_entropy(model(x), y)\nif {}:\n    continue"
    agreed = 'torch.isnan(accelerator.reduce(loss, reduction="mean"))'
    check_transformed("loss", loss.format("torch.isnan(loss)"), loss.format(agreed))


@pytest.mark.parametrize(
    ("before", "test"),
    [
        ("", "(output.argmax(1) == y).all()"),
        ("if y.sum() > 3:", "loss.item() < 0.1"),
    ],
)
def test_an_exit_on_a_local_number_is_left_to_a_person(before: str, test: str) -> None:
    stop = f"if {test}:\n    break"
    if before:
        stop = before + "\n" + textwrap.indent(stop, "    ")
    conversion = convert(
        loss="output = model(x)\nloss = F.cross_entropy(output, y)",
        update=f"optimizer.step()\n{stop}\nbest = loss.item()",
    )
    assert "ACC405" in {f.code for f in conversion.remaining}


AGREED = """\
import torch
from torch import nn
from torch.utils.data import DataLoader

net = nn.Linear(4, 2).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
data = list(range(64))
loader = DataLoader(data, batch_size=8, shuffle=True)
best_loss, best_epoch = 99, 0
for epoch in range(30):
    running_loss = 0.0
    for x, y in loader:
        x, y = x.cuda(), y.cuda()
        loss = nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        running_loss += loss.item() * x.size(0)
    epoch_loss = running_loss / len(data)
    if epoch_loss < best_loss:
        best_loss = epoch_loss
        best_epoch = epoch
    if (epoch - best_epoch) >= 3:
        break
"""


def test_a_counter_of_what_all_processes_agreed_on_ends_the_training_everywhere() -> None:
    """A total that is reduced is the same number everywhere, and so is how long it did not fall."""
    conversion = convert_source(Source.from_text(AGREED, PATH))
    assert "running_loss = accelerator.reduce(running_loss" in conversion.new_text
    assert "ACC405" not in codes(conversion)


CARRIED = """
net = nn.LSTM(4, 2)
loader = DataLoader(data, batch_size=batch_size{more})
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    state = {state}
    for x, y in loader:
        out, {kept} = net(x, state)
        out.sum().backward()
"""


@pytest.mark.parametrize("state", ["net.init_hidden(batch_size)", "torch.zeros(1, batch_size, 2)"])
def test_a_state_that_goes_from_batch_to_batch_has_the_size_of_whole_batches(state: str) -> None:
    size = {"setup": "batch_size = 8"}
    for kept in ("state", "last"):
        assert "ACC404" in codes(convert(end=CARRIED.format(more="", state=state, kept=kept), **size))
        whole = CARRIED.format(more=", drop_last=True", state=state, kept=kept)
        assert "ACC404" not in codes(convert(end=whole, **size))
    own = CARRIED.format(more="", state="torch.zeros(1, 1, 2)", kept="state")
    assert "ACC404" not in codes(convert(end=own, **size))


def test_what_is_made_for_data_that_every_process_goes_through_has_its_size() -> None:
    update = """
    optimizer.step()
    state = torch.zeros(batch_size, 4)
    total = 0
    for a, b in {loader}:
        for part in (a, b):
            total += model(a + state).sum().item()
    print(total)
    """
    for loader, found in (("test_loader", False), ("loader", True)):
        conversion = convert(setup="batch_size = 8", update=update.format(loader=loader))
        assert ("ACC404" in codes(conversion)) == found


def test_loaders_that_leave_the_partial_batch_out_give_whole_ones() -> None:
    made = {"setup": "batch_size = 8", "batch": "x = x + torch.randn(batch_size, 4)"}
    build = "model = nn.Linear(4, 2)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    assert "ACC404" in codes(convert(**made, build=build))
    loader = "loader = DataLoader(data, batch_size=batch_size, drop_last=True)\n"
    assert "ACC404" not in codes(convert(**made, ready=loader, build=build))
    assert "ACC404" in codes(convert("total", **made, ready=loader, build=build))


@pytest.mark.parametrize(
    ("loop", "size"),
    [
        ("for ii, (x, y) in tqdm(enumerate(loader)):", "x.size(0)"),
        ("for ii, (x, y) in enumerate(tqdm(loader)):", "x.size(0)"),
        ("for ii, (x, y) in zip(range(9), loader):", "batch_size"),
    ],
)
def test_the_counter_of_a_loop_is_no_batch(loop: str, size: str) -> None:
    end = (
        f"{loop}\n    noise = torch.zeros(batch_size, 4)\n    F.cross_entropy(model(x + noise), y).backward()"
    )
    text = convert(imports="from tqdm import tqdm", end=end, **SIZE).new_text
    assert f"noise = torch.zeros({size}, 4)" in text


@pytest.mark.parametrize(
    "batch", ["noise.copy_(torch.zeros(batch_size, 4))", "with torch.no_grad():\n    model(noise)"]
)
def test_noise_of_its_own_size_stays(batch: str) -> None:
    check_noop("batch", batch, *CODES, ready="noise = torch.zeros(batch_size, 4)", **SIZE)


@pytest.mark.parametrize(
    ("test", "after"),
    [
        ("if x.size(0) == 1:", 'if accelerator.reduce(x.size(0), reduction="min") == 1:'),
        ("if len(x) != 8:", 'if accelerator.reduce(len(x), reduction="min") != 8:'),
        ("if i == 3:", "if i == 3:"),
    ],
)
def test_steps_that_are_skipped_for_the_size_of_their_batch(test: str, after: str) -> None:
    check_transformed("batch", f"{test}\n    continue", f"{after}\n    continue")


@pytest.mark.parametrize(
    ("test", "loses"),
    [
        ("len(x) != 8", True),
        ("x.size(0) < 8", True),
        ("8 > len(x)", True),
        ("not (len(x) == 8)", True),
        ("not len(x) >= 8", True),
        ("len(x) == 1", False),
        ("len(x) < 2", False),
        ("len(x) > 64", False),
    ],
)
def test_full_batches_that_a_skip_leaves_out_too(test: str, loses: bool) -> None:
    words = "up to N-1 full batches of a pass are left out on N processes"
    (said,) = [f for f in convert(batch=f"if {test}:\n    continue").applied if f.code == "ACC405"]
    assert (words in said.message) is loses
    loss = f"if {test}:\n    loss = F.cross_entropy(model(x), y)\n    loss.backward()\n    optimizer.step()"
    (said,) = [f for f in convert(loss=loss, backward="", update="").applied if f.code == "ACC405"]
    assert (words in said.message) is (test == "len(x) > 64")


@pytest.mark.parametrize("more", ["", ", drop_last=True"])
def test_the_size_of_a_batch_that_is_cut_is_that_of_its_shares(more: str) -> None:
    conversion = check_transformed(
        "batch",
        "if len(x) != 8:\n    continue",
        'if accelerator.reduce(len(x), reduction="sum") != 8:\n    continue',
        ready=f"loader = DataLoader(data, batch_size=8{more})",
        batch_size="total",
    )
    (said,) = [f.message for f in conversion.applied if f.code == "ACC405"]
    assert said.startswith("`len(x) != 8` would ask for the size of one process's share of the batch")
    check_transformed(
        "batch",
        "if len(x) == 1:\n    continue",
        'if accelerator.reduce(len(x), reduction="min") == 1:\n    continue',
        ready=f"loader = DataLoader(data, batch_size=8{more})",
        batch_size="total",
    )


def test_a_step_under_a_test_of_its_size() -> None:
    loss = (
        "if len(y) > 1:\n    loss = F.cross_entropy(model(x), y)\n    loss.backward()\n    optimizer.step()"
    )
    conversion = convert(loss=loss, backward="", update="")
    assert 'if accelerator.reduce(len(y), reduction="min") > 1:' in conversion.new_text


def test_batches_of_one_size_need_not_agree() -> None:
    ready = "loader = DataLoader(data, batch_size=8, drop_last=True)"
    check_noop("batch", "if x.size(0) != 8:\n    continue", "ACC405", ready=ready)


def test_a_sentence_that_ends_leaves_only_its_own_loop() -> None:
    loss = """
    loss = 0
    for step in range(5):
        out = model(x)
        loss = loss + F.cross_entropy(out, y)
        if out.argmax(1)[0].item() == 1:
            break
    """
    assert "ACC405" not in codes(convert(loss=loss))


TYPE = "batch_size = 8\nTensor = torch.cuda.FloatTensor if torch.cuda.is_available() else torch.Tensor\n"


@pytest.mark.parametrize(
    ("made", "batch", "found"),
    [
        ("held = Tensor(batch_size, 4)", "x = held.copy_(x)", True),
        ("held = torch.empty(batch_size, 4)", "x = held.copy_(x)", True),
        ("held = Variable(Tensor(batch_size, 2).fill_(1.0))", "F.mse_loss(model(x), held).backward()", True),
        ("held = torch.ones(batch_size, 2)", "scores = model(2 * x)\nF.mse_loss(scores, held)", True),
        ("held = Tensor(batch_size, 4)", "x = held[: len(x)].copy_(x)", False),
        ("held = Tensor(batch_size, 4)", "held.data.resize_(x.size()).copy_(x)\nx = held + 0", False),
        ("held = torch.ones(batch_size, 2)", "F.mse_loss(model(x), held[: len(x)])", False),
        ("held = Tensor(batch_size, 4)", "scores = model(2 * x)\nprint(model(held), scores)", False),
        ("held = Tensor([batch_size, 4])", "F.mse_loss(model(x), held)", False),
    ],
)
def test_tensors_of_the_configured_size_that_meet_the_batch(made: str, batch: str, found: bool) -> None:
    conversion = convert(
        imports="from torch.autograd import Variable", setup=TYPE + made, batch=batch, build=NAMED["build"]
    )
    assert ("ACC404" in codes(conversion)) is found


def test_a_tensor_type_in_the_loop_takes_the_size_at_hand() -> None:
    before, after = "h = Tensor(batch_size, 4)", "h = Tensor(x.size(0), 4)"
    check_transformed("batch", before, after, setup=TYPE, build=NAMED["build"])


@pytest.mark.parametrize("rounds", ["range(options.epochs)", "trange(options.epochs)"])
def test_a_bar_over_rounds_is_no_data(rounds: str) -> None:
    text = f"""
import argparse
import torch
from tqdm import trange

options = argparse.ArgumentParser().parse_args()
x = torch.randn(8, 4)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
rounds = {rounds}
for _ in rounds:
    optimizer.zero_grad()
    model(x).mean().backward()
    optimizer.step()
"""
    found = convert_source(Source.from_text(text, Path("train.py")))
    (message,) = [f.message for f in found.remaining if f.code == "ACC402"]
    assert message.startswith("the training data is not seen to come from a DataLoader")


def test_a_bar_over_rounds_with_the_name_of_a_loader_keeps_no_data_from_being_shared() -> None:
    text = """
import torch
from torch.utils.data import DataLoader
from tqdm import trange

loader = DataLoader(data, batch_size=4)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
epoch_iterator = trange(3)
for _ in epoch_iterator:
    for x in loader:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
        epoch_iterator.set_description("step")
"""
    found = convert_source(Source.from_text(text, Path("train.py")))
    assert "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)" in found.new_text
    assert not found.remaining
    assert 'accelerator.backward(model(x).sum(), reduction="sum")' in found.new_text
