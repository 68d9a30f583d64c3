"""What every engine must do. A new one adds its line to BACKENDS."""

from importlib.util import find_spec

import pytest
import torch
from torch import nn

from accelify.runtime import DeepSpeedPlugin, FullyShardedDataParallelPlugin, ParallelismConfig
from accelify.runtime.backends.base import Backend
from accelify.runtime.backends.ddp import DDPBackend
from accelify.runtime.backends.deepspeed import DeepSpeedBackend
from accelify.runtime.backends.fsdp import FSDPBackend
from accelify.runtime.backends.single import SingleBackend
from accelify.runtime.backends.tensor_parallel import TensorParallelBackend
from tests.distributed.processes import fresh_accelerator, run_ranks

# class, processes, arguments of the Accelerator
BACKENDS = [
    (SingleBackend, 1, {}),
    (DDPBackend, 2, {}),
    (DDPBackend, 3, {}),
    (FSDPBackend, 1, {"fsdp_plugin": FullyShardedDataParallelPlugin()}),
    (FSDPBackend, 2, {"fsdp_plugin": FullyShardedDataParallelPlugin(min_num_params=1)}),
    (FSDPBackend, 4, {"parallelism_config": ParallelismConfig(dp_replicate_size=2)}),
    (
        TensorParallelBackend,
        2,
        {"parallelism_config": ParallelismConfig(2, tp_plan={"layer": "rowwise_rep"})},
    ),
    (
        TensorParallelBackend,
        4,
        {"parallelism_config": ParallelismConfig(2, tp_plan={"layer": "rowwise_rep"})},
    ),
    *(
        pytest.param(
            DeepSpeedBackend,
            ranks,
            {"deepspeed_plugin": DeepSpeedPlugin(zero_stage=stage)},
            marks=pytest.mark.skipif(find_spec("deepspeed") is None, reason="deepspeed is not installed"),
            id=f"DeepSpeedBackend-{ranks}-stage{stage}",
        )
        for stage in (0, 1, 2, 3)
        for ranks in (1, 2)
    ),
]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 1, bias=False)
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x):
        self.seen += 1
        return self.twice(self.layer(x))

    def twice(self, x):
        return 2 * x


def model_and_weight(acc):
    model = acc.backend.wrap(acc.backend.place(Net()))
    acc.backend.adopt(torch.optim.SGD(model.parameters(), lr=0.1))
    return model, acc.backend.unwrap(model).layer.weight


def whole(tensor):
    """A tensor that may be divided between ranks, put together."""
    if hasattr(tensor, "ds_id"):
        import deepspeed

        with deepspeed.zero.GatheredParameters([tensor]):
            return tensor.detach().clone()
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def gradient(acc, weight):
    """A complete gradient, put together."""
    if hasattr(weight, "_hp_mapping") or hasattr(weight, "ds_id") or weight.grad is None:
        from deepspeed.utils import safe_get_full_grad

        acc.backend.clip_grad_norm([weight], float("inf"), 2.0)
        return safe_get_full_grad(weight)
    # DeepSpeed averages what waits when it is asked for.
    acc.backend.clip_grad_norm([weight], float("inf"), 2.0)
    return whole(weight.grad)


def own_input(acc):
    return torch.full((4, 2), float(acc.process.data_rank + 1), device=acc.device)


def mean_input(acc):
    return (acc.process.data_ranks + 1) / 2


def places_and_unwraps(acc):
    given = Net()
    placed = acc.backend.place(given)
    assert next(placed.parameters()).device.type == acc.device.type
    wrapped = acc.backend.wrap(placed)
    assert acc.backend.unwrap(wrapped) is given
    assert isinstance(wrapped, nn.Module)
    assert wrapped.twice(3) == 6


def weights_begin_equal(acc):
    torch.manual_seed(acc.process_index)
    _, weight = model_and_weight(acc)
    parts = acc.gather(whole(weight.detach()))
    assert all(torch.equal(parts[:1], p[None]) for p in parts)


def backward_averages(acc):
    for signs in ((1,), (1, -1)):
        model, weight = model_and_weight(acc)
        for sign in signs:
            acc.backend.backward(sign * model(own_input(acc)).mean(), sync=True)
        expected = 2 * mean_input(acc) * sum(signs)
        assert gradient(acc, weight).flatten().tolist() == pytest.approx([expected] * 2, abs=1e-6)


