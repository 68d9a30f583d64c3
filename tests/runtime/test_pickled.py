"""What a file holds of the runtime's objects that a script writes to it within its own."""

import copy
import subprocess
import sys

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from accelify.runtime import Accelerator
from accelify.runtime.data.loaders import DataLoaderShard
from accelify.runtime.data.preparing import prepare_data_loader


class Clipping:
    """An object of a script's that keeps the Accelerator."""

    def __init__(self, accelerator, limit):
        self.accelerator = accelerator
        self.limit = limit


def test_an_object_finds_the_accelerator_of_the_process_that_reads_it(tmp_path):
    torch.save({"clipping": Clipping(Accelerator(cpu=True), 5)}, tmp_path / "state.pt")
    accelerator = Accelerator(cpu=True)
    read = torch.load(tmp_path / "state.pt", weights_only=False)["clipping"]
    assert read.limit == 5
    assert read.accelerator is accelerator


def test_a_prepared_accelerator_in_the_middle_of_an_epoch(tmp_path):
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(torch.randn(16, 4)), batch_size=4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for (x,) in loader:
        accelerator.backward(model(x).sum())
        optimizer.step()
        torch.save(Clipping(accelerator, 5), tmp_path / "state.pt")
    assert torch.load(tmp_path / "state.pt", weights_only=False).accelerator is accelerator


def test_a_copy_in_memory_keeps_its_own():
    first, _ = Accelerator(cpu=True), Accelerator(cpu=True)
    clipping = Clipping(first, 5)
    assert copy.deepcopy(clipping).accelerator is first
    assert copy.copy(first) is first


READ = """
import sys
import torch
from tests.runtime.test_pickled import Clipping

read = torch.load(sys.argv[1], weights_only=False)
print(read.limit, hasattr(read.accelerator, "device"))
try:
    read.accelerator.backward
except AttributeError as error:
    print(error)
torch.save(read, sys.argv[1])
read = torch.load(sys.argv[1], weights_only=False)
from accelify.runtime import Accelerator

accelerator = Accelerator(cpu=True)
print(read.accelerator.device, read.accelerator.backward == accelerator.backward)
"""


def test_an_object_that_is_read_before_there_is_one(tmp_path):
    torch.save(Clipping(Accelerator(cpu=True), 5), tmp_path / "state.pt")
    command = [sys.executable, "-c", READ, str(tmp_path / "state.pt")]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert shown[0] == "5 False"
    assert "`backward` of the Accelerator is asked for by an object that was read from a file" in shown[1]
    assert shown[2] == "cpu True"


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("sampled", [True, False])
def test_a_file_holds_the_loader_of_the_script(tmp_path, ranks, sampled):
    data = TensorDataset(torch.arange(16))
    plain = DataLoader(data, batch_size=4 if sampled else None, sampler=None if sampled else [[0, 1], [2, 3]])
    loader = prepare_data_loader(plain, num_processes=ranks, process_index=0)
    expected = [batch.tolist() for (batch,) in plain]
    shared = [batch.tolist() for (batch,) in loader]
    torch.save([loader], tmp_path / "loader.pt")

    assert b"accelify" not in (tmp_path / "loader.pt").read_bytes()
    (read,) = torch.load(tmp_path / "loader.pt", weights_only=False)
    assert type(read) is DataLoader
    assert [batch.tolist() for (batch,) in read] == expected
    for copied in (copy.copy(loader), copy.deepcopy(loader)):
        assert type(copied) is DataLoaderShard
        assert [batch.tolist() for (batch,) in copied] == shared
