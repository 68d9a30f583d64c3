import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def nearest(net, batches):
    return sum(net(x.cuda()).argmax(1).eq(y.cuda()).sum().item() for x, y in batches)


loader = DataLoader(TensorDataset(torch.rand(32, 4), torch.randint(0, 2, (32,))), batch_size=8)
model = nn.Linear(4, 2)
model.to("cuda")
if len(sys.argv) >= 1:
    print(nearest(model, loader))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
