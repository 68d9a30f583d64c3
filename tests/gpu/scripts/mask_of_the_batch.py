import torch
from torch import nn
from torch.utils.data import DataLoader

loader = DataLoader(torch.rand(32, 6), batch_size=8, shuffle=True)
model = nn.Linear(6, 6).cuda()
optimizer = torch.optim.Adam(model.parameters())
for x in loader:
    mask = torch.ones(x.size(0), 6)
    mask[:, 3:] = 0
    corrupted = x * mask
    corrupted = corrupted.cuda()
    x = x.cuda()
    loss = (model(corrupted) - x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
