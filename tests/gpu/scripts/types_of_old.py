import torch
from torch import nn
from torch.autograd import Variable
from torch.utils.data import DataLoader, TensorDataset

gpu = torch.cuda.is_available()
data = TensorDataset(torch.rand(32, 4), torch.randint(0, 2, (32,)))
loader = DataLoader(data, batch_size=8, drop_last=True)
model, conditioned = nn.Linear(4, 2), nn.Linear(6, 1)
if gpu:
    model.cuda()
    conditioned.cuda()
optimizer = torch.optim.SGD([*model.parameters(), *conditioned.parameters()], lr=0.1)
for x, y in loader:
    x = x.type(torch.FloatTensor)
    y = y.type(torch.LongTensor)
    if gpu:
        xv, yv = Variable(x.cuda(), requires_grad=False), Variable(y.cuda(), requires_grad=False)
    else:
        xv, yv = Variable(x, requires_grad=False), Variable(y, requires_grad=False)
    loss = nn.functional.cross_entropy(model(xv), yv)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
for x, y in loader:
    onehot = torch.zeros((8, 2)).scatter_(1, y.type(torch.LongTensor).unsqueeze(1), 1)
    if gpu:
        x, onehot = x.cuda(), onehot.cuda()
    loss = conditioned(torch.cat([x, onehot], 1)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
