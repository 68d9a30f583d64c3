import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.rand(32, 4), torch.randint(0, 2, (32,))), batch_size=8)
model = nn.Linear(4, 2)
for device in ["cpu", "cuda"]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.to(device)
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"device = {device}")
