import torch
from settings import opt
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def train(**given):
    opt.parse(given)
    model = nn.Linear(4, 1)
    model.to(opt.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=opt.lr)
    loader = DataLoader(TensorDataset(torch.randn(32, 4)), batch_size=8, shuffle=True)
    for (x,) in loader:
        x = x.to(opt.device)
        noise = torch.randn(x.shape).to(opt.device)
        loss = model(x + noise).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(loss.item() > 0)


if __name__ == "__main__":
    train(use_gpu=torch.cuda.is_available())
