import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Experiment:
    def __init__(self):
        self.net = nn.Linear(4, 2).to(device)
        self.check()
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.loader = DataLoader(TensorDataset(torch.rand(32, 4), torch.randint(0, 2, (32,))), batch_size=8)

    def check(self):
        assert self.net(torch.zeros(1, 4).to(device)).shape == (1, 2)

    def train(self):
        for x, y in self.loader:
            loss = nn.functional.cross_entropy(self.net(x.to(device)), y.to(device))
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


Experiment().train()
