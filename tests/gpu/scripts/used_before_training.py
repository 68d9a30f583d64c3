import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = "cuda" if torch.cuda.is_available() else "cpu"


def show():
    print(model(torch.zeros(1, 4).to(device)).argmax().item())


def score(net, count):
    return net(torch.zeros(count, 4).to(device)).sum().item()


data = TensorDataset(torch.rand(32, 4), torch.randint(0, 2, (32,)))
loader = DataLoader(data, batch_size=8)
model = nn.Linear(4, 2)
model.to(device)
show()
print(score(model, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
show()
