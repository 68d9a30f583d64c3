"""Parameters that a forward sets."""

from __future__ import annotations

import pytest

from tests.transforms.support import codes, convert

NET = """
class Net(nn.Linear):
    def __init__(self):
        super().__init__(4, 2)
        self.shift = nn.Parameter(torch.zeros(4))
        self.register_parameter("late", nn.Parameter(torch.zeros(4)))
        self.register_buffer("mean", torch.zeros(4))
        self.ready = False

    def prepare(self, x):
        {line}

    def forward(self, x):
        if not self.ready:
            self.prepare(x)
        return super().forward(x + self.shift)
"""


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("self.shift.data.copy_(x.mean(0))", True),
        ("self.shift = nn.Parameter(x.mean(0))", True),
        ("self.register_parameter('late', nn.Parameter(x.mean(0)))", True),
        ("self.shift.data = x.mean(0)", True),
        ("self.bias.data = x.mean(0)[:2]", False),
        ("self.late.data = x.mean(0)", True),
        ("self.mean.copy_(x.mean(0))", False),
        ("self.shift.data = torch.clamp(self.shift.data, -1, max=1.0)", False),
        ("self.shift.data.copy_(self.shift.clamp(-1.0, 1.0).detach())", False),
        ("self.shift.data = torch.clamp(self.shift.data, max=x.max())", True),
        ("self.shift.data = torch.clamp(self.shift.data + x.mean(0), -1.0, 1.0)", True),
        ("x.copy_(self.shift)", False),
    ],
)
def test_parameters_that_a_forward_sets(line: str, named: bool) -> None:
    build = "model = Net()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
    assert ("ACC422" in codes(convert(setup=NET.format(line=line), build=build))) == named


@pytest.mark.parametrize(
    ("first", "named"),
    [
        ("with torch.no_grad():\n    model(torch.zeros(2, 4))", False),
        ("if len(data):\n    x, _ = next(iter(loader))\n    model(x)", False),
        ("other = nn.Linear(4, 2)\nother(torch.zeros(2, 4))", True),
    ],
)
def test_a_model_that_is_run_before_prepare_has_set_them(first: str, named: bool) -> None:
    build = f"model = Net()\n{first}\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
    text = NET.format(line="self.shift.data.copy_(x.mean(0)); self.ready = True")
    conversion = convert(setup=text, build=build)
    assert ("ACC422" in codes(conversion)) == named


@pytest.mark.parametrize(
    ("lines", "updated"),
    [
        ("self.shift = nn.Parameter(self.shift * 0.9 + 0.1 * x.mean(0))", "self.shift"),
        (
            "self.mean = self.mean * 0.9 + 0.1 * x.mean(0); self.shift = nn.Parameter(-self.mean)",
            "self.mean",
        ),
        (
            "self.mean = self.mean * 0.9 + x.sum(0); self.shift = nn.Parameter(self.shift * 0.9 + x.mean(0)); "
            "self.ready = self.ready + 0",
            "self.shift` and `self.mean",
        ),
        (
            "self.shift.data.copy_(self.shift * 0.9 + x.mean(0)); self.shift = nn.Parameter(self.shift)",
            "self.shift",
        ),
        ("self.shift = nn.Parameter(-x.mean(0) * self.weight[0])", None),
    ],
)
def test_parameters_that_every_forward_carries_on(lines: str, updated: str | None) -> None:
    build = "model = Net()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
    conversion = convert(setup=NET.format(line=lines), build=build)
    (said,) = [f.message for f in conversion.remaining if f.code == "ACC422"]
    assert ("run one batch through the model before prepare" in said) is (updated is None)
    assert (f"updates `{updated}` in every forward" in said) is (updated is not None)


ROWS = """
class Net(nn.Module):
    def __init__(self, bound=None):
        super().__init__()
        self.rows = {rows}
        self.out = nn.Linear(4, 2)

    def forward(self, x):
        return self.out(self.rows(x.long()).mean(1))
"""


@pytest.mark.parametrize(
    ("rows", "made", "said"),
    [
        ("nn.Embedding(9, 4, max_norm=1.0)", "Net()", "`rows` scales by max_norm"),
        ("nn.Embedding(9, 4, None, 1.0)", "Net()", "`rows` scales by max_norm"),
        ("nn.EmbeddingBag(9, 4, 1.0)", "Net()", "`rows` scales by max_norm"),
        ("nn.Embedding(9, 4, max_norm=bound)", "Net(bound=2)", "where `bound` is given"),
        ("nn.Embedding(9, 4, max_norm=bound)", "Net()", ""),
        ("nn.Embedding(9, 4, max_norm=None)", "Net()", ""),
        ("nn.Embedding(9, 4, 0)", "Net()", ""),
    ],
)
def test_rows_that_a_forward_scales_in_place(rows: str, made: str, said: str) -> None:
    build = f"model = {made}\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
    conversion = convert(setup=ROWS.format(rows=rows), build=build)
    found = [f.message for f in conversion.remaining if f.code == "ACC422"]
    assert len(found) == bool(said)
    assert all(said in message and "gather_for_metrics(indices)" in message for message in found)


@pytest.mark.parametrize(
    ("again", "said"),
    [
        ("torch.optim.swa_utils.update_bn(loader, model)", True),
        ("optimizer.bn_update(loader, model)", True),
        ("torch.optim.swa_utils.update_bn([x], model)", False),
    ],
)
def test_statistics_that_are_made_anew_over_a_share(again: str, said: bool) -> None:
    conversion = convert(end=again)
    found = [f.message for f in conversion.remaining if f.code == "ACC422"]
    assert bool(found) is said
    assert all("from one process's share of `loader`" in message for message in found)
