"""Weights that a wrapped model loads: with the names of the wrapper, or without."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import GROUP, NET, named

BARE = "model.module.state_dict()"


def program(saved, into, loaded):
    return (
        GROUP
        + NET
        + f"""
if os.path.exists("state.pt"):
    state = torch.load("state.pt", map_location="cpu")
    {into}.load_state_dict({loaded})
for x, y in loader:
    opt.zero_grad()
    F.mse_loss(model(x), y).backward()
    opt.step()
if dist.get_rank() == 0:
    torch.save({saved}, "state.pt")
dist.barrier()
"""
    )


def lines(text, tmp_path):
    return [line for code, line in named(text, tmp_path) if code == "ACC715"]


@pytest.mark.parametrize(
    ("saved", "loaded"), [(BARE, "state"), (f'{{"net": {BARE}, "step": 3}}', 'state["net"]')]
)
def test_weights_of_the_model_loaded_into_its_wrapper(saved, loaded, tmp_path):
    found = lines(program(saved, "model", loaded), tmp_path)
    assert found == [f"model.load_state_dict({loaded})"]


@pytest.mark.parametrize(
    ("saved", "into", "loaded"),
    [
        (BARE, "model.module", "state"),
        (BARE, "model", '{f"module.{name}": one for name, one in state.items()}'),
        (f'{{"net": {BARE}, "all": model.state_dict()}}', "model", 'state["all"]'),
        ("model.state_dict()", "model", "state"),
    ],
)
def test_weights_with_the_names_that_they_are_loaded_by(saved, into, loaded, tmp_path):
    assert lines(program(saved, into, loaded), tmp_path) == []


def test_weights_of_one_model_for_another_in_its_wrapper(tmp_path):
    assert lines(GROUP + NET + "model.load_state_dict(Net().state_dict())\n", tmp_path) == [
        "model.load_state_dict(Net().state_dict())"
    ]


SWEEP = """
dist.init_process_group("nccl")
rank = dist.get_rank()
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=False))
for width in (2, 4):
    model = DDP(torch.nn.Linear(4, width))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
{again}        for x, y in loader:
            opt.zero_grad()
            F.mse_loss(model(x), y).backward()
            opt.step()
    if rank == 0:
        model.module.load_state_dict(torch.load("best.pt", map_location="cpu"))
    dist.barrier()
"""


@pytest.mark.parametrize("is_last", [True, False])
def test_weights_that_are_put_back_for_a_test_at_the_end(is_last, tmp_path):
    """Each round of the outer loop trains another model, and nobody trains on with this one."""
    line = "model.module.load_state_dict(torch.load('epoch.pt', map_location='cpu'))"
    again = f"        if rank == 0 and epoch > 0:\n            {line}\n"
    assert named(SWEEP.format(again="" if is_last else again), tmp_path) == [("ACC704", line)] * (not is_last)
