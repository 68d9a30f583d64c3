"""Meetings that some do not come to, as they have left before: the statement by which they leave is named."""

from __future__ import annotations

import pytest

from accelify.convert import convert_project
from accelify.proving import prove
from accelify.source import Source
from tests.proving.several_programs import HEAD, findings, named

TEXT = """
accelerator = Accelerator()
def main():
    if accelerator.is_main_process:
        {body}
        return
    accelerator.wait_for_everyone()
main()
"""


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (1, "reached by all ranks: only on the main process (line 10)"),
        (9, "reached by all ranks, as some leave by `return` (line 20): only on the main process (line 10)"),
    ],
)
def test_the_line_of_a_return_far_from_its_condition(lines, said, tmp_path):
    body = "\n        ".join(["number = 1"] * lines)
    (one,) = findings(TEXT.format(body=body), tmp_path, "accelerate")
    assert said in one.message


TRAINING = """
loader = DataLoader(data, batch_size=6)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def train():
    for epoch in range(2):
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            if torch.isnan(loss):
                return
            loss.backward()
            optimizer.step()
        {shown}
        torch.save(epoch, "epoch.pt")
"""
FIRST = """
first = next(iter(loader))[0]
if first.sum() > 0:
    torch.save(1, "first.pt")
"""


@pytest.mark.parametrize("after", ["", FIRST])
def test_what_is_missed_by_who_has_left_a_training_is_one_finding_with_it(after, tmp_path):
    script = tmp_path / "train.py"
    head = HEAD["accelerate"].replace("from accelerate import Accelerator\n", "")
    text = head + TRAINING.format(shown="print(epoch)") + f"train()\n{after}"
    script.write_text(text)
    entry, *_ = found = convert_project(Source.read(script))
    prove(found, entry)
    made = [one for one in entry.remaining if one.code in ("ACC701", "ACC704") and not one.part]
    left = next(one for one in made if one.code == "ACC704")
    assert "`torch.isnan(loss)` can be true on one rank only" in left.message
    assert str(1 + text[: text.index("print(epoch)")].count("\n")) in left.message
    # What is missed for another reason is a finding of its own.
    assert ["`first.sum() > 0`" in one.message for one in made if one is not left] == [True] * bool(after)


LEFT_BY_ONE = """
dist.init_process_group("gloo")
rank = dist.get_rank()
def prepare(model):
    if rank == 0:
        try:
            open("words.txt").read()
        except OSError:
            return
    model.load_state_dict(torch.load("last.pt", map_location="cpu"))
def main(model):
    if rank == 0:
        try:
            open("words.txt").read()
        except OSError:
            return
    {loads}
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in DataLoader(data, sampler=DistributedSampler(data, shuffle=False)):
        opt.zero_grad()
        F.mse_loss(model(x), y).backward()
        opt.step()
main(DDP(torch.nn.Linear(4, 1)))
"""


@pytest.mark.parametrize(
    ("loads", "said"),
    [
        ('model.load_state_dict(torch.load("last.pt", map_location="cpu"))', False),
        # In another function, from which all come back to the training.
        ("prepare(model)", True),
    ],
)
def test_those_who_have_left_a_training_load_nothing_for_it(loads, said, tmp_path):
    text = LEFT_BY_ONE.format(loads=loads)
    if said:
        text = text.replace("return\n    prepare", "pass\n    prepare")
    found = [one.message for one in findings(text, tmp_path) if one.code == "ACC704"]
    assert any("load_state_dict" in one for one in found) == said
    assert any("`backward`" in one for one in found) != said


ASKING = """
accelerator = Accelerator()
def asked(folder):
    if os.path.exists(os.path.join(folder, "stop")):
        {leaves}
    {rest}

model = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
model, opt, loader = accelerator.prepare(model, opt, DataLoader(data, batch_size=4))
for x, y in loader:
    {asks}
    accelerator.backward(F.mse_loss(model(x), y))
    opt.step()
    opt.zero_grad()
"""


@pytest.mark.parametrize(
    ("leaves", "rest", "asks", "codes"),
    [
        ("return None", "return torch.load('rows.pt', map_location='cpu')", "asked('data')", []),
        ("return True", "return False", "if asked('data'): break", ["ACC704"]),
        ("return None", "accelerator.wait_for_everyone()", "asked('data')", ["ACC704"]),
    ],
)
def test_a_return_where_a_file_is_there_leaves_what_ranks_meet_in(leaves, rest, asks, codes, tmp_path):
    text = "import os\n" + ASKING.format(leaves=leaves, rest=rest, asks=asks)
    assert [code for code, _ in named(text, tmp_path, head="accelerate")] == codes


@pytest.mark.parametrize(
    ("condition", "handled", "is_right"),
    [
        ("dist.get_rank() == 0 and ", "print(error)", False),
        ("dist.get_rank() == 0 and ", "raise", True),
        ("", "print(error)", True),
    ],
)
def test_an_error_that_one_process_raises_and_gets_over(condition, handled, is_right, tmp_path):
    text = f"""
    dist.init_process_group("gloo")
    sampler = DistributedSampler(data, shuffle=False)
    model = DDP(torch.nn.Linear(4, 1))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    try:
        for x, y in DataLoader(data, sampler=sampler):
            loss = F.mse_loss(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            seen = loss.detach().clone()
            dist.all_reduce(seen)
            if {condition}torch.isnan(seen):
                raise ValueError("the loss is no number")
    except Exception as error:
        {handled}
    """
    assert ("ACC704" not in dict(named(text, tmp_path))) == is_right


TWO_BREAKS = """
accelerator = Accelerator()
loader = DataLoader(data, batch_size=4)
model = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
model, opt, loader = accelerator.prepare(model, opt, loader)
for i, (x, y) in enumerate(loader):
    loss = F.mse_loss(model(x), y)
    opt.zero_grad()
    accelerator.backward(loss)
    opt.step()
{breaks}"""
BY_SHARE, BY_ALL = (f"    if {test}:\n        break\n" for test in ("loss.item() < 1e-4", "i >= 7"))


@pytest.mark.parametrize("breaks", [BY_SHARE + BY_ALL, BY_ALL + BY_SHARE, BY_SHARE])
def test_a_break_on_one_share_beside_one_that_all_come_to(breaks, tmp_path):
    found = named(TWO_BREAKS.format(breaks=breaks), tmp_path, "accelerate")
    assert found == [("ACC704", "if loss.item() < 1e-4:")]


def test_a_break_that_all_come_to_is_right(tmp_path):
    assert named(TWO_BREAKS.format(breaks=BY_ALL), tmp_path, "accelerate") == []
