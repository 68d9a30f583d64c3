"""Models whose weights get their shape from the first batch, prepared before and after one."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import named

PROGRAM = """
accelerator = Accelerator()
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.LazyLinear(1))
    def forward(self, x):
        return self.head(x)
net = {net}
opt = torch.optim.SGD(net.parameters(), lr=0.1)
loader = DataLoader(data, batch_size=4, shuffle=True)
{before}
net, opt, loader = accelerator.prepare(net, opt, loader)
for x, y in loader:
    accelerator.backward(F.mse_loss(net(x), y))
    opt.step()
    opt.zero_grad()
"""
LINE = "net, opt, loader = accelerator.prepare(net, opt, loader)"


@pytest.mark.parametrize(
    ("net", "before", "wrong"),
    [
        ("Net()", "", True),
        ("torch.nn.Sequential(torch.nn.LazyConv2d(4, 3), torch.nn.Flatten())", "", True),
        ("torch.nn.LazyLinear(1)", "net.train()", True),
        ("Net()", "net(next(iter(loader))[0])", False),
        ("Net()", "net.load_state_dict(torch.load('net.pt', map_location='cpu'))", False),
        ("torch.nn.Sequential(torch.nn.Linear(4, 1))", "", False),
    ],
)
def test_a_batch_goes_through_such_a_model_first(net, before, wrong, tmp_path):
    assert named(PROGRAM.format(net=net, before=before), tmp_path, "accelerate") == [("ACC705", LINE)] * wrong
