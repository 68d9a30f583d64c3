"""Conditions that go by how many rows the batches have: `prepare` fills the last one up, and a DistributedSampler gives
each process as many."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import GROUP, named

ACCELERATED = """
accelerator = Accelerator(OPTIONS)
model, loader = accelerator.prepare(torch.nn.Linear(4, 1), DataLoader(data, batch_size=4))
"""
GATHERS = "accelerator.gather_for_metrics(model(x))"
ENDS = """
count = 0
for x, y in loader:
    MEETS
    COUNTS
    if count >= 30:
        break
"""
CACHED = """
kept, count, fresh = [], 0, cache.get("rows") is None
for x, y in loader:
    if count >= 30:
        break
    if fresh:
        kept.append(model(x))
    COUNTS
if fresh and kept:
    cache["rows"] = accelerator.gather(torch.cat(kept))
"""
COUNTS = ["count += len(x)", "count += x.shape[0]", "count += int(y.sum())"]


def codes(text, counts, tmp_path, options="", head="accelerate"):
    text = text.replace("COUNTS", counts).replace("OPTIONS", options)
    return [code for code, _ in named(text, tmp_path, head) if code == "ACC704"]


@pytest.mark.parametrize("counts", COUNTS)
@pytest.mark.parametrize("text", [ENDS.replace("MEETS", GATHERS), "cache = {}\n" + CACHED])
def test_a_prepared_loader(text, counts, tmp_path):
    by_rows = "sum" not in counts
    assert bool(codes(ACCELERATED + text, counts, tmp_path)) is not by_rows
    options = "even_batches=False"
    assert codes(ACCELERATED + text, counts, tmp_path, options)


@pytest.mark.parametrize("counts", COUNTS)
def test_a_distributed_sampler(counts, tmp_path):
    text = GROUP + "model = torch.nn.Linear(4, 1)" + ENDS.replace("MEETS", "dist.all_reduce(model(x))")
    assert bool(codes(text, counts, tmp_path, head="torch")) is ("sum" in counts)


def test_a_batch_of_another_size_is_passed_over_by_all(tmp_path):
    text = f"for x, y in loader:\n    if len(x) < 4:\n        continue\n    {GATHERS}\n"
    assert codes(ACCELERATED + text, "", tmp_path) == []
    assert codes(ACCELERATED + text.replace("len(x) < 4", "len(x[y > 0]) < 4"), "", tmp_path) == ["ACC704"]
