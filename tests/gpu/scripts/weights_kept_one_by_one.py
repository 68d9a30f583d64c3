import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Average:
    def __init__(self, decay):
        self.decay, self.shadow, self.places = decay, {}, {}

    def register(self, name, value):
        self.shadow[name] = value.clone()

    def place(self, name, parameter):
        self.shadow[name] = parameter.data.to("cpu").clone()
        self.places[name] = parameter.data.device

    def update(self, name, value):
        kept = self.shadow[name].to(self.places[name]) if name in self.places else self.shadow[name]
        self.shadow[name] = (1 - self.decay) * value + self.decay * kept


def flat(weights):
    return torch.cat([w.data.view(-1) for w in weights])


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = DataLoader(TensorDataset(torch.rand(32, 4), torch.randint(0, 2, (32,))), batch_size=8)
model = nn.Linear(4, 2).to(device)
other = nn.Linear(4, 2).to(device)
third = nn.Linear(4, 2).to(device)
fourth = nn.Linear(4, 2).to(device)
fifth = nn.Linear(4, 2).to(device)
average, moved = Average(0.9), Average(0.9)
for name, parameter in model.named_parameters():
    if parameter.requires_grad:
        average.register(name, parameter.data)
for name, parameter in other.named_parameters():
    moved.place(name, parameter)
first = flat(third.parameters())
mask = torch.ones_like(fourth.weight)
where = next(fifth.parameters()).device
weights = [p for m in (model, other, third, fourth, fifth) for p in m.parameters()]
optimizer = torch.optim.SGD(weights, lr=0.1)
for x, y in loader:
    x, y = x.to(where), y.to(device)
    loss = nn.functional.cross_entropy(model(x) + other(x) + third(x) + fourth(x) + fifth(x), y)
    loss = loss + 0.1 * (first - torch.cat([w.view(-1) for w in third.parameters()])).pow(2).sum()
    loss = loss + 0.1 * (fourth.weight * mask).pow(2).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    for name, parameter in model.named_parameters():
        average.update(name, parameter.data)
    for name, parameter in other.named_parameters():
        moved.update(name, parameter.data)
