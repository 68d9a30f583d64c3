import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Average:
    def __init__(self, decay):
        self.decay, self.shadow = decay, {}

    def register(self, module):
        for name, parameter in module.named_parameters():
            self.shadow[name] = parameter.data.clone()

    def update(self, module):
        for name, parameter in module.named_parameters():
            self.shadow[name].data = (1 - self.decay) * parameter.data + self.decay * self.shadow[name].data


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = DataLoader(TensorDataset(torch.rand(32, 4), torch.randint(0, 2, (32,))), batch_size=8)
model = nn.Linear(4, 2)
model = model.to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
average = Average(0.9)
average.register(model)
if os.path.exists("model.pt"):
    model.load_state_dict(torch.load("model.pt"))
for x, y in loader:
    loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    average.update(model)
