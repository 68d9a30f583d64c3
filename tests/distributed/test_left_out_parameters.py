"""Models of which batches leave parts out, with all the options of DistributedDataParallel, against one process."""

import random
from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from accelify.runtime import DistributedDataParallelKwargs
from tests.distributed.processes import fresh_accelerator, run_ranks

pytestmark = pytest.mark.distributed

WIDTH = 40
# 1 KB, so that every weight is a bucket of its own; a few a bucket; torch's default, one bucket.
BUCKETS = (0.001, 0.03, 25)


class Parts(nn.Module):
    """Layers that are used by all samples, by some, by none; tied, frozen, and one that is a single number."""

    def __init__(self, kinds, width=WIDTH):
        super().__init__()
        self.kinds = kinds
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in kinds)
        self.gate = nn.Parameter(torch.ones(()))
        for kind, layer, before in zip(kinds[1:], self.layers[1:], self.layers[:-1], strict=True):
            if kind == "tied":
                layer.weight = before.weight
            if kind == "frozen":
                layer.requires_grad_(False)

    def forward(self, x):
        out = x
        for i, (kind, layer) in enumerate(zip(self.kinds, self.layers, strict=True)):
            if kind == "unused":
                continue
            if kind in ("some", "few"):
                chosen = x[:, i] > (0.3 if kind == "some" else 1.7)
                if chosen.any():
                    out = out.clone()
                    out[chosen] = out[chosen] + torch.tanh(layer(x[chosen]))
            elif kind == "twice":
                out = out + torch.tanh(layer(torch.tanh(layer(out))))
            else:
                out = out + torch.tanh(layer(out))
        if (x[:, 0] > 1.2).any():
            out = out * torch.where(x[:, :1] > 1.2, self.gate, 1.0)
        return out


@dataclass(frozen=True)
class Case:
    kinds: tuple[str, ...]
    samples: int
    batch: int
    accumulate: int
    optimizer: str
    clip: bool
    to_none: bool
    options: tuple[tuple[str, object], ...]


def draw(seed):
    """A case; the same for the same seed."""
    rng = random.Random(seed)
    static = rng.random() < 0.2
    kinds = ["all", "all", "twice", "tied", "frozen", "unused"] + ["some", "few"] * (0 if static else 2)
    options = {
        "bucket_cap_mb": rng.choice(BUCKETS),
        "gradient_as_bucket_view": rng.random() < 0.5,
        "static_graph": static,
        "find_unused_parameters": not static and rng.random() < 0.2,
        "comm_hook": rng.choice(["no", "no", "no", "fp16"]),
    }
    return Case(
        kinds=("all", *(rng.choice(kinds) for _ in range(rng.randint(2, 6)))),
        samples=rng.randint(9, 30),
        batch=rng.choice([4, 6, 8]),
        accumulate=rng.choice([1, 1, 2, 3]),
        optimizer=rng.choice(["momentum", "adamw"]),
        clip=rng.random() < 0.3,
        to_none=rng.random() < 0.7,
        options=tuple(sorted(options.items())),
    )


def _made(case):
    torch.manual_seed(11)
    model = Parts(case.kinds).double()
    if case.static_gate_is_off:
        model.gate.requires_grad_(False)
    data = TensorDataset(torch.randn(case.samples, WIDTH, dtype=torch.float64))
    trained = [p for p in model.parameters() if p.requires_grad]
    if case.optimizer == "momentum":
        optimizer = torch.optim.SGD(trained, lr=0.05, momentum=0.9, weight_decay=0.1)
    else:
        optimizer = torch.optim.AdamW(trained, lr=0.01, weight_decay=0.1)
    return model, optimizer, DataLoader(data, batch_size=case.batch, shuffle=True)


Case.static_gate_is_off = property(lambda self: dict(self.options)["static_graph"])


def _weights(model):
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def plain(case):
    """Final weights of the loop in plain PyTorch."""
    model, optimizer, loader = _made(case)
    for _ in range(2):
        for i, (x,) in enumerate(loader):
            window = min(case.accumulate, len(loader) - i + i % case.accumulate)
            (model(x).square().mean() / window).backward()
            if (i + 1) % case.accumulate == 0 or i + 1 == len(loader):
                if case.clip:
                    nn.utils.clip_grad_norm_(model.parameters(), 0.05)
                optimizer.step()
                optimizer.zero_grad(set_to_none=case.to_none)
    return _weights(model)


def _distributed(case):
    model, optimizer, loader = _made(case)
    accelerator = fresh_accelerator(
        split_batches=True,
        gradient_accumulation_steps=case.accumulate,
        kwargs_handlers=[DistributedDataParallelKwargs(**dict(case.options))],
    )
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for _ in range(2):
        for (x,) in loader:
            with accelerator.accumulate(model):
                accelerator.backward(model(x).square().mean())
                if accelerator.sync_gradients and case.clip:
                    accelerator.clip_grad_norm_(model.parameters(), 0.05)
                optimizer.step()
                optimizer.zero_grad(set_to_none=case.to_none)
    return _weights(model), model._flat


def _all(seeds):
    return [_distributed(draw(seed)) for seed in seeds]


