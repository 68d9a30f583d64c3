"""Training steps that plain DistributedDataParallel gets wrong or refuses, against the same step on one process."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.distributed.processes import fresh_accelerator, run_ranks

pytestmark = pytest.mark.distributed


class Plain:
    """The Accelerator's names on one process without it."""

    device = torch.device("cpu")
    process_index, num_processes = 0, 1

    def prepare(self, *objects):
        return objects if len(objects) > 1 else objects[0]

    def backward(self, loss, reduction="mean", **kwargs):
        loss.backward(**kwargs)

    def unwrap_model(self, model):
        return model


def loader_of(size=11, batch=4, seed=7):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(size, 6, generator=generator)
    return DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=batch, shuffle=True)


def noise_like(accelerator, x, seed):
    """Noise that depends on the data only, so that ranks' noises together are the one process's."""
    return torch.sin(x[:, :2] * (17 + seed))


def generator_and_discriminator(batch_norm=False):
    norm = nn.BatchNorm1d(8) if batch_norm else nn.Identity()
    g = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 6))
    d = nn.Sequential(nn.Linear(6, 8), norm, nn.Tanh(), nn.Linear(8, 1))
    return g, d


def gan(acc, together=False, batch_norm=False):
    """The discriminator is called several times; losses go backward one by one or together."""
    g, d = generator_and_discriminator(batch_norm)
    og, od = torch.optim.SGD(g.parameters(), lr=0.1), torch.optim.Adam(d.parameters(), lr=0.01)
    g, d, og, od, loader = acc.prepare(g, d, og, od, loader_of(12 if batch_norm else 11))
    for _ in range(2):
        for i, (x, _) in enumerate(loader):
            od.zero_grad()
            fake = g(noise_like(acc, x, i))
            real_out, fake_out = d(x), d(fake.detach())
            ones, zeros = torch.ones_like(real_out), torch.zeros_like(real_out)
            real = F.binary_cross_entropy_with_logits(real_out, ones)
            false = F.binary_cross_entropy_with_logits(fake_out, zeros)
            if together:
                acc.backward(real + false)
            else:
                acc.backward(real)
                acc.backward(false)
            od.step()
            og.zero_grad()
            acc.backward(F.binary_cross_entropy_with_logits(d(fake), ones))
            og.step()
    return [g, d]


def gan_together(acc):
    return gan(acc, together=True)


