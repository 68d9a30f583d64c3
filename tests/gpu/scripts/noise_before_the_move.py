import argparse

import torch
from torch import nn
from torch.autograd import Variable
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--mode", default="S")
parser.add_argument("--level", type=float, default=25)
opt = parser.parse_args()
loader = DataLoader(torch.rand(32, 1, 6, 6), batch_size=8, shuffle=True)
model = nn.Conv2d(1, 1, 3, padding=1).cuda()
criterion = nn.MSELoss(reduction="sum").cuda()
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(2):
    for data in loader:
        optimizer.zero_grad()
        image = data
        if opt.mode == "S":
            noise = torch.FloatTensor(image.size()).normal_(mean=0, std=opt.level / 255.0)
        else:
            noise = torch.zeros(image.size())
            for n in range(noise.size(0)):
                noise[n] = torch.FloatTensor(image[0].size()).normal_(mean=0, std=0.1 * n)
        noisy = image + noise
        image, noisy = Variable(image.cuda()), Variable(noisy.cuda())
        noise = Variable(noise.cuda())
        loss = criterion(model(noisy), noise) / (noisy.size(0) * 2)
        loss.backward()
        optimizer.step()
