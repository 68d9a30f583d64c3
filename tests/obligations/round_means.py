"""Evaluations that average over batches, in all spellings: those whose figure depends on how many make a round."""

HEAD = """\
import statistics
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Meter:
    def __init__(self):
        self.sum, self.count, self.avg = 0, 0, 0

    def update(self, value, n=1):
        self.sum += value * n
        self.count += n
        self.avg = self.sum / self.count


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.manual_seed(0)
x = torch.arange(44.0).reshape(11, 4) / 44
y = torch.arange(11.0).reshape(11, 1)
batch_size = 2
train_loader = DataLoader(TensorDataset(x, y), batch_size=batch_size, shuffle=True)
val_loader = DataLoader(TensorDataset(x, y), batch_size=2)
model = nn.Linear(4, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
criterion = nn.MSELoss()
stats = {}

"""
LOOP = """
    model.eval()
    {before}
    with torch.no_grad():
        for i, (data, target) in enumerate(val_loader):
            data, target = data.to(device), target.to(device)
            output = model(data)
            loss = criterion(output, target)
            {batch}
    {behind}
"""
TAIL = """

for epoch in range(2):
    model.train()
    for data, target in train_loader:
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        loss = criterion(model(data), target)
        loss.backward()
        optimizer.step()
    figure = {shown}
    print(figure)
"""
# What stands before the loop, for each batch and behind it, and what is shown.
OVER_ROUNDS = {
    "length": ("total = 0", "total += loss.item()", "return total / len(val_loader)"),
    "named length": (
        "total = 0; batches = len(val_loader)",
        "total += loss.item()",
        "return total / batches",
    ),
    "in place": ("total = 0", "total += loss.item()", "total /= len(val_loader)\n    return total"),
    "written out": ("total = 0", "total = total + loss.item()", "return total / len(val_loader)"),
    "counter": ("total, n = 0, 0", "total += loss.item(); n += 1", "return total / n"),
    "index": ("total = 0", "total += float(loss)", "return total / (i + 1)"),
    "part": ("total = 0", "total += loss.item() / len(val_loader)", "return total"),
    "entry": ("stats['loss'] = 0", "stats['loss'] += loss.item()", "return stats['loss'] / len(val_loader)"),
    "running": ("mean = 0", "mean = (mean * i + loss.item()) / (i + 1)", "return mean"),
    "list": ("losses = []", "losses.append(loss.item())", "return np.mean(losses)"),
    "fmean": ("losses = []", "losses.append(loss.item())", "return statistics.fmean(losses)"),
    "sum of list": ("losses = []", "losses.append(loss.item())", "return sum(losses) / len(losses)"),
    "stacked": ("losses = []", "losses.append(loss)", "return torch.stack(losses).mean().item()"),
    "array": ("losses = []", "losses.append(loss.item())", "mean = np.array(losses).mean()\n    return mean"),
    "meter": ("meter = Meter()", "meter.update(loss.item())", "return meter.avg"),
    "meter by configuration": (
        "meter = Meter()",
        "meter.update(loss.item(), batch_size)",
        "return meter.avg",
    ),
    "share": (
        "hits = 0",
        "hits += (target > output * 0 + 8).float().mean().item()",
        "return hits / len(val_loader)",
    ),
}
BY_CALLER = {
    "caller divides": ("total = 0", "total += loss.item()", "return total", "evaluate() / len(val_loader)"),
    "caller averages": ("losses = []", "losses.append(loss.item())", "return losses", "np.mean(evaluate())"),
}
BY_SAMPLES = {
    "weighted": (
        "total = 0",
        "total += loss.item() * data.size(0)",
        "return total / len(val_loader.dataset)",
    ),
    "weighted, counted": (
        "total, n = 0, 0",
        "total += loss.item() * len(data); n += len(data)",
        "return total / n",
    ),
    "counted": (
        "hits = 0",
        "hits += (target > output * 0 + 8).sum().item()",
        "return hits / len(val_loader.dataset)",
    ),
    "summed": (
        "total = 0",
        "total += F.mse_loss(output, target, reduction='sum').item()",
        "return total / len(val_loader.dataset)",
    ),
    "meter": ("meter = Meter()", "meter.update(loss.item(), data.size(0))", "return meter.avg"),
    "meter, named": ("meter = Meter()", "meter.update(loss.item(), n=len(target))", "return meter.avg"),
    "list": ("errors = []", "errors.extend((output - target).tolist())", "return float(np.mean(errors))"),
    "concatenated": (
        "errors = []",
        "errors.append(output - target)",
        "return torch.cat(errors).mean().item()",
    ),
    "first batches": ("total = 0", "total += loss.item()\n            if i == 0: break", "return total / 1"),
}


def script(before: str, batch: str, behind: str, shown: str = "evaluate()") -> str:
    """The script with an evaluation in a function of its own."""
    loop = LOOP.format(before=before, batch=batch, behind=behind)
    return HEAD + "\ndef evaluate():" + loop + TAIL.format(shown=shown)
