"""How long a list is, whose elements each process draws by itself."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import findings

PROGRAM = """
import numpy as np
import random

class Rows(torch.utils.data.Dataset):
    def __init__(self, names):
        self.names = names
    def __len__(self):
        return len(self.names)
    def __getitem__(self, index):
        return self.names[index]

dist.init_process_group("gloo")
names = open("names.txt").read().split()
{made}
loader = DataLoader(Rows(made), batch_size=4, sampler=DistributedSampler(Rows(made)))
if dist.get_rank() == 0:
    print(len(loader.dataset))
"""
ALIKE = {
    "one of each": "made = [name + str(np.random.choice(9)) for name in names]",
    "as many numbers": "made = [random.random() for _ in range(10)]",
    "of each pair": "made = [a + str(random.random()) + b for a in names for b in names]",
    "all of them": "made = [name for name in names if name]",
}
OTHERS = {
    "some of each": "made = [name for name in names if random.random() > 0.5]",
    "as many as are drawn": "made = [random.random() for _ in range(random.randint(1, 9))]",
    "one more": "made = [name + str(random.random()) for name in names]\nif random.random() > 0.5:\n    made += [0]",
}


def shown(made, tmp_path):
    return [one.code for one in findings(PROGRAM.format(made=made), tmp_path) if one.code == "ACC701"]


@pytest.mark.parametrize("made", ALIKE.values(), ids=ALIKE)
def test_as_many_elements_on_all_processes(made, tmp_path):
    assert shown(made, tmp_path) == []


@pytest.mark.parametrize("made", OTHERS.values(), ids=OTHERS)
def test_other_numbers_of_elements(made, tmp_path):
    assert shown(made, tmp_path) == ["ACC701"]
