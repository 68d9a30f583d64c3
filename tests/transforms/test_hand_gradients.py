"""Gradients by hand, and hooks on parameters."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.convert import convert_paths
from tests.transforms.support import check_noop, check_transformed, codes, convert, frame


def test_a_gradient_of_autograd_is_averaged() -> None:
    check_transformed(
        "backward",
        "loss.backward()\nmodel.bias.grad = torch.autograd.grad(model(x).sum(), model.bias)[0] * 2",
        "accelerator.backward(loss)\n"
        "accelerator.unwrap_model(model).bias.grad = accelerator.reduce("
        "torch.autograd.grad(model(x).sum(), accelerator.unwrap_model(model).bias)[0] * 2, "
        'reduction="mean")',
    )


@pytest.mark.parametrize(
    "line",
    [
        "p.grad = None",
        "p.grad = p.grad * 2",
        "p.grad = p.grad.clone()",
        "p.data = p.data * 2",
        "q.grad = p.grad",
    ],
)
def test_what_backward_made_stays(line: str) -> None:
    batch = "penalty = torch.autograd.grad(x.sum(), x, allow_unused=True)"
    snippet = f"for p, q in zip(model.parameters(), model.parameters()):\n    {line}\noptimizer.step()"
    check_noop("update", snippet, "ACC416", "ACC418", batch=batch)


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
    assert "ACC420" in codes(conversion)
    assert "accelerator.unwrap_model(model).learn(x)\n" in conversion.new_text


def test_a_gradient_that_another_module_sets_is_named(tmp_path: Path) -> None:
    (tmp_path / "search.py").write_text(
        "import torch\n\n\ndef unroll(net, x):\n    net.bias.grad = torch.autograd.grad(net(x).sum(), net.bias)[0]\n"
    )
    (tmp_path / "train.py").write_text(
        frame(imports="from search import unroll", update="unroll(model, x)\noptimizer.step()")
    )
    (conversion,) = convert_paths([tmp_path / "train.py"])
    assert "ACC416" in codes(conversion)
