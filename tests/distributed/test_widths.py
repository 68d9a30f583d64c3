"""Evaluation of batches that are padded to their own longest: two processes show what one shows."""

import pytest

from accelify.conversion import ConvertOptions
from accelify.convert import convert_source
from accelify.source import Source
from tests.distributed.processes import run_ranks
from tests.transforms.support import PATH

TAGGER = """\
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class Texts(Dataset):
    def __len__(self):
        return 11

    def __getitem__(self, i):
        return torch.arange(i % 5 + 1), torch.arange(i % 5 + 1) % 3

    @staticmethod
    def together(samples):
        n = max(s[0].size(0) for s in samples)
        words, tags = torch.zeros(len(samples), n).long(), torch.full((len(samples), n), -100)
        for i, (word, tag) in enumerate(samples):
            words[i, : len(word)], tags[i, : len(tag)] = word, tag
        return words, tags


torch.manual_seed(0)
loader = DataLoader(Texts(), batch_size=2, shuffle=True, collate_fn=Texts.together)
held_out = DataLoader(Texts(), batch_size=2, collate_fn=Texts.together)
model = nn.Sequential(nn.Embedding(5, 8), nn.Linear(8, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
criterion = nn.CrossEntropyLoss(ignore_index=-100)
for epoch in range(2):
    for words, tags in loader:
        optimizer.zero_grad()
        criterion(model(words).transpose(1, 2), tags).backward()
        optimizer.step()
    hits = seen = total = 0
    with torch.no_grad():
        for words, tags in held_out:
            output = model(words)
            total += criterion(output.transpose(1, 2), tags).item()
            hits += (output.argmax(-1) == tags).sum().item()
            seen += (tags != -100).sum().item()
    figures = [hits / seen, total / len(held_out)]
"""


def figures_of(text):
    namespace = {}
    exec(compile(text, "script.py", "exec"), namespace)
    return namespace["figures"]


@pytest.mark.distributed
@pytest.mark.parametrize("batch_size", ["per-process", "total"])
def test_two_processes_report_what_one_does(batch_size):
    conversion = convert_source(Source.from_text(TAGGER, PATH), ConvertOptions(batch_size))
    assert conversion.status == "converted"
    expected = figures_of(TAGGER)
    for own in run_ranks(2, figures_of, conversion.new_text, env={"ACCELIFY_USE_CPU": "true"}):
        assert own == pytest.approx(expected, rel=1e-5)
