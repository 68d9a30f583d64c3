import torch
from batches import batches, fixed
from settings import device, width
from torch import nn

model = nn.Linear(width, 2).to(device)
optimizer = torch.optim.Adam(model.parameters())
for x, y in batches(6):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(model(fixed).argmax().item())