class Coder(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.mid, self.dec = nn.Linear(6, 4), nn.Linear(4, 4), nn.Linear(4, 6)

    def encode(self, x):
        return torch.tanh(self.mid(torch.tanh(self.enc(x))))

    def decode(self, z):
        return self.dec(z)

    def forward(self, x):
        return self.decode(self.encode(x))


def own_methods(acc):
    model = Coder()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, loader = acc.prepare(model, optimizer, loader_of())
    for _ in range(2):
        for x, _ in loader:
            optimizer.zero_grad()
            acc.backward(F.mse_loss(model.decode(model.encode(x)), x))
            optimizer.step()
    return [model]


def own_methods_past_the_wrapper(acc):
    """Submodules called directly, and the model unwrapped."""
    model = Coder()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, loader = acc.prepare(model, optimizer, loader_of())
    for i, (x, _) in enumerate(loader):
        optimizer.zero_grad()
        if i % 2:
            acc.backward(F.mse_loss(model.dec(model.mid(model.enc(x))), x))
        else:
            acc.backward(F.mse_loss(acc.unwrap_model(model)(x), x))
        optimizer.step()
    return [model]


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.spare = nn.Embedding(9, 4, sparse=True), nn.EmbeddingBag(5, 4, sparse=True)
        self.out = nn.Linear(4, 1)

    def embed(self, x):
        return self.words((x.abs() * 3).long().clamp(max=8)).mean(1)

    def forward(self, x):
        return self.out(self.embed(x))


def sparse_gradients(acc, forward=True):
    """Embeddings with sparse gradients beside dense ones, and one that no batch reaches."""
    model = Words()
    rows = [model.words.weight, model.spare.weight]
    sparse = torch.optim.SparseAdam(rows, lr=0.1)
    dense = torch.optim.SGD(model.out.parameters(), lr=0.1)
    model, sparse, dense, loader = acc.prepare(model, sparse, dense, loader_of())
    for x, y in loader:
        sparse.zero_grad()
        dense.zero_grad()
        acc.backward(F.mse_loss(model(x) if forward else model.out(model.embed(x)), y))
        sparse.step()
        dense.step()
    return [model]


def sparse_gradients_past_forward(acc):
    return sparse_gradients(acc, forward=False)


class Agent(Coder):
    """It trains itself, in a method."""

    def learn(self, acc, optimizer, x):
        optimizer.zero_grad()
        acc.backward(F.mse_loss(self.forward(x), x))
        optimizer.step()


class Meta(Agent):
    """Its forward is the whole step."""

    def forward(self, x, acc=None, optimizer=None):
        return super().forward(x) if acc is None else self.learn(acc, optimizer, x)


def trains_in_its_forward(acc):
    agent = Meta()
    optimizer = torch.optim.SGD(agent.parameters(), lr=0.1)
    agent, optimizer, loader = acc.prepare(agent, optimizer, loader_of())
    for x, _ in loader:
        agent(x, acc, optimizer)
    return [agent]


def trains_itself(acc):
    agent = Agent()
    optimizer = torch.optim.SGD(agent.parameters(), lr=0.1)
    agent, optimizer, loader = acc.prepare(agent, optimizer, loader_of())
    for x, _ in loader:
        agent.learn(acc, optimizer, x)
    return [agent]


def lbfgs(acc):
    """In double precision: the line search makes a rounding error a thousand times larger at every batch."""
    model = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=5, line_search_fn="strong_wolfe")
    model, optimizer, loader = acc.prepare(model, optimizer, loader_of())
    losses = []
    for x, y in loader:

        def closure(x=x, y=y):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x.double()), y.double())
            acc.backward(loss)
            return loss

        losses.append(optimizer.step(closure))
    return [model, torch.stack([torch.as_tensor(v).detach() for v in losses])]


def penalty(acc):
    """A gradient penalty: the gradient with respect to the input is part of the loss."""
    _, d = generator_and_discriminator()
    optimizer = torch.optim.SGD(d.parameters(), lr=0.05)
    d, optimizer, loader = acc.prepare(d, optimizer, loader_of())
    for _ in range(2):
        for x, _ in loader:
            optimizer.zero_grad()
            x = x.clone().requires_grad_()
            (gradient,) = torch.autograd.grad(d(x).sum(), x, create_graph=True)
            acc.backward(((gradient.norm(dim=1) - 1) ** 2).mean())
            acc.backward(d(x).mean())
            optimizer.step()
    return [d]


class Partly(nn.Module):
    """Some parameters never get a gradient, some are frozen, two are the same."""

    def __init__(self):
        super().__init__()
        self.used, self.unused, self.frozen = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6)
        self.tied = nn.Linear(6, 6)
        self.tied.weight = self.used.weight
        self.head = nn.Linear(6, 1)
        self.frozen.requires_grad_(False)

    def forward(self, x):
        return self.head(self.tied(torch.tanh(self.frozen(self.used(x)))))


def unused_frozen_tied(acc):
    model = Partly()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.05, weight_decay=0.1)
    model, optimizer, loader = acc.prepare(model, optimizer, loader_of())
    for _ in range(2):
        for x, y in loader:
            optimizer.zero_grad()
            acc.backward(F.mse_loss(model(x), y))
            optimizer.step()
    inner = acc.unwrap_model(model)
    assert inner.tied.weight is inner.used.weight
    assert inner.unused.weight.grad is None
    return [model]


class Buffered(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(6, 6), nn.BatchNorm1d(6, affine=False), nn.Linear(6, 1)

    def forward(self, x):
        # The statistics are kept but not used, so that ranks can be compared.
        self.norm(x)
        return self.last(torch.tanh(self.first(x)))


def twice_before_backward(acc):
    model = Buffered()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    model, optimizer, loader = acc.prepare(model, optimizer, loader_of(12))
    for x, y in loader:
        optimizer.zero_grad()
        a, b = model(x), model(x * 2)
        acc.backward(F.mse_loss(a, y) + F.mse_loss(b, y))
        optimizer.step()
    return [model.first, model.last]


def thawed_later(acc):
    model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 1))
    model[0].requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    model, optimizer, loader = acc.prepare(model, optimizer, loader_of())
    for epoch in range(3):
        if epoch == 1:
            acc.unwrap_model(model)[0].requires_grad_(True)
        if epoch == 2:
            acc.unwrap_model(model)[2].requires_grad_(False)
        for x, y in loader:
            optimizer.zero_grad()
            acc.backward(F.mse_loss(model(x), y))
            optimizer.step()
    return [model]


