import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Trainer:
    def __init__(self, config, loader):
        self.num_gpu = config["num_gpu"]
        self.loader = loader
        self.build_model()
        if self.num_gpu == 1:
            self.G.cuda()
            self.D.cuda()
        elif self.num_gpu > 1:
            self.G = nn.DataParallel(self.G.cuda(), device_ids=range(self.num_gpu))
            self.D = nn.DataParallel(self.D.cuda(), device_ids=range(self.num_gpu))

    def build_model(self):
        self.G = nn.Linear(4, 4)
        self.D = nn.Linear(4, 1)

    def train(self):
        opt_d = torch.optim.Adam(self.D.parameters())
        opt_g = torch.optim.Adam(self.G.parameters())
        for (x,) in self.loader:
            x = x.cuda() if self.num_gpu else x
            loss = self.D(self.G(x)).pow(2).mean()
            opt_d.zero_grad()
            opt_g.zero_grad()
            loss.backward()
            opt_d.step()
            opt_g.step()


loader = DataLoader(TensorDataset(torch.randn(32, 4)), batch_size=8)
Trainer({"num_gpu": 1}, loader).train()
