import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

DEVICE = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
cpu_device = torch.device("cpu")
data = TensorDataset(torch.rand(32, 4), torch.randint(0, 2, (32,)))
loader = DataLoader(data, batch_size=8)
model = nn.Linear(4, 2).to(DEVICE)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def evaluate(net):
    device = torch.device("cpu")
    kept = []
    for x, y in loader:
        outputs = net(x.to(DEVICE))
        kept.append(outputs.to(device).detach().numpy())
        assert x.to(cpu_device).numpy().shape == (8, 4)
    return len(kept)


for x, y in loader:
    loss = nn.functional.cross_entropy(model(x.to(DEVICE)), y.to(DEVICE))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(model.weight.detach().to(cpu_device).numpy().shape, evaluate(model))
