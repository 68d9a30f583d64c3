"""torch.compile through the dynamo options: the same numbers, with every engine that trains on the CPU."""

import json

import pytest
import torch
from torch import nn

from accelify.runtime import DistributedDataParallelKwargs, FullyShardedDataParallelPlugin, TorchDynamoPlugin
from tests.distributed.processes import fresh_accelerator, run_ranks

ENGINES = {
    "DDP": {},
    "FSDP": {"fsdp_plugin": FullyShardedDataParallelPlugin(transformer_cls_names_to_wrap="Block")},
}


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 6)

    def forward(self, x):
        return x + self.inner(x).tanh()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def _train(plugin, arguments):
    """Losses over the whole batch, and the weights at the end."""
    torch.manual_seed(0)
    acc = fresh_accelerator(dynamo_plugin=plugin, gradient_accumulation_steps=2, **arguments)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    model, optimizer = acc.prepare(model, optimizer)
    generator = torch.Generator().manual_seed(1)
    losses = []
    for _ in range(4):
        x = torch.randn(8, 6, generator=generator).chunk(acc.num_processes)[acc.process_index]
        with acc.accumulate(model):
            loss = model(x).square().mean()
            acc.backward(loss)
            acc.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        losses.append(acc.reduce(loss.detach(), "mean").item())
    assert type(acc.unwrap_model(model)).__name__.endswith("Net")
    state = acc.get_state_dict(model)
    Net().load_state_dict(state)
    return losses, state


def _compiled(plugins, arguments):
    found = []
    for plugin in plugins:
        torch._dynamo.reset()
        seen = torch._dynamo.utils.counters["stats"]["unique_graphs"]
        result = _train(plugin, arguments)
        found.append((result, torch._dynamo.utils.counters["stats"]["unique_graphs"] - seen))
    return found


def check(result, expected):
    assert result[0] == pytest.approx(expected[0], rel=1e-5)
    torch.testing.assert_close(result[1], expected[1], rtol=1e-4, atol=1e-6)


PLUGINS = [
    TorchDynamoPlugin(backend="eager"),
    TorchDynamoPlugin(backend="aot_eager", dynamic=False),
    TorchDynamoPlugin(backend="aot_eager", use_regional_compilation=True),
]


def test_one_process():
    expected = _train(None, {})
    for result, graphs in _compiled(PLUGINS, {}):
        check(result, expected)
        assert graphs
    # Three blocks, compiled together: for an input that needs no gradient, and for one that does.
    assert graphs == 2


@pytest.mark.distributed
@pytest.mark.parametrize("engine", ENGINES)
def test_two_processes(engine):
    expected = _train(None, {})
    for results in run_ranks(2, _compiled, PLUGINS[1:], ENGINES[engine], timeout=240):
        for result, graphs in results:
            check(result, expected)
            assert graphs


def _graphs(way):
    """How many graphs a compiler is given of a model with several buckets, whoever compiles it and when."""
    graphs = []

    def count(graph, _):
        graphs.append(graph)
        return graph.forward

    options = DistributedDataParallelKwargs(bucket_cap_mb=1)
    plugin = TorchDynamoPlugin(backend=count) if way == "by the Accelerator" else None
    accelerator = fresh_accelerator(kwargs_handlers=[options], dynamo_plugin=plugin)
    model = nn.Sequential(*(nn.Linear(600, 600) for _ in range(6)))
    if way == "before":
        model = torch.compile(model, backend=count)
    model = accelerator.prepare(model)
    if way == "after":
        model = torch.compile(model, backend=count)
    accelerator.backward(model(torch.ones(2, 600)).sum())
    (wrapped,) = accelerator.backend.models()
    return len(graphs), wrapped._flat


def _frames(plugin):
    """How many pieces of Python a compiler is given in the first step, and what is left without the wrapper."""
    accelerator = fresh_accelerator(dynamo_plugin=plugin)
    model = accelerator.prepare(Net())
    before = torch._dynamo.utils.counters["frames"]["total"]
    output = model(torch.ones(2, 6))
    found = torch._dynamo.utils.counters["frames"]["total"] - before
    accelerator.backward(output.sum())
    compiled = accelerator.unwrap_model(model, keep_torch_compile=True)
    same = torch.equal(compiled(torch.ones(2, 6)), output)
    return found, same, hasattr(compiled, "_orig_mod"), type(accelerator.unwrap_model(model)).__name__


@pytest.mark.distributed
def test_the_wrapper_is_no_part_of_what_is_compiled():
    for found in run_ranks(2, _frames, TorchDynamoPlugin(backend="eager")):
        assert found == (1, True, True, "Net")


@pytest.mark.distributed
@pytest.mark.parametrize("way", ["before", "after", "by the Accelerator"])
def test_a_compiled_model_is_cut_where_buckets_end(way):
    for graphs, flat in run_ranks(2, _graphs, way):
        assert graphs >= 3
        assert not flat


def test_inductor():
    ((result, graphs),) = _compiled(
        [TorchDynamoPlugin(backend="inductor", use_regional_compilation=True)], {}
    )
    check(result, _train(None, {}))
    assert graphs


def test_options_of_the_configuration_file(monkeypatch):
    section = {
        "dynamo_backend": "AOT_EAGER",
        "dynamo_mode": "default",
        "dynamo_use_fullgraph": "false",
        "dynamo_use_dynamic": True,
        "dynamo_use_regional_compilation": False,
    }
    plugin = TorchDynamoPlugin.from_config(section)
    assert plugin == TorchDynamoPlugin(backend="aot_eager", fullgraph=False, dynamic=True)
    assert plugin.compile_arguments() == {
        "backend": "aot_eager",
        "fullgraph": False,
        "dynamic": True,
        "disable": False,
    }
    with pytest.raises(ValueError, match="no key 'dynamo_backnd': did you mean dynamo_backend"):
        TorchDynamoPlugin.from_config({"dynamo_backnd": "eager"})
    with pytest.raises(ValueError, match="dynamo_use_dynamic must be true or false, not 'maybe'"):
        TorchDynamoPlugin.from_config({"dynamo_use_dynamic": "maybe"})
    monkeypatch.setenv("ACCELIFY_ENGINE", json.dumps({"dynamo": section}))
    assert fresh_accelerator().dynamo == plugin


def test_mps_can_be_chosen(monkeypatch):
    from accelify.runtime.state import _pick_device

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert _pick_device(False, 0).type == "mps"
    assert _pick_device(True, 0).type == "cpu"
