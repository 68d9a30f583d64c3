import importlib

import torch
from torch import nn

Batches = importlib.import_module("batches").Batches

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
batches = Batches("data", batch_size=8, device=device)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.head = nn.Linear(8, 2)

    def forward(self, batch):
        return self.head(self.embedding(batch.words).mean(1))


net = Net().to(device)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(net.parameters())
for batch in batches:
    answer = net(batch)
    loss = criterion(answer, batch.label)
    correct = (answer.argmax(1).view(batch.label.size()) == batch.label).sum().item()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item(), correct / batch.label.size(0))
