"""FSDP2: the same losses as plain PyTorch, weights and checkpoints that go anywhere, errors that name the operation."""

import copy
import itertools
import json
import os

import pytest
import torch
from torch import nn

from accelify.runtime import (
    DistributedDataParallelKwargs,
    DistributedType,
    FullyShardedDataParallelPlugin,
    GradScalerKwargs,
    ParallelismConfig,
)
from accelify.runtime.helpers import LocalSGD
from tests.distributed.processes import fresh_accelerator, run_ranks, try_ranks
from tests.runtime.training import Setting, train_accelerated, train_plain

pytestmark = pytest.mark.distributed

# 43 samples in batches of 16 end with a batch of 11, 33 with a batch of 1.
SETTINGS = [
    Setting(samples=33, optimizer="adam"),
    Setting(loss="sum"),
    Setting(accumulate=2, samples=75, schedule="batch"),
    Setting(clip=0.1, accumulate=3),
    Setting(schedule="epoch", samples=33, clip=0.1),
    Setting(sampler="own"),
    Setting(sampler="stream", samples=33, schedule="batch"),
]
SMALL = {"fsdp_plugin": FullyShardedDataParallelPlugin(min_num_params=10)}
LAYOUTS = {
    "2 ranks": (2, SMALL),
    "4 ranks, one unit, resharded": (
        4,
        {
            "fsdp_plugin": FullyShardedDataParallelPlugin(
                auto_wrap_policy="no_wrap", reshard_after_forward=True
            )
        },
    ),
    "2 replicas of 2 shards": (4, {**SMALL, "parallelism_config": ParallelismConfig(dp_replicate_size=2)}),
}


def _train_all(settings, arguments):
    return [train_accelerated(s, split_batches=True, **arguments) for s in settings]


def check_equal(results, settings):
    """Losses, learning rates and weights of all ranks are those of plain PyTorch."""
    for i, setting in enumerate(settings):
        expected, weights = train_plain(setting)
        for result in results:
            history, own = result[i]
            assert len(history) == len(expected), setting
            for step, (a, b) in enumerate(zip(expected, history, strict=True)):
                assert b == pytest.approx(a, rel=2e-5, abs=1e-7), (setting, step)
            torch.testing.assert_close(own, weights, rtol=2e-4, atol=2e-6)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_losses_follow_plain_pytorch(layout):
    ranks, arguments = LAYOUTS[layout]
    check_equal(run_ranks(ranks, _train_all, SETTINGS, arguments), SETTINGS)


def test_one_process_shards_too():
    setting = Setting(accumulate=2)
    check_equal([_train_all([setting], SMALL)], [setting])


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(6)
        self.inner = nn.Linear(6, 6)

    def forward(self, x):
        return x + self.inner(self.norm(x)).tanh()


class Net(nn.Module):
    """Blocks, tied weights, a frozen layer, statistics, and methods beside forward."""

    def __init__(self):
        super().__init__()
        self.into = nn.Linear(6, 6, bias=False)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.still = nn.Linear(6, 6).requires_grad_(False)
        self.statistics = nn.BatchNorm1d(6)
        self.out = nn.Linear(6, 6, bias=False)
        self.out.weight = self.into.weight
        self.head = nn.Linear(6, 3)

    def encode(self, x):
        for block in self.blocks:
            x = block(x)
        return x

    def forward(self, x):
        return self.head(self.out(self.statistics(self.encode(self.still(self.into(x))))))

    def penalty(self, x):
        return self.encode(self.into(x)).square().mean()

    def sample(self, number):
        return self.head(torch.randn(number, 6))

    def describe(self):
        return sum(p.numel() for p in self.parameters())


def prepared(optimizer_first=False, seed=0, net=Net, **kwargs):
    """(accelerator, model, optimizer), prepared in the usual order or the optimizer before its model."""
    torch.manual_seed(seed)
    kwargs.setdefault("fsdp_plugin", FullyShardedDataParallelPlugin())
    acc = fresh_accelerator(split_batches=True, **kwargs)
    model = net()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01)
    if optimizer_first:
        optimizer = acc.prepare(optimizer)
        return acc, acc.prepare(model), optimizer
    return acc, *acc.prepare(model, optimizer)


def steps(acc, model, optimizer, number=3, seed=1):
    """Losses of a few steps, each over the same whole batch."""
    x = torch.randn(8, 6, generator=torch.Generator().manual_seed(seed))
    own = x.chunk(acc.process.data_ranks)[acc.process.data_rank]
    losses = []
    for _ in range(number):
        loss = model(own).square().mean() + model.penalty(own)
        losses.append(acc.reduce(loss.detach(), "mean").item())
        acc.backward(loss)
        acc.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return losses


