"""The simulated GPU refuses what a GPU refuses, with torch's errors, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gpu.support import Outcome, run_on_gpu

pytestmark = pytest.mark.distributed

BEGIN = """\
import copy
import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

here, there = torch.ones(3), torch.ones(3, device="cuda")
"""
SAME_DEVICE = "RuntimeError: Expected all tensors to be on the same device"
TO_NUMPY = "TypeError: can't convert cuda:0 device type tensor to numpy"
REFUSED = {
    "sum": ("here + there", SAME_DEVICE),
    "concatenation": ("torch.cat([here, there])", SAME_DEVICE),
    "in_place": ("torch.tensor(0.0).add_(there.sum())", SAME_DEVICE),
    "layer": ("nn.Linear(3, 2)(there)", SAME_DEVICE),
    "moved_layer": ("nn.Linear(3, 2).cuda()(here)", SAME_DEVICE),
    "targets": ("nn.functional.cross_entropy(torch.ones(2, 3).cuda(), torch.tensor([0, 1]))", SAME_DEVICE),
    "hidden_state": ("nn.LSTM(3, 4).cuda()(there.view(1, 1, 3), (torch.zeros(1, 1, 4),) * 2)", SAME_DEVICE),
    "numpy": ("there.numpy()", TO_NUMPY),
    "array": ("np.array(there)", TO_NUMPY),
    "index": ("here[torch.tensor([0], device='cuda')]", "RuntimeError: indices should be either on cpu"),
    "set_by_index": ("there[torch.tensor([0, 1])] = here[:2]", SAME_DEVICE),
    "lengths": (
        "pack_padded_sequence(torch.ones(2, 3, 1).cuda(), torch.tensor([3, 2]).cuda(), True)",
        "RuntimeError: 'lengths' argument should be a 1D CPU int64 tensor",
    ),
    "second_gpu": ("here.cuda(1)", "CUDA error: invalid device ordinal"),
}
ALLOWED = {
    "scalar": "assert (there * torch.tensor(2.0)).is_cuda",
    "indices": "assert there[torch.tensor([0])].is_cuda",
    "copies": "here[:2] = there[:2]; there.copy_(here)",
    "moves": "assert not there.cpu().is_cuda and here.to(there.device).is_cuda and here.type_as(there).is_cuda",
    "made_alike": "assert there.new_zeros(2).is_cuda and torch.zeros_like(there).is_cuda and there.new(2).is_cuda",
    "made_of_scalars": "assert torch.tensor([there[0], there[1]]).device.type == 'cpu'",
    "types": "assert isinstance(there, torch.cuda.FloatTensor) and not isinstance(there, torch.FloatTensor)",
    "names_of_types": "assert (there.type(), here.type()) == ('torch.cuda.FloatTensor', 'torch.FloatTensor')",
    "copied_deeply": "assert copy.deepcopy(there).is_cuda and copy.deepcopy(nn.Linear(3, 2).cuda()).weight.is_cuda",
    "inner_results": "assert nn.functional.one_hot(torch.tensor([0, 1]).cuda(), 2).is_cuda",
    "training": """\
net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 2)).cuda()
optimizer = torch.optim.Adam(net.parameters())
nn.functional.cross_entropy(net(torch.ones(5, 3).cuda()), torch.zeros(5).long().cuda()).backward()
optimizer.step()
assert net[0].weight.grad.is_cuda""",
    "gradient_of_a_move": """\
leaf = torch.ones(3, requires_grad=True)
(leaf.cuda() * there).sum().backward()
assert leaf.grad.device.type == 'cpu'""",
    "sequences": """\
packed = pack_padded_sequence(torch.ones(2, 3, 1).cuda(), torch.tensor([3, 2]), True)
values, lengths = pad_packed_sequence(nn.LSTM(1, 4, batch_first=True).cuda()(packed)[0])
assert values.is_cuda and not lengths.is_cuda""",
    "files": """\
torch.save({'a': there}, 'there.pt')
assert torch.load('there.pt')['a'].is_cuda
assert not torch.load('there.pt', map_location='cpu')['a'].is_cuda""",
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    folder = tmp_path_factory.mktemp("simulation")
    paths = {}
    for name, text in {**{k: v[0] for k, v in REFUSED.items()}, **ALLOWED}.items():
        paths[name] = folder / f"{name}.py"
        paths[name].write_text(f"{BEGIN}{text}\n")
    found = run_on_gpu(list(paths.values()))
    return {name: found[path] for name, path in paths.items()}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, outcomes: dict[str, Outcome]) -> None:
    assert outcomes[name].status == 1
    assert REFUSED[name][1] in outcomes[name].output


@pytest.mark.parametrize("name", ALLOWED)
def test_allowed(name: str, outcomes: dict[str, Outcome]) -> None:
    assert outcomes[name].status == 0, outcomes[name].output


def test_scripts_are_run_in_their_folders(tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text("import torch\nbatch = torch.ones(2).cuda()\n")
    (tmp_path / "main.py").write_text(
        "from other import batch\nassert batch.is_cuda and (batch + 1).is_cuda\n"
    )
    outcome = run_on_gpu([tmp_path / "main.py"])[tmp_path / "main.py"]
    assert outcome.status == 0, outcome.output
    assert outcome.kernels == 1