def alternating(acc):
    """Another part of the model is trained every other step."""
    model = Coder()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    model, optimizer, loader = acc.prepare(model, optimizer, loader_of())
    for i in range(6):
        for x, _ in loader:
            optimizer.zero_grad()
            loss = model.encode(x).square().mean() if i % 2 else F.mse_loss(model(x), x)
            acc.backward(loss)
            optimizer.step()
    return [model]


def loose_parameter(acc):
    """A parameter that belongs to no module."""
    model = nn.Linear(6, 1)
    extra = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([*model.parameters(), extra], lr=0.05)
    model, optimizer, loader = acc.prepare(model, optimizer, loader_of())
    for x, y in loader:
        optimizer.zero_grad()
        acc.backward(F.mse_loss(model(x) + extra, y))
        optimizer.step()
    return [model, extra]


def model_not_prepared(acc):
    """Only the optimizer and the loader are: what they train is averaged all the same."""
    model = nn.Linear(6, 1)
    optimizer, loader = acc.prepare(torch.optim.SGD(model.parameters(), lr=0.1), loader_of())
    for x, y in loader:
        optimizer.zero_grad()
        acc.backward((model(x) - y).pow(2).mean())
        optimizer.step()
    return [model]


def two_losses_one_graph(acc):
    model = Coder()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    model, optimizer, loader = acc.prepare(model, optimizer, loader_of())
    for x, _ in loader:
        optimizer.zero_grad()
        out = model(x)
        acc.backward(F.mse_loss(out, x), retain_graph=True)
        acc.backward(out.abs().mean())
        optimizer.step()
    return [model]


