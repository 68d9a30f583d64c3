import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

device = "cuda" if torch.cuda.is_available() else "cpu"


class Points(Dataset):
    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.x)

    def __getitem__(self, ix):
        return self.x[ix].to(device), self.y[ix].to(device)


def collate(samples):
    x = torch.stack([s[0] for s in samples]).to(device)
    return x, torch.stack([s[1] for s in samples]).to(device)


@torch.no_grad()
def score(x, y, model):
    return criterion(model(x), y).item()


train_loader = DataLoader(Points(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8, shuffle=True)
val_loader = DataLoader(list(zip(torch.randn(64, 4), torch.randn(64, 1))), batch_size=64, collate_fn=collate)
model = nn.Sequential(nn.Linear(4, 1)).to(device)
criterion, optimizer = nn.MSELoss(), torch.optim.Adam(model.parameters())
for ix, batch in enumerate(iter(train_loader)):
    x, y = batch
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
for ix, batch in enumerate(iter(val_loader)):
    x, y = batch
    print(score(x, y, model))
