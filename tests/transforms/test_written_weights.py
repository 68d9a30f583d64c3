"""Weights that a training loop writes by what a process makes of its own batch."""

from __future__ import annotations

import pytest

from tests.transforms.support import codes, convert

BUILD = """
first = nn.Linear(4, 6)
model = nn.Sequential(first, nn.ReLU(), nn.Linear(6, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
outputs = {}
rate = 0.1
"""
HOOK = """
def keep(module, given, made):
    outputs["h"] = made

first.register_forward_hook(keep)
"""
LAMBDA = "first.register_forward_hook(lambda m, i, o: outputs.update(h=o))"


def _is_named(update: str, hook: str = "") -> bool:
    conversion = convert(build=BUILD + hook, update=f"optimizer.step()\n{update}")
    assert ("# TODO(accelify ACC424)" in conversion.new_text) == ("ACC424" in codes(conversion))
    return "ACC424" in codes(conversion)


@pytest.mark.parametrize("hook", [HOOK, LAMBDA])
def test_layers_that_hooks_choose(hook: str) -> None:
    assert _is_named("worst = outputs['h'].sum(0).argmin().item()\nfirst.weight.data[worst] = 0", hook)
    assert not _is_named(
        "worst = first.weight.abs().sum(1).argmin().item()\nfirst.weight.data[worst] = 0", hook
    )


@pytest.mark.parametrize(
    ("update", "named"),
    [
        ("first.bias.data.copy_(model(x).mean())", True),
        ("with torch.no_grad():\n    model[0].weight[y] = 0", True),
        ("model[0].weight.data *= loss.item()", True),
        ("first.weight.data.clamp_(-rate, rate)", False),
        ("first.weight.data -= rate * first.weight.grad", False),
        ("first.weight.grad.data.mul_(loss.item())", False),
        ("first.last = x\nweight = x\nweight.data[0] = y[0]", False),
        (
            "total = accelerator.reduce(model(x).sum(0))\nworst = total.argmin().item()\n"
            "first.weight.data[worst] = 0",
            False,
        ),
    ],
)
def test_what_decides_a_weight_that_is_written(update: str, named: bool) -> None:
    assert _is_named(update) == named


PRUNER = """
class Pruner:
    def __init__(self, model):
        self.model = model
        self.kept = {{}}

        def hook(module, given, made):
            self.kept[module] = made

        for layer in model.children():
            layer.register_forward_hook(hook)

    def prune(self):
        scores = [(layer, made.abs().mean()) for layer, made in self.kept.items()]
        {score}
        self.replace(scores[0][0])

    def replace(self, layer):
        {write}
"""


@pytest.mark.parametrize(
    ("write", "score", "named"),
    [
        ("layer.weight.data.zero_()", "pass", True),
        ("self.model._modules['0'] = nn.Linear(4, 6)", "pass", True),
        ("layer.weight.grad.data.zero_()", "pass", False),
        ("print(layer.weight)", "pass", False),
        ("layer.weight.data.zero_()", "dist.all_reduce(scores)", False),
    ],
)
def test_classes_whose_hooks_choose_what_they_replace(write: str, score: str, named: bool) -> None:
    build = BUILD + "pruner = Pruner(model)"
    conversion = convert(setup=PRUNER.format(write=write, score=score), build=build, end="pruner.prune()")
    assert ("ACC424" in codes(conversion)) == named