@pytest.mark.parametrize(("ranks", "seeds"), [(2, range(24)), (3, range(24, 32))])
def test_any_model_is_trained_as_on_one_process(ranks, seeds):
    found = run_ranks(ranks, _all, seeds, timeout=400)
    for i, seed in enumerate(seeds):
        case = draw(seed)
        exact = dict(case.options)["comm_hook"] == "no"
        for result in found:
            weights, flat = result[i]
            assert not flat, case
            assert torch.equal(weights, found[0][i][0]), f"ranks differ: {case}"
            torch.testing.assert_close(
                weights,
                plain(case),
                rtol=1e-7 if exact else 0.05,
                atol=1e-9 if exact else 0.02,
                msg=lambda m, c=case: f"{c}: {m}",
            )


class Branches(nn.Module):
    def __init__(self, width=300):
        super().__init__()
        self.spare = nn.Linear(4, 4)
        self.first, self.a, self.b, self.last = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x, which):
        x = self.first(x)
        x = {"a": self.a, "b": self.b}[which](x) if which != "both" else self.a(x) + self.b(x)
        return self.last(x)


def _inputs(step, rank):
    return torch.randn(8, 300, generator=torch.Generator().manual_seed(100 * step + rank))


def _which(step, rank, differ):
    # Buckets are built anew after the first step: they are there when a part is left out first.
    return "both" if step < 3 else "ab"[rank % 2] if differ else "a"


def _branch_gradients(view, differ):
    torch.manual_seed(0)
    options = DistributedDataParallelKwargs(bucket_cap_mb=0.2, gradient_as_bucket_view=view)
    accelerator = fresh_accelerator(kwargs_handlers=[options])
    model = accelerator.prepare(Branches())
    rank, found = accelerator.process_index, []
    for step in range(6):
        model.zero_grad()
        accelerator.backward(model(_inputs(step, rank), _which(step, rank, differ)).square().mean())
        found.append([None if p.grad is None else p.grad.clone() for p in model.parameters()])
    return found, model._flat


@pytest.mark.parametrize("view", [False, True])
@pytest.mark.parametrize("differ", [False, True])
def test_parts_left_out_with_several_buckets(view, differ):
    results = run_ranks(2, _branch_gradients, view, differ)
    torch.manual_seed(0)
    model = Branches()
    for step in range(6):
        model.zero_grad()
        for rank in range(2):
            (model(_inputs(step, rank), _which(step, rank, differ)).square().mean() / 2).backward()
        for found, flat in results:
            assert not flat
            for (name, p), gradient in zip(model.named_parameters(), found[step], strict=True):
                if p.grad is None:
                    assert gradient is None, (step, name)
                else:
                    torch.testing.assert_close(gradient, p.grad, rtol=1e-4, atol=1e-6)


class Dropped(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(60, 60) for _ in range(8))

    def forward(self, x):
        for layer in self.layers:
            if torch.rand(()).item() >= 0.3:
                x = x + 0.1 * layer(x)
        return x


def _layer_drop():
    """Whole runs, in which every rank draws by itself which layers it leaves out."""
    found = []
    for seed in range(4):
        torch.manual_seed(seed)
        options = DistributedDataParallelKwargs(bucket_cap_mb=0.02)
        accelerator = fresh_accelerator(kwargs_handlers=[options])
        model = Dropped()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loader = DataLoader(TensorDataset(torch.randn(64, 60)), batch_size=4, shuffle=True)
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        for (x,) in loader:
            accelerator.backward(model(x).square().mean())
            optimizer.step()
            optimizer.zero_grad()
        assert not model._flat
        found.append(_weights(model))
    return torch.stack(found)


def test_layers_that_ranks_drop_by_chance():
    first, second = run_ranks(2, _layer_drop)
    assert torch.equal(first, second)
    assert first.isfinite().all()


def _hooks_and_empty_shares():
    """Hooks of the script run for its own gradients only; a rank without samples makes no gradient of zero minus."""
    torch.manual_seed(0)
    accelerator = fresh_accelerator(split_batches=True)
    model = nn.ModuleDict(
        {"a": nn.Linear(1, 1), "spare": nn.Linear(1, 1), "gate": nn.Linear(1, 1, bias=False)}
    )

    class Gated(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = model

        def forward(self, x):
            # On a rank whose share is empty the gradient of the gate is -1 times nothing.
            return self.parts["a"](x) - self.parts["gate"](torch.ones_like(x))

    seen = []
    model["spare"].weight.register_hook(lambda g: seen.append(g))
    model["spare"].bias.register_post_accumulate_grad_hook(lambda p: seen.append(p))
    loader = DataLoader(TensorDataset(torch.ones(5, 1)), batch_size=2)
    wrapped, loader = accelerator.prepare(Gated(), loader)
    found = []
    for (x,) in loader:
        wrapped.zero_grad()
        accelerator.backward(wrapped(x).mean())
        assert model["spare"].weight.grad is None
        found.append(model["gate"].weight.grad.item())
    return found, len(seen), wrapped._flat


def test_hooks_of_the_script_and_ranks_without_samples():
    assert run_ranks(2, _hooks_and_empty_shares) == [([-1.0, -1.0, -1.0], 0, False)] * 2
