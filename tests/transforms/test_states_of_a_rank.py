"""Objects made of a model that load their state before prepare, to where the model is by then."""

from __future__ import annotations

import pytest

from tests.transforms.support import convert, place_of

SETUP = """
class Stepper:
    def __init__(self, weights):
        self.inner = torch.optim.Adam(weights, lr=0.1)

    def step(self):
        self.inner.step()

    def zero_grad(self):
        self.inner.zero_grad()

    def load_state_dict(self, state):
        self.inner.load_state_dict(state)
"""
BUILD = """
model = nn.Linear(4, 2)
{made}
{before}
if os.path.exists("a.pt"):
    state = torch.load("a.pt")
    {load}
{after}
"""
STEPPER = "optimizer = Stepper(model.parameters())"
MOVE = "model.cuda()"


def built(made: str, load: str, before: str = MOVE, after: str = "") -> str:
    build = BUILD.format(made=made, before=before, load=load, after=after)
    conversion = convert(setup=SETUP, build=build, batch="x, y = x.cuda(), y.cuda()")
    return place_of(conversion.new_text, "build")


def test_a_model_whose_move_stood_before_it_is_moved_there() -> None:
    assert "model.to(accelerator.device)" in built(STEPPER, "optimizer.load_state_dict(state)")


@pytest.mark.parametrize(
    ("made", "load", "before", "after"),
    [
        # Of torch's own optimizers prepare takes the state along, and a model loads to where it is.
        ("optimizer = torch.optim.Adam(model.parameters())", "optimizer.load_state_dict(state)", MOVE, ""),
        (STEPPER, "model.load_state_dict(state)", MOVE, ""),
        # It was on the host in the original, too, when the state came.
        (STEPPER, "optimizer.load_state_dict(state)", "", MOVE),
    ],
)
def test_others_are_placed_by_prepare(made: str, load: str, before: str, after: str) -> None:
    text = built(made, load, before, after)
    assert "model.to(" not in text
    assert "cuda" not in text
