import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
data = TensorDataset(torch.rand(32, 4), torch.randint(0, 2, (32,)), torch.arange(32))
loader, valid = DataLoader(data, batch_size=8), DataLoader(data, batch_size=8)
model = nn.Linear(4, 2).to(device)
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(2):
    for x, y, number in loader:
        numbers = number.numpy()
        order = np.argsort(-numbers)
        loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    hits, seen, kept = 0, [], []
    model.eval()
    with torch.no_grad():
        for x, y, number in valid:
            guess = model(x.to(device)).argmax(1)
            hits += (guess.cpu().numpy() == y.numpy()).sum()
            seen.append(y.data.numpy())
            kept.extend(np.asarray(number))
    print(hits, len(np.concatenate(seen)), len(kept), order[0])
