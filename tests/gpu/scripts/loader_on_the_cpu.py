import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.rand(32, 4), torch.randint(0, 2, (32,)))
loader = DataLoader(data, batch_size=8)
model = nn.Linear(4, 2)
optimizer = torch.optim.Adam(model.parameters())
for x, y in loader:
    hidden = torch.zeros(x.size(0), 2)
    loss = nn.functional.cross_entropy(model(x) + hidden, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(model(torch.rand(1, 4)).detach().numpy().shape)
