"""Small random losses of a batch, and their gradients on one process and on several.

The ranks' batches are shares of one batch: the mean of their gradients is that of the whole batch where the loss is a
mean of something of each row.
"""

from __future__ import annotations

import random
import re
import warnings
from typing import Any

import torch
from torch import nn
from torch.nn import functional

ROWS = 6
SHAPES = {"images": (ROWS, 2, 3, 4), "series": (ROWS, 5, 3), "vectors": (ROWS, 4)}
HEAD = """\
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
from accelify.runtime import Accelerator
accelerator = Accelerator(MODE)
data = torch.load("data.pt")
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(1))
        self.b = nn.Parameter(torch.zeros(1))
    def forward(self, x):
        return torch.tanh(x * self.w + self.b)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(data[0], data[1], data[2]), batch_size=6)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for x, t, y in loader:
    optimizer.zero_grad()
"""
TAIL = "    accelerator.backward(loss)\n    optimizer.step()\n"
# Of a value `a` and its axes `d`, `e`, and another value `b` of as many axes.
ANY = """
a + b|a - b|a * b|a / (b.abs() + 1)|a.abs()|torch.sigmoid(a)|a ** 2|torch.exp(a)|a.relu()|torch.max(a, b)
torch.minimum(a, b)|a.clamp(min=0.1)|a - b.mean()|a / b.abs().max()|(a - a.min()) / (a.max() - a.min() + 1)
a * b.sum()|(a - a.mean()) / (a.std() + 1)|torch.where(b > 0, a, torch.zeros_like(a))|a.masked_fill(b > 0.3, 0.0)
a * (b > b.mean())|a[b > 0.2]|torch.masked_select(a, b > 0.1)|a[y > 0]|a.reshape(-1)|a.flatten()
a.sum(d)|a.mean(dim=d)|a.mean(dim=d, keepdim=True)|a.max(d)[0]|a.max(dim=d).values|a.softmax(d)|F.log_softmax(a, d)
a.norm(dim=d)|F.normalize(a, dim=d)|F.cosine_similarity(a, b, dim=d)|a.cumsum(d)|a.sort(d)[0]|a.flip(d)|a.roll(1, d)
a.topk(1, dim=d)[0]|a.std(d)|a.var(d, unbiased=False)|a.chunk(2, dim=d)[0]|torch.cat([a, b], dim=d)|nn.Softmax(d)(a)
F.mse_loss(a, b, reduction="none")|F.binary_cross_entropy_with_logits(a, t, reduction="none")|a.logsumexp(d)
nn.CosineSimilarity(dim=d)(a, b)
"""
OF_TWO_AXES = """
a.t()|a @ b.T|torch.cdist(a, b)|torch.einsum("bi,bi->b", a, b)|torch.einsum("bi,ci->bc", a, b)
torch.einsum("bi,bj->ij", a, b)|a.gather(1, y.unsqueeze(1))|a[torch.arange(len(a)), y]
F.cross_entropy(a, y, reduction="none")|a[:, 0]|a[:, 1:]|a.transpose(d, e)|a.sum(dim=(0, 1))
"""
OF_MORE_AXES = """
a.permute(*order)|a.transpose(d, e)|a.flatten(1)|a.reshape(a.size(0), -1)|a.reshape(len(a), -1)|a.sum(dim=(d, e))
a.mean(dim=(1, 2), keepdim=True)|a.reshape(-1, a.size(-1))|a[:, 0]|a[..., 0]|a[:, 1:]|a.matmul(b.transpose(-1, -2))
F.l1_loss(a, b, reduction="none").mean(1)|((a - b) ** 2).flatten(1).sum(1)
"""
LAST = """
a.mean()|a.mean()|a.mean()|a.sum()|a.sum() / len(x)|a.sum() / a.numel()|a.mean(0).sum()|F.mse_loss(a, b)|F.l1_loss(a, b)
F.smooth_l1_loss(a, b)|F.mse_loss(a, b, reduction="sum")|F.mse_loss(a, b, reduction="sum") / x.size(0)
F.binary_cross_entropy_with_logits(a, t)|F.cross_entropy(a, y)|F.cross_entropy(a, y, ignore_index=0)
F.cross_entropy(a, y, reduction="sum") / y.size(0)|F.nll_loss(F.log_softmax(a, 1), y)|a.norm()|(a ** 2).mean().sqrt()
F.kl_div(F.log_softmax(a, -1), F.softmax(b, -1), reduction="batchmean")|a.std()|a.max()|a.pow(2).sum().sqrt()
(a * t).sum() / t.sum()|a.sum() / (a > 0).sum()|1 - (2 * (a * t).sum() + 1) / (a.sum() + t.sum() + 1)
1 - ((2 * (a * t).flatten(1).sum(1) + 1) / (a.flatten(1).sum(1) + t.flatten(1).sum(1) + 1)).mean()
-0.5 * torch.mean(1 + a - a ** 2 - a.exp())|torch.mean(-0.5 * torch.sum(1 + a - a ** 2 - a.exp(), dim=1), dim=0)
((a - b) ** 2).sum(1).sqrt().mean()|torch.dist(a, b)|F.cosine_embedding_loss(a, b, torch.ones(len(x)))
"""
ROUND = """
1 - a|-a|torch.sqrt(a ** 2 + 1)|torch.log1p(a ** 2)|a + 0.5 * b|a - b|a * b|a / (1 + b ** 2)|a|a
"""


