"""What a model adds up over its layers is of one batch, and no total over batches."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import GROUP, findings

MODEL = """
class Residual(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(4, 4) for _ in range(3)])
        self.head = torch.nn.Linear(4, 1)

    def forward(self, x):
        for layer in self.layers:
            {added}
        return self.head(x)


model = DDP(Residual())
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    total = 0.0
    for x, y in loader:
        loss = F.mse_loss(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        {taken}
    if dist.get_rank() == 0:
        print({shown})
"""


def codes(tmp_path, added="x = x + layer(x)", taken="pass", shown="loss.item()"):
    text = GROUP + MODEL.format(added=added, taken=taken, shown=shown)
    return [one.code for one in findings(text, tmp_path) if one.code == "ACC701"]


@pytest.mark.parametrize("added", ["x = x + layer(x)", "x = torch.relu(layer(x))"])
def test_the_last_batch_s_loss_of_a_model_with_a_loop(added, tmp_path):
    assert codes(tmp_path, added) == []


@pytest.mark.parametrize("added", ["x = x + layer(x)", "x = torch.relu(layer(x))"])
def test_a_total_over_the_batches(added, tmp_path):
    assert codes(tmp_path, added, "total += loss.item()", "total / len(loader)") == ["ACC701"]
