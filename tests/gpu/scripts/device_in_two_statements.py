import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Trainer:
    def __init__(self, model, data):
        self.model = model
        self.data = data
        # whatever is there
        self.device = 'cpu'
        if torch.cuda.is_available():
            self.device = torch.cuda.current_device()
            self.model = nn.DataParallel(self.model).to(self.device)

    def train(self):
        model = self.model
        raw = model.module if hasattr(self.model, "module") else model
        optimizer = torch.optim.SGD(raw.parameters(), lr=0.1)
        loader = DataLoader(self.data, batch_size=8, shuffle=True)
        for x, y in loader:
            x = x.to(self.device)
            y = y.to(self.device)
            loss = nn.functional.cross_entropy(model(x), y)
            model.zero_grad()
            loss.backward()
            optimizer.step()

    def sample(self):
        raw = self.model.module if hasattr(self.model, "module") else self.model
        return raw(torch.zeros(1, 4).to(self.device))


trainer = Trainer(nn.Linear(4, 2), TensorDataset(torch.rand(32, 4), torch.randint(0, 2, (32,))))
trainer.train()
print(trainer.sample().shape)