def plain_weights(state):
    """Into plain PyTorch; every name is there."""
    model = Net()
    model.load_state_dict(state)
    return model


def _unusual_models():
    acc, model, optimizer = prepared()
    first = steps(acc, model, optimizer)
    state = acc.get_state_dict(model)
    assert model.out.weight is model.into.weight
    assert plain_weights(state).still.weight.equal(state["still.weight"])
    assert type(model.into.weight).__name__ == "DTensor"
    for name, tensor in model.state_dict().items():
        assert tensor.equal(state[name])
    # The optimizer's parameters were made before the model was sharded, and prepared before it too.
    acc, model, optimizer = prepared(optimizer_first=True)
    assert steps(acc, model, optimizer) == pytest.approx(first, rel=1e-6)
    # One made afterwards, after a forward whose backward never came.
    acc, model, _ = prepared()
    model.train()(torch.ones(2, 6))
    trained = [p for p in model.parameters() if p.requires_grad]
    late = acc.prepare(torch.optim.AdamW(trained, lr=0.01))
    assert steps(acc, model, late)[1] < first[0]
    # Methods beside forward, on all ranks, and without weights on one rank alone.
    assert model.sample(3).shape == (3, 3)
    if acc.is_main_process:
        assert model.describe() == sum(p.numel() for p in model.parameters())
    # Back into the sharded model, by the script's own call.
    best = copy.deepcopy(state)
    model.load_state_dict(best)
    again = acc.get_state_dict(model)
    assert all(again[n].equal(best[n]) for n in best)
    model.eval()
    with torch.no_grad():
        return first, model(torch.ones(2, 6)).tolist(), best


def _single():
    acc, model, optimizer = prepared(fsdp_plugin=None)
    assert acc.distributed_type == DistributedType.NO
    losses = steps(acc, model, optimizer)
    model.eval()
    return losses, model(torch.ones(2, 6)).tolist(), acc.get_state_dict(model)


class Normed(Net):
    """Without batch statistics, which differ between one batch and its shares."""

    def __init__(self):
        super().__init__()
        self.statistics = nn.LayerNorm(6)


def _equal_models(arguments):
    acc, model, optimizer = prepared(net=Normed, **arguments)
    return steps(acc, model, optimizer), acc.get_state_dict(model)


def test_models_that_are_not_plain():
    results = run_ranks(2, _unusual_models)
    assert results[0][0] == results[1][0]
    # Ranks agree on everything, the statistics of BatchNorm included.
    assert results[0][1] == results[1][1]
    assert all(a.equal(results[1][2][n]) for n, a in results[0][2].items())
    one = _unusual_models()
    losses, output, state = _single()
    assert one[0] == pytest.approx(losses, rel=1e-5)
    torch.testing.assert_close(torch.tensor(one[1]), torch.tensor(output), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(one[2], state, rtol=1e-4, atol=1e-5)


POLICIES = [
    {"transformer_cls_names_to_wrap": "Block", "activation_checkpointing": True},
    {"auto_wrap_policy": lambda module: isinstance(module, nn.Linear)},
    {"auto_wrap_policy": "no_wrap", "sync_module_states": False},
    {"min_num_params": 40, "reshard_after_forward": False},
]


def _policies():
    return [_equal_models({"fsdp_plugin": FullyShardedDataParallelPlugin(**p)}) for p in POLICIES]


def test_every_way_of_wrapping_gives_the_same():
    expected, weights = _equal_models({"fsdp_plugin": None})
    for result in run_ranks(2, _policies):
        for losses, state in result:
            assert losses == pytest.approx(expected, rel=1e-5)
            torch.testing.assert_close(state, weights, rtol=1e-4, atol=1e-5)


class Drawn(Normed):
    def __init__(self, device=None):
        with torch.device(device or "cpu"):
            super().__init__()


def _meta(only_others):
    torch.manual_seed(0)
    acc = fresh_accelerator(fsdp_plugin=FullyShardedDataParallelPlugin(cpu_ram_efficient_loading=only_others))
    model = Drawn(None if only_others and acc.is_main_process else "meta")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    model, optimizer = acc.prepare(model, optimizer)
    assert model.out.weight is model.into.weight
    state = acc.get_state_dict(model)
    steps(acc, model, optimizer)
    return state


def _meta_that_cannot_be():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(2))

    acc = fresh_accelerator(fsdp_plugin=FullyShardedDataParallelPlugin())
    with torch.device("meta"):
        model = Odd()
    with pytest.raises(ValueError, match="Odd begins on the meta device and has no reset_parameters"):
        acc.prepare(model)


