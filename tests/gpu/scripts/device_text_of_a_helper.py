import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def choose() -> str:
    if torch.cuda.is_available():
        return "cuda"
    return "cpu"


def settings_for(device):
    return {"pinned": True} if device == "cuda" else {}


def noise_on(kind="cpu", device="cpu"):
    assert kind == device
    return torch.zeros(4, device=device)


torch.manual_seed(1)
device = choose()
assert settings_for(device) == {"pinned": True}
print(f"on {device}")
loader = DataLoader(TensorDataset(torch.rand(32, 4), torch.randint(0, 2, (32,))), batch_size=8)
model = nn.Linear(4, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    x, y = x.to(device), y.to(device)
    loss = nn.functional.cross_entropy(model(x + noise_on("cuda", device="cuda")), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
assert {"cpu": "slow", "cuda": "fast"}[device] == "fast"