class Net(nn.Module):
    """That of the programs."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(1, dtype=torch.float64))
        self.b = nn.Parameter(torch.zeros(1, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x * self.w + self.b)


def batch(kind: str, seed: int) -> dict[str, torch.Tensor]:
    """Inputs, targets and classes."""
    numbers, shape = torch.Generator().manual_seed(seed), SHAPES[kind]
    x, t = (torch.rand(shape, generator=numbers, dtype=torch.float64) for _ in range(2))
    return {"x": x * 2 - 1, "t": t, "y": torch.randint(0, shape[1], (ROWS,), generator=numbers)}


def scope(values: dict[str, torch.Tensor]) -> dict[str, Any]:
    return {"torch": torch, "nn": nn, "F": functional, "model": Net(), **values}


class Writer:
    """Draws the statements of a loss."""

    def __init__(self, chance: random.Random, kind: str) -> None:
        self.chance = chance
        self.values = scope(batch(kind, 0))
        self.lines: list[str] = []
        self.names = ["t", "x"]
        self.add("out", "model(x)")

    def add(self, name: str, text: str) -> None:
        self.values[name] = eval(text, self.values)
        self.lines.append(f"{name} = {text}")
        self.names += [name] * 3

    def draw(self, patterns: list[str], names: list[str]) -> str:
        """An expression of values that are there."""
        a, chance = self.chance.choice(names), self.chance
        axes = self.values[a].dim()
        alike = [name for name in self.names if self.values[name].dim() == axes]
        first, second = chance.sample(range(axes), 2) if axes > 1 else (0, 0)
        last = axes > 1 and first == axes - 1 and chance.random() < 0.5
        put = {"a": a, "b": chance.choice(alike or [a]), "d": "-1" if last else str(first), "e": str(second)}
        # How many axes a value has is not known to the engine, which takes the last for another than that of the rows.
        pattern = chance.choice([one for one in patterns if axes > 1 or "-1)" not in one])
        if "order" in pattern:
            pattern = pattern.replace("*order", ", ".join(map(str, chance.sample(range(axes), axes))))
        return re.sub(r"\b[abde]\b", lambda found: put[found.group()], pattern)

    def value_of(self, text: str) -> torch.Tensor | None:
        """What it gives, None where torch refuses it or warns of it."""
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                found = eval(text, self.values)
            except Exception:
                return None
        return found if found.numel() < 20_000 and bool(torch.isfinite(found).all()) else None

    def step(self) -> None:
        """One more value."""
        for _ in range(20):
            names = [name for name in self.names if self.values[name].dim()]
            axes = self.values[name := self.chance.choice(names)].dim()
            more = "" if axes == 1 else OF_TWO_AXES if axes == 2 else OF_MORE_AXES
            text = self.draw(_patterns(ANY + more), [name])
            if self.value_of(text) is not None:
                return self.add(f"v{len(self.lines)}", text)
        return None

    def figure(self) -> str | None:
        """A loss."""
        for _ in range(20):
            text = self.draw(_patterns(LAST), [name for name in self.names if name not in ("t", "x")])
            found = self.value_of(text)
            if found is not None and found.dim() == 0 and found.requires_grad:
                return f"({text})"
        return None

    def end(self) -> bool:
        """The last line; whether there is one."""
        parts = [part for part in (self.figure(), self.figure()) if part]
        if not parts:
            return False
        pattern = self.chance.choice(_patterns(ROUND))
        put = {"a": parts[0], "b": parts[-1]}
        self.add("loss", re.sub(r"\b[ab]\b", lambda found: put[found.group()], pattern))
        return True


def _patterns(text: str) -> list[str]:
    return [one for line in text.split("\n") for one in line.split("|") if one]


def lines_of(chance: random.Random, kind: str) -> list[str]:
    """The statements that a loss needs, none where none was found."""
    writer = Writer(chance, kind)
    for _ in range(chance.randint(1, 4)):
        writer.step()
    if not writer.end():
        return []
    needed, found = {"loss"}, []
    for line in reversed(writer.lines):
        name, _, text = line.partition(" = ")
        if name in needed:
            found.append(line)
            needed |= set(re.findall(r"\b(?:v\d+|out)\b", text))
    return found[::-1]


def gradients(lines: list[str], values: dict[str, torch.Tensor]) -> torch.Tensor:
    """Those of the model's two weights."""
    inside = scope(values)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec("\n".join(lines), inside)
    inside["loss"].backward()
    found = [weight.grad for weight in inside["model"].parameters()]
    return torch.cat([torch.zeros(1) if one is None else one for one in found])


def is_of_each_row(lines: list[str], kind: str) -> bool | None:
    """Whether the mean of the ranks' gradients is that of the whole batch; None where that cannot be asked."""
    for seed in (1, 2, 3):
        whole = batch(kind, seed)
        try:
            expected = gradients(lines, whole)
        except Exception:
            return None
        if not bool(torch.isfinite(expected).all()):
            return None
        for size in (2, 3):
            share = ROWS // size
            shares = [
                {name: value[rank * share : rank * share + share] for name, value in whole.items()}
                for rank in range(size)
            ]
            try:
                found = torch.stack([gradients(lines, one) for one in shares]).mean(0)
            except Exception:
                return False
            if not torch.allclose(found, expected, rtol=1e-6, atol=1e-9):
                return False
    return True


def program(lines: list[str], mode: str = "") -> str:
    return HEAD.replace("MODE", mode) + "".join(f"    {line}\n" for line in lines) + TAIL
