"""Gradients by hand, and hooks on parameters."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.convert import convert_paths
from accelify.proving import prove
from tests.transforms.support import check_transformed, clean, codes, convert, frame, place_of


@pytest.mark.parametrize(
    ("hook", "named"),
    [
        ("lambda g: torch.clamp(g, -1, 1)", True),
        ("lambda g: g / g.norm()", True),
        ("clip", True),
        ("lambda g: g * 2", False),
        ("lambda g: print(g)", False),
    ],
)
@pytest.mark.parametrize("loop", ["p in model.parameters()", "n, p in model.named_parameters()"])
def test_a_hook_that_is_not_linear_is_named(hook: str, named: bool, loop: str) -> None:
    setup = "def clip(g):\n    return g.clip(-1, 1)\n"
    conversion = convert(setup=setup, ready=f"for {loop}:\n    p.register_hook({hook})")
    assert ("ACC418" in codes(conversion)) == named


def test_backward_in_a_module_that_stays_is_named(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        "from torch import nn\n\n\nclass Net(nn.Linear):\n    def learn(self, x):\n        self(x).sum().backward()\n"
    )
    (tmp_path / "train.py").write_text(
        frame(
            imports="from net import Net",
            build="model = Net(4, 2)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)",
            update="model.learn(x)\noptimizer.step()",
        )
    )
    (conversion,) = convert_paths([tmp_path / "train.py"])
    prove([conversion], conversion)
    assert "ACC705" in codes(conversion)
    assert "accelerator.unwrap_model(model).learn(x)\n" in conversion.new_text


CENTRES = """
import torch
from torch import nn


class Centres(nn.Module):
    def __init__(self):
        super().__init__()
        self.centres = nn.Parameter(torch.zeros(2))

    def forward(self, out):
        return (out - self.centres).pow(2).mean()


class Losses:
    def __init__(self):
        self.loss = Centres()
        self.optimizer = torch.optim.SGD(self.loss.parameters(), lr=0.5)

    def __call__(self, out):
        return self.loss(out)

    def end(self):
        self.optimizer.step()


def end(optimizer):
    optimizer.step()
"""


@pytest.mark.parametrize(("update", "named"), [("own.end()", True), ("end(optimizer)", False)])
def test_an_optimizer_that_an_object_of_a_module_keeps_is_named(
    tmp_path: Path, update: str, named: bool
) -> None:
    (tmp_path / "centres.py").write_text(CENTRES)
    (tmp_path / "train.py").write_text(
        frame(
            imports="from centres import Losses, end",
            ready="own = Losses()",
            loss="loss = F.cross_entropy(model(x), y) + own(model(x))",
            update=f"{update}\noptimizer.step()",
        )
    )
    (conversion,) = convert_paths([tmp_path / "train.py"])
    prove([conversion], conversion)
    assert ("ACC705" in codes(conversion)) is named


def test_a_gradient_that_another_module_sets_is_named(tmp_path: Path) -> None:
    (tmp_path / "search.py").write_text(
        "import torch\n\n\ndef unroll(net, x):\n    net.bias.grad = torch.autograd.grad(net(x).sum(), net.bias)[0]\n"
    )
    (tmp_path / "train.py").write_text(
        frame(imports="from search import unroll", update="unroll(model, x)\noptimizer.step()")
    )
    (conversion,) = convert_paths([tmp_path / "train.py"])
    prove([conversion], conversion)
    assert "ACC704" in codes(conversion)


BARE = """
weight = torch.randn(4, 2)
weight.requires_grad_()
bias = torch.zeros(2, requires_grad=True)
for x, y in loader:
    loss = F.cross_entropy(x @ weight + bias, y)
    loss.backward()
    with torch.no_grad():
        weight -= weight.grad * 0.1
        bias -= bias.grad * 0.1
        weight.grad.zero_()
        bias.grad.zero_()
