"""What the engine says of tensors on the host that meet those of a prepared loader, which are on the device."""

from __future__ import annotations

import textwrap

import pytest

from accelify.knowledge import Knowledge
from accelify.obligations import Obligation, Status, validate

KNOWLEDGE = Knowledge()
FRAME = """\
import torch
from torch import nn
from torch.utils.data import DataLoader
from accelify.runtime import Accelerator
accelerator = Accelerator({accelerator})
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(torch.load("data.pt"), batch_size=8)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
plain = DataLoader(torch.load("data.pt"), batch_size=8)


def score(model, batches):
    right = 0
    for x, y in batches:
        pred = model(x.to(accelerator.device)).argmax(1)
{body}
    return right


score(model, {batches})
"""


def found(body: str, accelerator: str = "", batches: str = "loader") -> list[Obligation]:
    lines = textwrap.indent(body, " " * 8)
    text = FRAME.format(body=lines, accelerator=accelerator, batches=batches)
    checked = validate(text, None, KNOWLEDGE)
    assert not checked.unread
    return [one for one in checked.of(Status.NAMED) if one.demand == "one device"]


MEETING = "right += (pred.cpu() == y).sum().item()"


@pytest.mark.parametrize(
    "body",
    [
        MEETING,
        "right += pred.detach().cpu().eq(y).sum().item()",
        "pred = pred.to('cpu')\nright += (pred - y).abs().sum().item()",
        "wrong = nn.functional.cross_entropy(model(x).cpu(), y)",
        "batch = {'labels': y}\nright += (pred.cpu() == batch['labels']).sum().item()",
        "right += (pred.to(torch.float).cpu() == y.float()).sum().item()",
    ],
)
def test_the_host_meets_the_device(body: str) -> None:
    (one,) = found(body)
    assert "joins a tensor on the host with one on the device" in one.message
    assert one.line > FRAME.count("\n", 0, FRAME.index("{body}"))


@pytest.mark.parametrize(
    "body",
    [
        "right += (pred == y).sum().item()",
        "right += (pred.cpu() == y.cpu()).sum().item()",
        "right += (pred.cpu().to(y.device) == y).sum().item()",
        "right += (pred.cpu().to(accelerator.device) == y).sum().item()",
        "right = right + pred.float().mean().cpu() * y",  # a single number goes with either
        "right += pred.sum().item() * y",
        "right += (pred.cpu().numpy() == y.cpu().numpy()).sum()",
        "y = y.cpu()\nright += (pred.cpu() == y).sum().item()",
        "where = x if len(x) > 3 else x.cpu()\nright += (where.argmax(1) == y).sum().item()",
    ],
)
def test_what_lies_in_one_place_or_nobody_knows_where(body: str) -> None:
    assert found(body) == []


def test_a_run_on_the_cpu_and_a_loader_that_is_not_prepared() -> None:
    assert found(MEETING, accelerator="cpu=True") == []
    assert found(MEETING, batches="plain") == []
    assert found(MEETING, accelerator="cpu=len(data) > 8")


HOST_FRAME = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset, random_split
from torchvision import datasets
from accelify.runtime import Accelerator
accelerator = Accelerator({accelerator})


