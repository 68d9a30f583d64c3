import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument('--device', type=str, default='cuda', help="cpu|cuda|cuda:2")
parser.add_argument('--sample-only', action='store_true')
args = parser.parse_args()
torch.manual_seed(1)
data = TensorDataset(torch.rand(32, 4), torch.randint(0, 2, (32,)))
loader = DataLoader(data, batch_size=8)
model = nn.Linear(4, 2)
model.to(args.device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    x, y = x.to(args.device), y.to(args.device)
    with torch.autocast(device_type=args.device, dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if args.device.startswith('cuda') or 'mps' in args.device:
        torch.cuda.synchronize()
assert args.device == 'cuda'
