import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--afresh", action="store_true")
parser.add_argument("--task", default="train")
options = parser.parse_args()


def train():
    for x, y in DataLoader(data, batch_size=4, shuffle=True):
        x, y = x.to(device), y.to(device)
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.manual_seed(0)
data = TensorDataset(torch.randn(16, 4), torch.randn(16, 1))
momentum = {0: {"momentum_buffer": torch.ones(1, 4)}, 1: {"momentum_buffer": torch.ones(1)}}
weights = {"weight": torch.ones(1, 4), "bias": torch.zeros(1)}
model = nn.Linear(4, 1)
if options.afresh:
    model = model.to(device)
if options.task == "train":
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
if not options.afresh:
    model.load_state_dict(weights)
    model = model.to(device)
    if options.task == "train":
        groups = optimizer.state_dict()["param_groups"]
        optimizer.load_state_dict({"state": momentum, "param_groups": groups})
if options.task == "train":
    for epoch in range(2):
        print(train())
