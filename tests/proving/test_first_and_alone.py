"""What the main process does before the others, who wait for it, and what one process that is alone does."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import named

FETCHED = """
from contextlib import contextmanager


@contextmanager
def zero_first(rank):
    if rank not in [-1, 0]:
        dist.barrier()
    yield
    if rank == 0:
        dist.barrier()


def fetch(path):
    if not os.path.isfile(path):
        print("fetching", path)
        os.system(f"curl -o {path} http://localhost/w.pt")


dist.init_process_group("gloo")
rank = dist.get_rank()
with zero_first(rank):
    fetch("w.pt")
model = DDP(torch.nn.Linear(4, 1))
model(torch.ones(2, 4)).mean().backward()
"""
ALL = [
    ("ACC702", 'print("fetching", path)'),
    ("ACC702", 'os.system(f"curl -o {path} http://localhost/w.pt")'),
]
WAITING = "    if rank not in [-1, 0]:\n        dist.barrier()\n"
HERE = """if rank != 0:
    dist.barrier()
fetch("w.pt")
if rank == 0:
    dist.barrier()
"""


def test_context_manager_of_the_script(tmp_path):
    """Who finds the file does nothing, and the others come when it is there; with nobody that waits all of them do."""
    assert not named(FETCHED, tmp_path)
    assert [one for one in named(FETCHED.replace(WAITING, ""), tmp_path) if one[0] == "ACC702"] == ALL


def test_what_is_done_in_turns_by_all(tmp_path):
    """Without a question for the file all of them do it, one after the others."""
    always = FETCHED.replace("not os.path.isfile(path)", "len(path) > 1")
    assert named(always, tmp_path) == ALL


def test_turns_without_a_context_manager(tmp_path):
    text = FETCHED.replace('with zero_first(rank):\n    fetch("w.pt")\n', HERE)
    assert not named(text, tmp_path)
    late = text.replace(HERE, HERE.replace('fetch("w.pt")\n', "") + 'fetch("w.pt")\n')
    assert named(late, tmp_path) == ALL


ALONE = """
if "RANK" in os.environ:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
else:
    rank = -1
model = torch.nn.Linear(4, 1)
if rank != -1:
    model = DDP(model)
model(torch.ones(2, 4)).mean().backward()
assert rank {test}, "wrong"
print("trained")
"""


@pytest.mark.parametrize(
    ("test", "is_right"), [("== -1", True), ("< 0", True), (">= 0", False), ("!= -1", False)]
)
def test_what_an_assertion_leaves_to_one_process(test, is_right, tmp_path):
    assert named(ALONE.format(test=test), tmp_path) == ([] if is_right else [("ACC702", 'print("trained")')])


NOT_LAUNCHED = """
try:
    rank = int(os.environ["{key}"])
    dist.init_process_group("gloo")
    several = True
except {error}:
    several = False
    print("alone")
model = torch.nn.Linear(4, 1)
if several:
    model = DDP(model)
model(torch.ones(2, 4)).mean().backward()
"""


@pytest.mark.parametrize(
    ("key", "error", "is_right"),
    [
        ("RANK", "KeyError", True),
        ("WORLD_SIZE", "KeyError", True),
        ("NAME", "KeyError", False),
        ("RANK", "OSError", False),
    ],
)
def test_what_a_process_does_that_is_not_launched(key, error, is_right, tmp_path):
    found = named(NOT_LAUNCHED.format(key=key, error=error), tmp_path)
    assert (("ACC702", 'print("alone")') in found) != is_right


WRITER = """
from torch.utils.tensorboard import SummaryWriter
dist.init_process_group("gloo")
rank = dist.get_rank()
folder = "runs/x" if rank == 0 else {other}
writer = {made}
model = DDP(torch.nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=False)):
    opt.zero_grad()
    F.mse_loss(model(x), y).backward()
    opt.step()
"""


@pytest.mark.parametrize(
    ("other", "made", "is_right"),
    [
        ("None", "SummaryWriter(log_dir=folder)", False),
        ("None", "SummaryWriter(log_dir=folder) if folder else None", True),
        ('f"runs/{rank}"', "SummaryWriter(log_dir=folder)", True),
    ],
)
def test_a_writer_that_is_given_no_folder_has_one_of_its_own(other, made, is_right, tmp_path):
    found = named(WRITER.format(other=other, made=made), tmp_path)
    assert found == ([] if is_right else [("ACC702", f"writer = {made}")])
