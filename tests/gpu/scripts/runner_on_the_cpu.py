import torch
from torch import nn, optim


class Runner:
    def __init__(self, steps):
        self.steps = steps

    def sample(self, score, count):
        x = torch.rand(count, 2) * 8 - 4
        for _ in range(3):
            x = x + 0.1 * score(x) + torch.randn_like(x)
        return x

    def train(self):
        score = nn.Sequential(nn.Linear(2, 8), nn.Softplus(), nn.Linear(8, 2))
        optimizer = optim.Adam(score.parameters(), lr=0.01)
        for step in range(self.steps):
            samples = torch.randn(16, 2)
            loss = (score(samples) + samples).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return self.sample(score, 4).detach().numpy()


print(Runner(5).train().shape)
