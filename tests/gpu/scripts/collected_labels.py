import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
data = TensorDataset(torch.randn(64, 4), torch.randint(0, 2, (64,)))
loader = DataLoader(data, batch_size=8)
model = nn.Linear(4, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
    loss.backward()
    optimizer.step()


def collect(model, loader):
    inputs, outputs, labels, pairs = [], [], [], []
    with torch.no_grad():
        for x, y in loader:
            inputs.append(x)
            outputs.append(model(x.to(device)).argmax(1).cpu())
            labels.append(y)
            pairs.append((y.float(), y == 1))
    return inputs, torch.cat(outputs), torch.cat(labels), pairs


def shown(points, labels):
    return points.numpy().mean(), labels.numpy().mean()


inputs, outputs, labels, pairs = collect(model, loader)
print(shown(torch.cat(inputs), labels), (labels == outputs).float().mean())
print([one.numpy() for one, _ in pairs], [other.numpy() for _, other in pairs])
print(model(inputs[0].to(device)).shape)
for x in inputs:
    print(model(x.to(device)).sum().item())


def arrays(model, loader):
    outputs, labels = [], []
    with torch.no_grad():
        for x, y in loader:
            outputs.append(model(x.to(device)).argmax(1).cpu().numpy())
            labels.append(y)
    return np.concatenate(outputs), np.concatenate(labels, axis=0)


outputs, labels = arrays(model, loader)
print((outputs == labels).mean())
