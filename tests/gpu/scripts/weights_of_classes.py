import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

use_gpu = torch.cuda.is_available()
data = TensorDataset(torch.randn(64, 4), torch.rand(64, 3).round())
loader = DataLoader(data, batch_size=8)
weights = torch.zeros(3)
for _, labels in loader:
    weights += labels.sum(0)
weights /= len(data)
criterion = nn.BCEWithLogitsLoss(weight=torch.exp(-weights))
model = nn.Linear(4, 3)
if use_gpu:
    model = model.cuda()
    criterion = criterion.cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    if use_gpu:
        x, y = x.cuda(), y.cuda()
    loss = criterion(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
