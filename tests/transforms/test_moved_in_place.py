"""Batches that are objects: `to` moves those of torch_geometric where they are, and makes others of dictionaries."""

from __future__ import annotations

from tests.transforms.test_real_kinds import converted

SCRIPT = """\
import torch
from torch import nn
from torch_geometric.datasets import QM9
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCNConv, global_mean_pool


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = GCNConv(11, 8)
        self.out = nn.Linear(8, 1)

    def forward(self, graph):
        x = self.conv(graph.x, graph.edge_index).relu()
        return self.out(global_mean_pool(x, graph.batch))


def validate(loader, net):
    total, found = 0.0, []
    with torch.no_grad():
        for graphs in loader:
            out = net(graphs)
            total += nn.functional.mse_loss(out, graphs.y.reshape(-1, 1)).item()
            found.append(graphs.y.numpy())
    return total / len(loader), found


data = QM9("data")
train_loader = DataLoader(data[:100], batch_size=8, shuffle=True)
val_loader = DataLoader(data[100:], batch_size=8)
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    for graphs in train_loader:
        loss = nn.functional.mse_loss(net(graphs), graphs.y.reshape(-1, 1))
        opt.zero_grad()
        loss.backward()
        opt.step()
    validate(val_loader, net)
"""


def test_parts_of_a_batch_that_is_moved_in_place_are_on_the_device_afterwards() -> None:
    text = converted(SCRIPT)
    assert "out = net(graphs.to(accelerator.device))" in text
    assert "mse_loss(out, graphs.y.reshape(-1, 1))" in text
    assert "found.append(graphs.y.cpu().numpy())" in text


def test_parts_taken_before_the_move_stay_on_the_host() -> None:
    before = SCRIPT.replace(
        "            out = net(graphs)\n", "            y = graphs.y\n            out = net(graphs)\n"
    )
    text = converted(before.replace("graphs.y.reshape(-1, 1)).item()", "y.reshape(-1, 1)).item()"))
    assert "mse_loss(out.cpu(), y.reshape(-1, 1))" in text
