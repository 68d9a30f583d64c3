"""Weights that a training loop writes by what a process makes of its own batch."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.convert import convert_project
from accelify.source import Source
from tests.transforms.support import codes, convert, frame

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


STATIC = """
class Look(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inputs, targets, lut, momentum):
        {saved}
        return inputs.mm(lut.t())

    @staticmethod
    def backward(ctx, grad):
        {read}
        {write}
        return grad.mm({lut}), None, None, None


class Loss(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("lut", torch.zeros(2, 2))

    def forward(self, x, y):
        return F.cross_entropy(Look.apply(x, y, self.lut, 0.5), y)


criterion = Loss()
"""
CTX = {
    "saved": "ctx.save_for_backward(inputs, targets)\n        ctx.lut, ctx.momentum = lut, momentum",
    "read": "inputs, targets = ctx.saved_tensors",
    "lut": "ctx.lut",
}
SAVED = {
    "saved": "ctx.save_for_backward(inputs, targets, lut)",
    "read": "inputs, targets, lut = ctx.saved_tensors",
    "lut": "lut",
}
MADE = "made = lut.softmax(1)\n        ctx.save_for_backward(inputs, targets, made)"
OLD = """
class Look(torch.autograd.Function):
    def __init__(self, lut):
        super().__init__()
        self.lut = lut

    def forward(self, inputs, targets):
        self.save_for_backward(inputs, targets)
        return inputs.mm(self.lut.t())

    def backward(self, grad):
        inputs, targets = self.saved_tensors
        for x, y in zip(inputs, targets):
            self.lut[y] = 0.5 * self.lut[y] + 0.5 * x
        return grad.mm(self.lut), None


class Loss(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("lut", torch.zeros(2, 2))

    def forward(self, x, y):
        return F.cross_entropy(Look(self.lut)(x, y), y)


criterion = Loss()
"""


@pytest.mark.parametrize(
    ("table", "named"),
    [
        (OLD, True),
        (STATIC.format(write="ctx.lut[targets] = inputs", **CTX), True),
        (STATIC.format(write="for x, y in zip(inputs, targets):\n            ctx.lut[y] *= x", **CTX), True),
        (STATIC.format(write="ctx.lut.index_copy_(0, targets, inputs)", **CTX), True),
        (STATIC.format(write="lut[targets] = inputs", **SAVED), True),
        (STATIC.format(write="lut[targets] -= 1", **{**SAVED, "saved": MADE}), False),
        # What belongs to the step alone, and what all processes have agreed on.
        (STATIC.format(write="grad[targets] = 0", **CTX), False),
        (STATIC.format(write="ctx.own = grad.clone()\n        ctx.own[targets] = 0", **CTX), False),
        (STATIC.format(write="ctx.lut[gather(targets)] = dist.all_gather(inputs)", **CTX), False),
    ],
)
def test_a_table_that_the_backward_of_a_function_writes(table: str, named: bool) -> None:
    conversion = convert(imports=table, loss="loss = criterion(model(x), y)\n")
    assert ("ACC424" in codes(conversion)) == named
    assert ("# TODO(accelify ACC424)" in conversion.new_text) == named


def test_a_table_that_a_function_of_another_module_writes(tmp_path: Path) -> None:
    head = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"
    (tmp_path / "tables.py").write_text(head + OLD)
    script = frame(imports="from tables import criterion", loss="loss = criterion(model(x), y)\n")
    (tmp_path / "train.py").write_text(script)
    (conversion,) = convert_project(Source.read(tmp_path / "train.py"))
    (finding,) = [f for f in conversion.remaining if f.code == "ACC424"]
    assert "`self.lut` (tables.py, line " in finding.message


def test_a_function_that_the_script_never_comes_to(tmp_path: Path) -> None:
    """Its module has a criterion by the side of the one that is used, and names it only to ask for its class."""
    head = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"
    (tmp_path / "tables.py").write_text(head + OLD.replace("criterion = Loss()\n", ""))
    for made, named in (("nn.CrossEntropyLoss()", False), ("Loss()", True)):
        setup = f"criterion = {made}\nassert isinstance(criterion, (nn.Module, Loss))\n"
        script = frame(imports="from tables import Loss", setup=setup, loss="loss = criterion(model(x), y)\n")
        (tmp_path / "train.py").write_text(script)
        (conversion,) = convert_project(Source.read(tmp_path / "train.py"))
        assert ("ACC424" in codes(conversion)) == named