def gradient_given(acc):
    model = nn.Linear(6, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    model, optimizer, loader = acc.prepare(model, optimizer, loader_of())
    for x, y in loader:
        optimizer.zero_grad()
        out = (model(x) - y).square()
        acc.backward(out, reduction="sum", gradient=torch.ones_like(out))
        optimizer.step()
    return [model]


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = 1.0
        self.fc = nn.Linear(6, 1)

    def forward(self, x):
        return self.fc(x) * self.scale


def attributes_set_on_the_wrapper(acc):
    model = acc.prepare(Scaled())
    model.scale = 3.0
    model.fc = nn.Linear(6, 1)
    optimizer, loader = acc.prepare(torch.optim.SGD(model.parameters(), lr=0.01), loader_of())
    for x, y in loader:
        optimizer.zero_grad()
        acc.backward(F.mse_loss(model(x), y))
        optimizer.step()
    model.note = "of the wrapper's own"
    return [model, torch.tensor(float(acc.unwrap_model(model).scale))]


def moved_and_back(acc):
    """Moved and cast parameters get new nodes in the graph, and DDP's hooks are on the old ones."""
    model, part = Coder(), Coder()
    optimizer = torch.optim.SGD([*model.parameters(), *part.parameters()], lr=0.1)
    model, part, optimizer, loader = acc.prepare(model, part, optimizer, loader_of())
    for i, (x, _) in enumerate(loader):
        optimizer.zero_grad()
        acc.backward(F.mse_loss(model(x), x) + F.mse_loss(part(x), x))
        optimizer.step()
        if i == 0:
            model.double().float()
            acc.unwrap_model(part).dec.double().float()
    return [model, part]


class TwoHeads(nn.Module):
    """One head for each task; the loss of a task leaves the other's without a gradient."""

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(6, 8)
        self.heads = nn.ModuleList([nn.Linear(8, 1), nn.Linear(8, 1)])

    def forward(self, x):
        return [head(self.body(x)) for head in self.heads]


def copied_behind_prepare(acc):
    """Every task begins with a copy of the prepared model, which is prepared in its turn; the copy itself runs too."""
    begun = acc.prepare(TwoHeads())
    trained = []
    for task in range(2):
        copied = copy.deepcopy(begun)
        optimizer = torch.optim.SGD(copied.parameters(), lr=0.1)
        model, optimizer, loader = acc.prepare(copied, optimizer, loader_of())
        assert type(acc.unwrap_model(model)) is TwoHeads
        for number, (x, y) in enumerate(loader):
            optimizer.zero_grad()
            out = copied(x) if number == 1 else model(x)
            acc.backward(F.mse_loss(out[task], y))
            optimizer.step()
        trained.append(model)
    return trained


class Answering:
    """Answers for the optimizer that it keeps, as a scheduler would, and None for what nobody knows."""

    def __init__(self, kept):
        self.retained = kept

    def step(self):
        self.retained.step()

    def zero_grad(self):
        self.retained.zero_grad()

    def __getattr__(self, name):
        return getattr(self.retained, name, None)


def optimizer_of_its_own(acc):
    model = nn.Linear(6, 1)
    optimizer = Answering(torch.optim.SGD(model.parameters(), lr=0.05))
    model, optimizer, loader = acc.prepare(model, optimizer, loader_of())
    for x, y in loader:
        optimizer.zero_grad()
        acc.backward(F.mse_loss(model(x), y))
        optimizer.step()
    return [model]


STEPS = [
    copied_behind_prepare,
    optimizer_of_its_own,
    moved_and_back,
    attributes_set_on_the_wrapper,
    gan,
    gan_together,
    own_methods,
    own_methods_past_the_wrapper,
    sparse_gradients,
    sparse_gradients_past_forward,
    trains_itself,
    trains_in_its_forward,
    lbfgs,
    penalty,
    unused_frozen_tied,
    twice_before_backward,
    thawed_later,
    alternating,
    loose_parameter,
    model_not_prepared,
    two_losses_one_graph,
    gradient_given,
]


def _flat(acc, results):
    parts = []
    for item in results:
        if isinstance(item, nn.Module):
            parts += [p.detach().reshape(-1) for p in acc.unwrap_model(item).parameters()]
        else:
            parts.append(item.detach().reshape(-1))
    return torch.cat(parts)


def _run_all():
    found = []
    for step in STEPS:
        torch.manual_seed(4)
        acc = fresh_accelerator(split_batches=True)
        found.append(_flat(acc, step(acc)))
    # With batch statistics ranks differ from one process, but it must run, and the ranks agree.
    torch.manual_seed(4)
    acc = fresh_accelerator(split_batches=True)
    models = gan(acc, together=True, batch_norm=True)
    found.append(torch.cat([t.float().reshape(-1) for m in models for t in m.state_dict().values()]))
    return found


def test_two_processes_do_as_one():
    results = run_ranks(2, _run_all)
    for i, step in enumerate(STEPS):
        torch.manual_seed(4)
        acc = Plain()
        expected = _flat(acc, step(acc))
        for result in results:
            torch.testing.assert_close(
                result[i], expected, rtol=1e-4, atol=1e-5, msg=lambda m, s=step: f"{s.__name__}: {m}"
            )
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b)


def _exchanged_each_epoch():
    """How many numbers the ranks average in each epoch, where every epoch makes its optimizer anew."""
    torch.manual_seed(4)
    acc = fresh_accelerator(split_batches=True)
    model, extra = acc.prepare(nn.Linear(6, 1)), torch.zeros(5, requires_grad=True)
    exchanged = []
    plain = torch.distributed.all_reduce

    def counted(tensor, *args, **kwargs):
        exchanged[-1] += tensor.numel()
        return plain(tensor, *args, **kwargs)

    torch.distributed.all_reduce = counted
    try:
        for _ in range(3):
            exchanged.append(0)
            optimizer = acc.prepare(torch.optim.SGD([*model.parameters(), extra], lr=0.05))
            acc.backward(F.mse_loss(model(torch.ones(2, 6)) + extra.sum(), torch.ones(2, 1)))
            optimizer.step()
    finally:
        torch.distributed.all_reduce = plain
    return exchanged


def test_an_optimizer_made_each_epoch_exchanges_no_more_than_the_first():
    for exchanged in run_ranks(2, _exchanged_each_epoch):
        assert exchanged[0] >= 5
        assert exchanged == exchanged[:1] * 3
