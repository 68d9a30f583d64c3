import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class GAN:
    def __init__(self, args):
        self.epoch = args.epoch
        self.gpu_mode = args.gpu_mode
        self.loader = DataLoader(TensorDataset(torch.rand(32, 4)), batch_size=8)
        self.G, self.D = nn.Linear(3, 4), nn.Sequential(nn.Linear(4, 1), nn.Sigmoid())
        self.optimizer = torch.optim.Adam(self.G.parameters())
        self.critic = torch.optim.Adam(self.D.parameters())
        if self.gpu_mode:
            self.G.cuda()
            self.D.cuda()
            self.loss = nn.BCELoss().cuda()
        else:
            self.loss = nn.BCELoss()
        self.fixed = torch.rand(8, 3)
        if self.gpu_mode:
            self.fixed = self.fixed.cuda()

    def train(self):
        self.real, self.fake = torch.ones(8, 1), torch.zeros(8, 1)
        if self.gpu_mode:
            self.real, self.fake = self.real.cuda(), self.fake.cuda()
        for epoch in range(self.epoch):
            for (x,) in self.loader:
                z = torch.rand(8, 3)
                if self.gpu_mode:
                    x, z = x.cuda(), z.cuda()
                self.critic.zero_grad()
                loss = self.loss(self.D(x), self.real) + self.loss(self.D(self.G(z)), self.fake)
                loss.backward()
                self.critic.step()
                self.optimizer.zero_grad()
                loss = self.loss(self.D(self.G(z)), self.real)
                loss.backward()
                self.optimizer.step()
        with torch.no_grad():
            print(self.G(self.fixed).shape)


parser = argparse.ArgumentParser()
parser.add_argument("--epoch", type=int, default=2)
parser.add_argument("--gpu_mode", type=bool, default=False)
GAN(parser.parse_args()).train()