def test_models_on_the_meta_device():
    torch.manual_seed(0)
    expected = Drawn().state_dict()
    for filled in (True, False):
        for state in run_ranks(2, _meta, filled):
            torch.testing.assert_close(state, dict(expected))
    _meta_that_cannot_be()


def _precisions():
    found = []
    for name in ("bf16", "fp16"):
        # torch's own first scale is too large for these gradients, with any engine.
        scaling = [GradScalerKwargs(init_scale=256.0)]
        acc, model, optimizer = prepared(net=Normed, mixed_precision=name, kwargs_handlers=scaling)
        losses = steps(acc, model, optimizer)
        assert all(p.dtype == torch.float32 for p in model.parameters())
        assert not acc.optimizer_step_was_skipped
        # A gradient that overflows on one rank is left out on all.
        skipped = None
        if name == "fp16":
            before = acc.get_state_dict(model)
            loss = model(torch.ones(2, 6)).sum()
            acc.backward(loss * (1e30 if acc.process_index else 1.0))
            optimizer.step()
            skipped = optimizer.step_was_skipped and before["head.weight"].equal(
                acc.get_state_dict(model)["head.weight"]
            )
        found.append((losses, skipped))
    acc, model, optimizer = prepared(mixed_precision="bf16")
    steps(acc, model, optimizer)
    return found


def test_mixed_precision():
    expected, _ = _equal_models({"fsdp_plugin": None})
    for (bf16, _), (fp16, skipped) in run_ranks(2, _precisions):
        assert bf16 == pytest.approx(expected, rel=0.05)
        assert fp16 == pytest.approx(expected, rel=0.01)
        assert skipped


# Unusual steps


def _weighted_by_tokens():
    """Every loss is the mean over some tokens; the update is that of the mean over all."""
    acc, model, _ = prepared(net=Normed, gradient_accumulation_steps=2)
    for i in range(2):
        x = torch.randn(2 + 3 * i + acc.process_index, 6, generator=torch.Generator().manual_seed(i))
        with acc.accumulate(model):
            acc.backward(model(x).square().mean(), weight=float(len(x)))
    return model.head.bias.grad.full_tensor()


def _plain_by_tokens(ranks):
    torch.manual_seed(0)
    model = Normed()
    total, tokens = 0.0, 0
    for i, rank in itertools.product(range(2), range(ranks)):
        x = torch.randn(2 + 3 * i + rank, 6, generator=torch.Generator().manual_seed(i))
        total = total + model(x).square().mean() * len(x)
        tokens += len(x)
    (total / tokens).backward()
    return model.head.bias.grad


def test_windows_weighed_by_tokens():
    expected = _plain_by_tokens(2)
    for gradient in run_ranks(2, _weighted_by_tokens):
        torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-6)


def _refusals():
    acc, model, _ = prepared()
    named = pytest.raises(NotImplementedError, match="join_uneven_inputs does not work with FSDP")
    with named, acc.join_uneven_inputs([model]):
        pass
    with pytest.raises(NotImplementedError, match="LocalSGD does not work with FSDP"):
        LocalSGD(acc, model, 2)
    with pytest.raises(NotImplementedError, match="LBFGS does not work with FSDP"):
        acc.prepare(torch.optim.LBFGS(model.parameters()))
    x = torch.ones(2, 6, requires_grad=True)
    (slope,) = torch.autograd.grad(model(x).square().sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="a gradient of gradients"):
        acc.backward(slope.square().sum())
    return acc.distributed_type


