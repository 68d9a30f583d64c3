import argparse, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Trainer:
    def __init__(self, args, model, loader, val_loader):
        self.args = args
        self.device = args.device
        self.model = model.to(self.device)
        self.loader = loader
        self.val_loader = val_loader
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def train(self):
        for x, y in self.loader:
            x, y = x.to(self.device), y.to(self.device)
            loss = nn.functional.cross_entropy(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        self.validate()

    def scores(self, batch):
        x, y = batch
        return (self.model(x).argmax(1) == y).float().mean().item()

    def validate(self):
        with torch.no_grad():
            for batch in self.val_loader:
                batch = [t.to(self.device) for t in batch]
                print(self.scores(batch))

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randint(3, (32,))), batch_size=8)
    Trainer(args, nn.Linear(4, 3), loader, loader).train()

main()
