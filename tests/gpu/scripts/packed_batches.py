import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.data import DataLoader, TensorDataset

rnn = nn.GRU(1, 1, batch_first=True).cuda()
optimizer = torch.optim.Adam(rnn.parameters())
loader = DataLoader(TensorDataset(torch.randn(64, 5, 1)), batch_size=8)


def train_epoch(rnn, data_loader):
    for data in data_loader:
        y = data[0].float()
        y = pack_padded_sequence(y, [5] * y.size(0), batch_first=True).data.view(-1, 1, 1)
        idx = torch.LongTensor([i for i in range(y.size(0) - 1, -1, -1)])
        y = y.index_select(0, idx)
        x = torch.cat((torch.ones(y.size(0), 1, 1), y[:, 0:-1, 0:1]), dim=1)
        x, y = x.cuda(), y.cuda()
        out, _ = rnn(x)
        loss = (out - y).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


train_epoch(rnn, loader)
