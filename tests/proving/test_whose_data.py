"""Figures of what the rank chooses: they say not which process they are of."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import named

BY_RANK = """
dist.init_process_group("gloo")


class Share(Sampler):
    def __init__(self):
        self.rank = dist.get_rank()

    def __iter__(self):
        return iter(range(64)[self.rank * 8 : (self.rank + 1) * 8])


model = DDP(torch.nn.Linear(4, 1))
mine = [f"part{n}" for n in range(8)][dist.get_rank()]
for x, y in DataLoader(data, batch_size=4, sampler=Share()):
    loss = F.mse_loss(model(x), y)
    loss.backward()
parts = [torch.zeros(1) for _ in range(dist.get_world_size())]
dist.all_gather(parts, loss.detach().view(1))
print({})
"""


@pytest.mark.parametrize(
    ("shown", "is_of_one"),
    [
        ("torch.cat(parts)", False),
        ("dist.get_rank(), torch.cat(parts)", True),
        ("mine", True),
    ],
)
def test_a_figure_says_not_whose_it_is_by_the_rank_that_chose_the_data(shown, is_of_one, tmp_path):
    found = named(BY_RANK.replace("{}", shown), tmp_path)
    assert ("ACC702" in {code for code, _ in found}) is not is_of_one