"""


def test_tensors_of_no_model_are_updated_with_everybody_s_gradients() -> None:
    after = BARE.replace(
        "    loss.backward()\n    with",
        "    accelerator.backward(loss)\n"
        '    weight.grad = accelerator.reduce(weight.grad, reduction="mean")\n'
        '    bias.grad = accelerator.reduce(bias.grad, reduction="mean")\n'
        "    with",
    )
    check_transformed("ready", BARE, after)
    listed = """
    tensors = [torch.zeros(4, 2, requires_grad=True), torch.zeros(2, requires_grad=True)]
    for x, y in loader:
        loss = F.cross_entropy(x @ tensors[0] + tensors[1], y)
        loss.backward()
        for p in tensors:
            p.data.sub_(0.1 * p.grad)
            p.grad.zero_()
    """
    after = listed.replace("loss.backward()", "accelerator.backward(loss)").replace(
        "            p.data",
        '            p.grad = accelerator.reduce(p.grad, reduction="mean")\n            p.data',
    )
    check_transformed("ready", listed, after)


def test_those_that_a_function_updates() -> None:
    setup = """
    def descend(tensors, lr):
        with torch.no_grad():
            for p in tensors:
                p -= lr * p.grad
                p.grad.zero_()
    """
    ready = """
    weight = torch.zeros(4, 2, requires_grad=True)
    for x, y in loader:
        loss = F.cross_entropy(x @ weight, y)
        loss.backward()
        descend([weight], 0.1)
    """
    after = setup.replace(
        "                p -=",
        '                p.grad = accelerator.reduce(p.grad, reduction="mean")\n                p -=',
    )
    trained = ready.replace("loss.backward()", "accelerator.backward(loss)")
    conversion = check_transformed("setup", setup, after, ready=ready)
    assert place_of(conversion.new_text, "ready") == clean(trained)


@pytest.mark.parametrize(
    "update",
    [
        "weight.grad = None",  # never updated
        "weight = torch.zeros(4, 2, requires_grad=True)\nprint(weight.grad)",
        "for weight in model.parameters():\n    weight.data -= 0.1 * weight.grad",
    ],
)
def test_other_tensors_keep_their_own(update: str) -> None:
    setup = "weight = torch.zeros(4, 2, requires_grad=True)"
    assert "ACC416" not in codes(convert(setup=setup, update=f"{update}\noptimizer.step()"))


def test_noise_of_each_batch_is_its_own_and_an_optimizer_s_tensors_are_averaged_already() -> None:
    batch = "noise = torch.zeros(4, requires_grad=True)"
    loss = "loss = F.cross_entropy(model(x + noise), y)"
    update = "noise.data += 0.1 * noise.grad.sign()\noptimizer.step()"
    assert "ACC416" not in codes(convert(batch=batch, loss=loss, update=update))
    build = (
        "model = nn.Linear(4, 2)\nscale = torch.ones(1, requires_grad=True)\n"
        "optimizer = torch.optim.SGD([*model.parameters(), scale], lr=0.1)"
    )
    update = "scale.data -= 0.1 * scale.grad\noptimizer.step()"
    assert "ACC416" not in codes(convert(build=build, loss="loss = (scale * model(x)).mean()", update=update))


SECOND = """
def difference(vector, x, y):
    for p, v in zip(model.parameters(), vector):
        p.data.add_(0.01 * v)
    grads = torch.autograd.grad(F.cross_entropy(model(x), y), model.bias)
    for p, v in zip(model.parameters(), vector):
        p.data.sub_(0.01 * v)
    return grads
"""
OTHER = "other = nn.Linear(4, 2)\n"


@pytest.mark.parametrize(
    ("vector", "named"),
    [
        ("torch.autograd.grad(F.cross_entropy(other(x), y), other.parameters())", True),
        ("[v.grad.data for v in model.parameters()]", False),
        ("[torch.ones_like(v) for v in model.parameters()]", False),
    ],
)
def test_weights_that_are_shifted_by_gradients_of_a_share_are_named(vector: str, named: bool) -> None:
    batch = f"vector = {vector}\ndifference(vector, x, y)"
    conversion = convert(setup=SECOND, ready=OTHER, batch=batch)
    prove([conversion], conversion)
    assert ("ACC704" in codes(conversion)) is named


@pytest.mark.parametrize(
    "line",
    [
        "p.grad = g * 2",
        "p.grad += g / 2",
        "p.grad = p.grad + g",
        "p.grad.add_(g)",
        "p.grad.data.copy_(g.data)",
    ],
)
def test_a_gradient_that_is_worked_out_by_hand_is_named(line: str) -> None:
    gradients = "gs = torch.autograd.grad(model(x).sum(), list(model.parameters()))"
    each = f"for p, g in zip(model.parameters(), gs):\n    {line}"
    conversion = convert(backward=f"{gradients}\nloss.backward()\n{each}")
    prove([conversion], conversion)
    assert {"ACC704", "ACC705"} & codes(conversion)