def windows_average_at_their_end(acc):
    model, weight = model_and_weight(acc)
    with acc.backend.no_sync([model]):
        acc.backend.backward(model(own_input(acc)).mean(), sync=False)
    # Sharding engines keep what waits elsewhere, or have averaged it already.
    so_far = None if weight.grad is None else whole(weight.grad).flatten().tolist()
    assert so_far in (None, [2.0 * (acc.process.data_rank + 1)] * 2, [2 * mean_input(acc)] * 2)
    acc.backend.backward(model(own_input(acc)).mean(), sync=True)
    assert gradient(acc, weight).flatten().tolist() == pytest.approx([4 * mean_input(acc)] * 2)


def windows_can_be_scaled_and_restored(acc):
    model, weight = model_and_weight(acc)
    with acc.backend.no_sync([model]):
        acc.backend.backward(model(own_input(acc)).mean(), sync=False)
    acc.backend.scale_gradients([weight], 3.0)
    try:
        saved = acc.backend.window_gradients([weight])
    except ValueError as error:
        # What cannot be written down can be scaled.
        assert "hold no gradients" in str(error)
        acc.backend.backward(model(own_input(acc)).mean(), sync=True)
        assert gradient(acc, weight).flatten().tolist() == pytest.approx([8 * mean_input(acc)] * 2)
        return
    other, its_weight = model_and_weight(acc)
    acc.backend.restore_window_gradients([its_weight], saved)
    acc.backend.backward(other(own_input(acc)).mean(), sync=True)
    assert whole(its_weight.grad).flatten().tolist() == pytest.approx([8 * mean_input(acc)] * 2)


def clips_what_it_averaged(acc):
    model, weight = model_and_weight(acc)
    acc.backend.backward(model(own_input(acc)).mean(), sync=True)
    norm = acc.backend.clip_grad_norm(model.parameters(), 1.0, 2.0)
    assert float(norm) == pytest.approx(2 * mean_input(acc) * 2**0.5)
    assert gradient(acc, weight).norm().item() == pytest.approx(1.0, rel=1e-4)
    acc.backend.clip_grad_value(model.parameters(), 0.1)
    assert gradient(acc, weight).abs().max().item() == pytest.approx(0.1)


def state_has_the_scripts_names(acc):
    model, weight = model_and_weight(acc)
    state = acc.backend.state_dict(model)
    assert sorted(state) == ["layer.weight", "seen"]
    assert torch.equal(state["layer.weight"].cpu(), whole(weight).cpu())


def closures_agree(acc):
    acc.backend.last_scale = 1.0
    try:
        closure = acc.backend.shared_closure(
            lambda: torch.tensor(float(acc.process.data_rank + 1), requires_grad=True)
        )
    except ValueError as error:
        assert "take no closure" in str(error)
        return
    assert closure().item() == mean_input(acc)


def frozen_models_are_left_alone(acc):
    model = Net().requires_grad_(False)
    assert acc.backend.wrap(model) is model
    assert acc.backend.wrap(other := Net(), evaluation=True) is other


CONTRACT = [
    places_and_unwraps,
    weights_begin_equal,
    backward_averages,
    windows_average_at_their_end,
    windows_can_be_scaled_and_restored,
    clips_what_it_averaged,
    state_has_the_scripts_names,
    closures_agree,
    frozen_models_are_left_alone,
]


def _keep_contract(kind, arguments):
    for check in CONTRACT:
        acc = fresh_accelerator(**arguments)
        assert type(acc.backend) is kind
        assert isinstance(acc.backend, Backend)
        try:
            check(acc)
        except BaseException as error:
            error.add_note(f"in {check.__name__}")
            raise


@pytest.mark.distributed
@pytest.mark.parametrize(("kind", "ranks", "arguments"), BACKENDS)
def test_contract(kind, ranks, arguments):
    if ranks == 1 and not arguments:
        _keep_contract(kind, arguments)
    else:
        # DeepSpeed compiles an operation the first time it runs on a machine.
        timeout = 580 if kind is DeepSpeedBackend else 120
        run_ranks(ranks, _keep_contract, kind, arguments, timeout=timeout)
