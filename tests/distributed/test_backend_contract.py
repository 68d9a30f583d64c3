"""What every engine must do. A new one adds its line to BACKENDS."""

import pytest
import torch
from torch import nn

from accelify.runtime.backends.base import Backend
from accelify.runtime.backends.ddp import DDPBackend
from accelify.runtime.backends.single import SingleBackend
from tests.distributed.processes import fresh_accelerator, run_ranks

# class, processes, arguments of the Accelerator
BACKENDS = [
    (SingleBackend, 1, {}),
    (DDPBackend, 2, {}),
    (DDPBackend, 3, {}),
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
    return model, acc.backend.unwrap(model).layer.weight


def own_input(acc):
    return torch.full((4, 2), float(acc.process_index + 1))


def mean_input(acc):
    return sum(range(1, acc.num_processes + 1)) / acc.num_processes


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
    parts = acc.gather(weight.detach())
    assert all(torch.equal(parts[:1], p[None]) for p in parts)


def backward_averages(acc):
    model, weight = model_and_weight(acc)
    for sign in (1, -1):
        acc.backend.backward(sign * model(own_input(acc)).mean(), sync=True)
        expected = 2 * mean_input(acc) if sign == 1 else 0.0
        assert weight.grad.flatten().tolist() == pytest.approx([expected] * 2, abs=1e-6)


def windows_average_at_their_end(acc):
    model, weight = model_and_weight(acc)
    with acc.backend.no_sync([model]):
        acc.backend.backward(model(own_input(acc)).mean(), sync=False)
    assert weight.grad.flatten().tolist() == [2.0 * (acc.process_index + 1)] * 2
    acc.backend.backward(model(own_input(acc)).mean(), sync=True)
    assert weight.grad.flatten().tolist() == pytest.approx([4 * mean_input(acc)] * 2)


def clips_what_it_averaged(acc):
    model, weight = model_and_weight(acc)
    acc.backend.backward(model(own_input(acc)).mean(), sync=True)
    norm = acc.backend.clip_grad_norm(model.parameters(), 1.0, 2.0)
    assert float(norm) == pytest.approx(2 * mean_input(acc) * 2**0.5)
    assert weight.grad.norm().item() == pytest.approx(1.0, rel=1e-4)
    acc.backend.clip_grad_value(model.parameters(), 0.1)
    assert weight.grad.abs().max().item() == pytest.approx(0.1)


def state_has_the_scripts_names(acc):
    model, weight = model_and_weight(acc)
    state = acc.backend.state_dict(model)
    assert sorted(state) == ["layer.weight", "seen"]
    assert torch.equal(state["layer.weight"], weight)


def closures_agree(acc):
    acc.backend.last_scale = 1.0
    closure = acc.backend.shared_closure(
        lambda: torch.tensor(float(acc.process_index + 1), requires_grad=True)
    )
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
    if ranks == 1:
        _keep_contract(kind, arguments)
    else:
        run_ranks(ranks, _keep_contract, kind, arguments)
