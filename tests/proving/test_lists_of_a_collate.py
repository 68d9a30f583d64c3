"""Loops over batches that are lists: with as many elements on all ranks, or as many as what is in their rows says."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import named

TEXT = """
import numpy as np


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 67

    def __getitem__(self, i):
        return torch.ones(i + 1, 4)

    def collate(self, rows):
        {body}


dist.init_process_group("gloo")
rows = Rows()
sampler = DistributedSampler(rows)
loader = DataLoader(rows, batch_size=8, sampler=sampler, collate_fn=rows.collate)
model = DDP(torch.nn.Linear(4, 1))
for epoch in range(2):
    sampler.set_epoch(epoch)
    for n, batches in enumerate(loader):
        for batch in batches:
            model(batch).mean().backward()
"""
BY_LENGTH = """\
order = np.argsort([-len(row) for row in rows])
        tail = order[len(order) - len(order) % 2 :]
        order = order[: len(order) - len(order) % 2].reshape((-1, 2)).tolist()
        if len(tail) > 0:
            order += [tail.tolist()]
        made = list()
        for idx in order:
            made.append(torch.cat([rows[i] for i in idx]))
        return made"""
SHORT = """\
made = []
        for row in rows:
            if len(row) < 9:
                made.append(row)
        return made"""
PARTS = """\
made = []
        for row in rows:
            for part in row:
                made.append(part)
        return made"""


@pytest.mark.parametrize(
    ("body", "is_right"),
    [
        ("return [torch.cat(rows[i : i + 2]) for i in range(0, len(rows), 2)]", True),
        (BY_LENGTH, True),
        ("return [row for row in rows if len(row) < 9]", False),
        ("return [part for row in rows for part in row]", False),
        ("return [rows[i] for i in np.unique([len(row) for row in rows])]", False),
        ("return [rows[0][i] for i in range(rows[0].shape[0])]", False),
        ("return [rows[0] for n in range(max(len(row) for row in rows))]", False),
        (SHORT, False),
        (PARTS, False),
        ("return torch.cat([row + 1 for row in rows])", False),
    ],
)
def test_elements_of_a_batch(body, is_right, tmp_path):
    found = named(TEXT.format(body=body), tmp_path)
    assert found == ([] if is_right else [("ACC706", "model(batch).mean().backward()")])