class Helped(nn.Module):
    """Methods that scripts call in place of forward, or beside it."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.scale = nn.Parameter(torch.ones(3))

    def encode(self, x):
        return self.b(self.a(x))

    def forward(self, x):
        return self.c(self.encode(x)) * self.scale

    def loss(self, output, target):
        return ((output * self.scale - target) ** 2).mean()

    def training_step(self, x, y):
        return self.loss(self(x), y)


WAYS = {
    "loss of its own": lambda m, x, y: m.loss(m(x), y),
    "step of its own": lambda m, x, y: m.training_step(x, y),
    "a part of it": lambda m, x, y: m.encode(x).square().mean(),
    "several passes": lambda m, x, y: (
        m.loss(m(x), y) + m.encode(y.repeat(1, 2)).square().mean() + m(2 * x).mean()
    ),
}


def _ways(plugin):
    found = {}
    x = torch.randn(3, 4, 9, generator=torch.Generator().manual_seed(5))
    for name, way in WAYS.items():
        acc, model, optimizer = prepared(net=Helped, fsdp_plugin=plugin)
        found[name] = []
        for batch in x:
            loss = way(model, batch[:, :6], batch[:, 6:])
            acc.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            found[name].append(loss.item())
    found["two models"] = _two_models(plugin, x[..., :6])
    return found


def _two_models(plugin, x):
    torch.manual_seed(0)
    acc = fresh_accelerator(fsdp_plugin=plugin)
    maker, judge = nn.Linear(6, 6), nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 1))
    optimizers = [torch.optim.Adam(m.parameters(), lr=0.1) for m in (maker, judge)]
    maker, judge, first, second = acc.prepare(maker, judge, *optimizers)
    losses = []
    for batch in x:
        made = maker(batch)
        loss = judge(made.detach()).mean() - judge(batch).mean()
        acc.backward(loss)
        second.step()
        second.zero_grad()
        other = -judge(made).mean()
        acc.backward(other)
        first.step()
        first.zero_grad()
        second.zero_grad()
        losses += [loss.item(), other.item()]
    return losses


@pytest.mark.parametrize("policy", ["no_wrap", "size_based_wrap"])
def test_methods_in_place_of_forward(policy):
    expected = _ways(None)
    plugin = FullyShardedDataParallelPlugin(
        auto_wrap_policy=policy, min_num_params=10, reshard_after_forward=True
    )
    for found in run_ranks(2, _ways, plugin):
        for name, losses in expected.items():
            assert found[name] == pytest.approx(losses, rel=1e-4), name


class Choice(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.other = nn.Linear(6, 3), nn.Linear(6, 3)

    def forward(self, x, one):
        return (self.one if one else self.other)(x)


def _used_by_one_rank():
    allowed = [DistributedDataParallelKwargs(find_unused_parameters=True)]
    acc, model, optimizer = prepared(net=Choice, kwargs_handlers=allowed)
    before = acc.get_state_dict(model)
    acc.backward(model(torch.ones(2, 6), acc.is_main_process).sum())
    optimizer.step()
    return before, acc.get_state_dict(model)


def test_parameters_that_only_some_ranks_use():
    (before, after), (_, elsewhere) = run_ranks(2, _used_by_one_rank)
    for name, tensor in after.items():
        assert tensor.equal(elsewhere[name])
        assert not tensor.equal(before[name])


def _gone():
    acc, model, optimizer = prepared()
    steps(acc, model, optimizer, 1)
    if acc.process_index:
        os._exit(3)
    steps(acc, model, optimizer, 1)


def test_a_rank_that_is_gone():
    error = try_ranks(2, _gone)[0].error
    assert "rank 1 is gone" in error
    assert "the forward pass of Net" in error


def _one_rank_alone():
    acc, model, optimizer = prepared()
    steps(acc, model, optimizer, 1)
    if acc.is_main_process:
        model.state_dict()
    steps(acc, model, optimizer, 1)


def test_what_cannot_be_done_is_named():
    assert run_ranks(2, _refusals) == [DistributedType.FSDP] * 2
    outcomes = try_ranks(2, _one_rank_alone)
    assert not any(o.ok for o in outcomes)
    assert "state_dict of Net" in outcomes[0].error
    for arguments, words in [
        ({"fsdp_plugin": FullyShardedDataParallelPlugin(cpu_offload=True)}, "works on the CPU"),
        ({"parallelism_config": ParallelismConfig(dp_replicate_size=2)}, "needs 2 processes or a multiple"),
    ]:
        with pytest.raises(ValueError, match=words):
            fresh_accelerator(**arguments)
    with pytest.raises(ValueError, match="no module of the class 'Blok': did you mean Block"):
        prepared(fsdp_plugin=FullyShardedDataParallelPlugin(transformer_cls_names_to_wrap=["Blok"]))


def _by_variable():
    acc = fresh_accelerator(split_batches=True)
    return type(acc.backend).__name__, acc.backend.plugin.min_num_params, acc.backend.sizes


def test_a_script_that_names_no_engine():
    sections = {
        "fsdp": {"fsdp_version": 2, "fsdp_auto_wrap_policy": "SIZE_BASED_WRAP", "fsdp_min_num_params": 10},
        "parallelism": {"parallelism_config_dp_replicate_size": 2},
    }
    found = run_ranks(2, _by_variable, env={"ACCELIFY_ENGINE": json.dumps(sections)})
    assert found == [("FSDPBackend", 10, (2, 1, 1))] * 2
