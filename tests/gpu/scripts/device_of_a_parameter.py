import torch
from torch import nn


def device_of(module):
    return next(module.parameters()).device


class Learner(nn.Module):
    def __init__(self, net):
        super().__init__()
        device = device_of(net)
        self.net = net
        self.to(device)
        self.forward(torch.randn(2, 4, device=device))

    def forward(self, x):
        return self.net(x).pow(2).mean()


learner = Learner(nn.Linear(4, 2))
optimizer = torch.optim.Adam(learner.parameters(), lr=3e-4)
images = torch.randn(8, 4)
for step in range(2):
    loss = learner(images)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