class Rows(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __getitem__(self, index):
        return self.rows[index], index


class Moved(Rows):
    def __getitem__(self, index):
        return self.rows[index].to("cuda"), index


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(1, 1)

    def forward(self, x):
        return self.last(x)


class MovingNet(Net):
    def forward(self, x):
        return self.last(x.to(self.last.weight.device))


def to_gpu(parts):
    for name, part in parts.items():
        parts[name] = part.cuda()


model = accelerator.prepare({net}())
tensors = TensorDataset(torch.arange(64.0)[:, None], torch.arange(64.0)[:, None] / 64)
loader = DataLoader({data}, batch_size=8)
for batch in loader:
    x = batch[0]
{body}
"""


def met_at_the_model(
    data: str, body: str = "model(x)", net: str = "Net", accelerator: str = ""
) -> list[Obligation]:
    lines = textwrap.indent(body, " " * 4)
    checked = validate(
        HOST_FRAME.format(data=data, body=lines, net=net, accelerator=accelerator), None, KNOWLEDGE
    )
    assert not checked.unread
    return [one for one in checked.of(Status.NAMED) if one.demand == "one device"]


@pytest.mark.parametrize(
    "data",
    [
        "tensors",
        "random_split(tensors, [60, 4])[0]",
        "DataLoader(tensors).dataset",
        "accelerator.prepare(DataLoader(tensors)).dataset",
        "Rows([1.0, 2.0])",
        'datasets.MNIST(".")',
    ],
)
def test_a_batch_of_a_plain_loader_meets_a_prepared_model(data: str) -> None:
    (one,) = met_at_the_model(data)
    assert "gets a batch on the host, of a loader that is not prepared" in one.message


def test_a_batch_that_next_takes_meets_a_prepared_model() -> None:
    (one,) = met_at_the_model("tensors", "pass\nx, y = next(iter(loader))\nmodel(x)")
    assert "gets a batch on the host" in one.message


@pytest.mark.parametrize(
    "data",
    [
        "TensorDataset(torch.arange(64.0).to(accelerator.device))",
        "TensorDataset(torch.arange(64.0, device=accelerator.device))",
        "Rows(torch.arange(64.0).cuda())",
        "Moved([1.0])",
        'torch.load("data.pt")',
        "tensors, collate_fn=lambda rows: torch.stack(rows).to('cuda')",
    ],
)
def test_a_batch_that_may_be_on_the_device(data: str) -> None:
    assert met_at_the_model(data) == []


@pytest.mark.parametrize(
    "body",
    [
        "x = x.to(accelerator.device)\nmodel(x)",
        "model(x.cuda())",
        "batch.to(accelerator.device)\nmodel(batch)",
        "batch['x'] = batch['x'].to(accelerator.device)\nmodel(batch)",
        "to_gpu(batch)\nmodel(batch)",
        "for k in range(2):\n    x[k] = x[k].cuda()\nmodel(x[0])",
        "accelerator.unwrap_model(model).cpu()(x)",
        "model(x.cuda(), x)",
        "model(torch.ones(3, device=accelerator.device), torch.tensor([3]))",
        "noise = torch.ones(3).cuda()\nnoise.data.copy_(torch.randn(3))\nmodel(noise)",
    ],
)
def test_a_batch_that_is_moved_or_a_model_that_is(body: str) -> None:
    assert met_at_the_model("tensors", body) == []


def test_a_model_that_moves_and_a_run_on_the_cpu() -> None:
    assert met_at_the_model("tensors", net="MovingNet") == []
    assert met_at_the_model("tensors", accelerator="cpu=True") == []
    assert met_at_the_model("tensors", accelerator="device_placement=False") == []


def test_a_prepared_batch_meets_a_model_that_was_sent_to_the_host() -> None:
    (one,) = found("accelerator.unwrap_model(model).cpu()(x)")
    assert "the model was sent to the host" in one.message
    assert found("other = nn.Linear(4, 2).cpu()\nother(x.cpu())") == []
    assert found("accelerator.unwrap_model(model).cpu().to(accelerator.device)(x)") == []


MADE_FRAME = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader
from accelify.runtime import Accelerator
accelerator = Accelerator()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.place = nn.Linear(4, 4), nn.Embedding(9, 4)
        self.plain, self.weight = torch.ones(4), nn.Parameter(torch.ones(4))
        self.register_buffer("kept", torch.ones(4))

    def forward(self, x):
        return {forward}


table, noise = torch.ones(9, 4), torch.randn(16, 4)
model, loader = accelerator.prepare(Net(), DataLoader(torch.load("data.pt"), batch_size=8))
for x, y in loader:
    {body}
"""


def of_made(forward: str = "self.layer(x)", body: str = "model(x)", head: str = "") -> list[str]:
    checked = validate(head + MADE_FRAME.format(forward=forward, body=body), None, KNOWLEDGE)
    return [one.message for one in checked.of(Status.NAMED) if one.demand == "one device"]


@pytest.mark.parametrize(
    "made",
    [
        {"forward": "self.layer(x + torch.zeros(x.size(0), 4))"},
        {"forward": "self.layer(x) * self.plain"},
        {"forward": "x + self.place(torch.arange(4))"},
        {"body": "loss = F.mse_loss(model(x), table[:8])"},
        {"body": "loss = F.binary_cross_entropy(model(x), torch.ones(x.size(0), 4))"},
        {"body": "table += model(x).mean(0)"},
        {"body": "model(torch.randn(x.size(0), 4))"},
        {"body": "model(noise)"},
        {"body": "loss = (model(x) * torch.from_numpy(weights)).mean()"},
    ],
)
def test_a_tensor_that_is_made_on_the_host_meets_the_device(made: dict[str, str]) -> None:
    (message,) = of_made(**made)
    assert "on the host" in message
    assert of_made(**made, head="import torch\ntorch.set_default_device('cuda')\n") == []


@pytest.mark.parametrize(
    "made",
    [
        {"forward": "self.layer(x + torch.zeros_like(x)) * self.weight * self.kept"},
        {"forward": "self.layer(x + torch.zeros(4, device=x.device)) * self.plain.to(x.device)"},
        {"forward": "self.layer(x) * torch.tensor(0.5) * torch.ones(4).sum() * self.plain[0]"},
        {"body": "loss = F.mse_loss(model(x), y)"},
        {"body": "loss = F.mse_loss(model(x[torch.randperm(8)]), table[:8].to(y.device))"},
        {"body": "table += model(x).mean(0).cpu()"},
        {"body": "model(noise.to(accelerator.device))"},
    ],
)
def test_a_tensor_that_goes_along_or_is_one_number(made: dict[str, str]) -> None:
    assert of_made(**made) == []


READS = "from torch.nn.utils.rnn import pack_padded_sequence\nimport numpy as np\n"


@pytest.mark.parametrize(
    ("line", "is_right"),
    [
        ("y.numpy()", False),
        ("pred.detach().numpy()", False),
        ("np.array(pred)", False),
        ("pack_padded_sequence(x, y)", False),
        ("pack_padded_sequence(x, lengths=y)", False),
        ("y.cpu().numpy()", True),
        ("y.numpy() if accelerator.device.type == 'cpu' else y.cpu().numpy()", True),
        ("y.cpu().numpy() if accelerator.device.type != 'cpu' else y.numpy()", True),
        ("y.numpy() if accelerator.device.type == 'cuda' else y.cpu().numpy()", False),
        ("np.array(pred.cpu())", True),
        ("np.mean([pred.sum().item()])", True),
        ("np.mean(pred.sum().item())", True),
        ("pack_padded_sequence(x, y.cpu())", True),
        ("pack_padded_sequence(x, y.tolist())", True),
    ],
)
def test_what_is_read_on_the_host(line: str, is_right: bool) -> None:
    named = found(READS + line)
    assert bool(named) is not is_right
    assert all("reads a tensor on the host" in one.found for one in named)


def test_lengths_that_the_project_puts_together_may_be_lists() -> None:
    collating = "def collate_fn(rows):\n    return rows[0], [len(row) for row in rows]\n"
    assert not found(READS + collating + "pack_padded_sequence(x, y)")
