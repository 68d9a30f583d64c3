"""Folders in which each process puts a file of its own, and that are listed before all have."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import named

FILLED = """
import glob
dist.init_process_group("gloo")
rank = dist.get_rank()
os.makedirs("out", exist_ok=True)
{written}
{between}
{listed}
"""
WRITTEN = [
    'torch.save(torch.ones(2), f"out/{rank}.pt")',
    'for n in range(3):\n    torch.save(torch.ones(2), os.path.join("out", f"{n}_{rank}.pt"))',
]
LISTED = ['if rank == 0:\n    names = os.listdir("out")', 'names = glob.glob("out/*.pt")']


@pytest.mark.parametrize("written", WRITTEN)
@pytest.mark.parametrize("listed", LISTED)
def test_nothing_waits_for_those_who_still_write(written, listed, tmp_path):
    found = named(FILLED.format(written=written, between="", listed=listed), tmp_path)
    assert found == [("ACC709", listed.splitlines()[-1].strip())]


@pytest.mark.parametrize("written", WRITTEN)
@pytest.mark.parametrize("listed", LISTED)
def test_all_have_written_after_a_barrier(written, listed, tmp_path):
    assert named(FILLED.format(written=written, between="dist.barrier()", listed=listed), tmp_path) == []


@pytest.mark.parametrize("listed", ['names = os.listdir("other")', 'names = glob.glob("out/*.json")'])
def test_what_is_listed_is_not_what_is_written(listed, tmp_path):
    assert named(FILLED.format(written=WRITTEN[0], between="", listed=listed), tmp_path) == []


UNPACKED = """
import shutil
import tarfile
import zipfile
dist.init_process_group("gloo")
if dist.get_rank() == 0:
    {unpacked}
{between}
{read}
"""
UNPACKING = [
    'with tarfile.open("rows.tgz") as archive:\n        archive.extractall("rows")',
    'with zipfile.ZipFile("rows.zip") as archive:\n        archive.extractall(path="rows")',
    'shutil.unpack_archive("rows.zip", "rows")',
]


@pytest.mark.parametrize("unpacked", UNPACKING)
def test_files_of_an_archive_that_the_main_process_unpacks(unpacked, tmp_path):
    read = 'rows = open("rows/first/a.csv").read()'
    found = named(UNPACKED.format(unpacked=unpacked, between="", read=read), tmp_path)
    assert found == [("ACC709", read)]
    assert named(UNPACKED.format(unpacked=unpacked, between="dist.barrier()", read=read), tmp_path) == []
    other = 'rows = open("rows_of_others/a.csv").read()'
    assert named(UNPACKED.format(unpacked=unpacked, between="", read=other), tmp_path) == []


ANEW = """
def batches():
    return iter(DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle={shuffle})))


dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
rest = batches()
for step in range(1000):
    try:
        x, y = next(rest)
    except StopIteration:
        {ended}
        x, y = next(rest)
    opt.zero_grad()
    F.mse_loss(model(x), y).backward()
    opt.step()
"""


def test_a_sampler_that_is_made_anew_for_each_pass_shuffles_alike(tmp_path):
    found = named(ANEW.format(shuffle=True, ended="rest = batches()"), tmp_path)
    assert [code for code, _ in found] == ["ACC716"]


@pytest.mark.parametrize(("shuffle", "ended"), [(False, "rest = batches()"), (True, "break")])
def test_one_of_a_single_pass_or_in_order_need_not_be_numbered(shuffle, ended, tmp_path):
    assert "ACC716" not in [code for code, _ in named(ANEW.format(shuffle=shuffle, ended=ended), tmp_path)]


MADE = """
dist.init_process_group("gloo")
{first}
if not os.path.exists("out"):
    os.makedirs("out")
"""


def test_a_folder_that_each_process_has_made_before_is_there(tmp_path):
    assert named(MADE.format(first='os.makedirs("out", exist_ok=True)'), tmp_path) == []
    assert named(MADE.format(first='os.makedirs("other", exist_ok=True)'), tmp_path) == [
        ("ACC702", 'os.makedirs("out")')
    ]
