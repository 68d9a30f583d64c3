"""Gradients of `torch.autograd.grad` are those of one process: named where a model is changed by them."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import GROUP, NET, findings, named

LOOP = """
for x, y in loader:
    opt.zero_grad()
    loss = F.mse_loss(model(x), y)
"""
ASKED = "    grads = torch.autograd.grad(loss, list(model.parameters()))\n"
EACH = f"{ASKED}    for p, g in zip(model.parameters(), grads):\n        "
BY_HAND = {
    "in place": f"{EACH}p -= 0.1 * g\n",
    "the data": f"{EACH}p.data -= 0.1 * g\n",
    "by a method": f"{EACH}p.data.add_(g, alpha=-0.1)\n",
    "the gradient": f"{EACH}p.grad = g\n    opt.step()\n",
    "a copy of it": f"{EACH}p.grad.copy_(g)\n    opt.step()\n",
}
RIGHT = {
    "averaged": f"""{EACH}dist.all_reduce(g)
        g /= dist.get_world_size()
        p.grad = g
    opt.step()
""",
    "a penalty by the rows": """    x.requires_grad_(True)
    out = model(x)
    g = torch.autograd.grad(out.sum(), x, create_graph=True)[0]
    loss = F.mse_loss(out, y) + (g.norm(2, dim=1) - 1).pow(2).mean()
    loss.backward()
    opt.step()
""",
    "a penalty by the parameters": """    grads = torch.autograd.grad(loss, model.parameters(), create_graph=True)
    loss = loss + sum(g.pow(2).sum() for g in grads)
    loss.backward()
    opt.step()
""",
}


PAST = """
for x, y in loader:
    opt.zero_grad()
    loss = F.mse_loss(model.module.linear(x), y)
    loss.backward()
    for p in model.parameters():
        if p.grad is not None:
            {}
    opt.step()
"""


def test_past_the_wrapper_with_gradients_that_are_put_together_by_hand(tmp_path):
    bare = named(GROUP + NET + PAST.format("p.grad.clamp_(-1, 1)"), tmp_path)
    assert [code for code, _ in bare] == ["ACC705"]
    assert not named(GROUP + NET + PAST.format("dist.all_reduce(p.grad)"), tmp_path)


@pytest.mark.parametrize("rest", BY_HAND.values(), ids=BY_HAND)
def test_steps_by_gradients_of_one_process(rest, tmp_path):
    found = findings(GROUP + NET + LOOP + rest, tmp_path)
    assert [one.code for one in found if one.code != "ACC705"] == ["ACC704"]
    assert "which no wrapper averages over the processes" in found[0].message


@pytest.mark.parametrize("rest", RIGHT.values(), ids=RIGHT)
def test_gradients_of_all_and_penalties(rest, tmp_path):
    assert not named(GROUP + NET + LOOP + rest, tmp_path)
