import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randint(0, 9, (32,)), torch.randint(0, 9, (32,)), torch.rand(32))
loader = DataLoader(data, batch_size=8, shuffle=True)
users, items = nn.Embedding(9, 4).cuda(), nn.Embedding(9, 4).cuda()
optimizer = torch.optim.Adam([*users.parameters(), *items.parameters()])
for batch in loader:
    assert isinstance(batch[0], torch.LongTensor)
    assert batch[2].type() == "torch.FloatTensor"
    if type(batch[2]) is torch.Tensor and isinstance(batch[2], torch.FloatTensor):
        user, item, rating = batch[0].cuda(), batch[1].cuda(), batch[2].cuda()
        loss = ((users(user) * items(item)).sum(1) - rating).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
