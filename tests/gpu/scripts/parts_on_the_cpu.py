import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Encoder(nn.Module):
    def __init__(self, device, loss_device):
        super().__init__()
        self.body = nn.Linear(4, 8).to(device)
        self.scale = nn.Parameter(torch.tensor([10.0]).to(loss_device))

    def forward(self, x):
        return self.body(x)

    def loss(self, embeds, target):
        return nn.functional.cross_entropy(embeds * self.scale, target)


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loss_device = torch.device("cpu")
model = Encoder(device, loss_device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randint(8, (32,))), batch_size=8)
for x, y in loader:
    embeds = model(x.to(device)).to(loss_device)
    loss = model.loss(embeds, y.to(loss_device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
