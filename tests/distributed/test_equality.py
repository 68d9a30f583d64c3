"""The same losses, learning rates and weights, whatever the number of processes."""

import pytest
import torch

from tests.distributed.processes import run_ranks
from tests.runtime.training import Setting, train_accelerated, train_plain

pytestmark = pytest.mark.distributed

# 43 samples in batches of 16 end with a batch of 11, 33 with a batch of 1.
SETTINGS = [
    Setting(),
    Setting(samples=33),
    Setting(sampler="in order", optimizer="adam"),
    Setting(loss="sum"),
    Setting(samples=33, loss="sum", optimizer="adam"),
    Setting(accumulate=2, samples=75),
    Setting(accumulate=2, samples=33, loss="sum"),
    Setting(clip=0.1),
    Setting(clip=0.1, accumulate=3),
    Setting(schedule="epoch", samples=33),
    Setting(schedule="batch"),
    Setting(schedule="batch", accumulate=2, samples=75),
    Setting(samples=33, accumulate=2, clip=0.1, schedule="batch", optimizer="adam"),
    Setting(drop_last=True),
    Setting(sampler="own"),
    Setting(sampler="batches"),
    Setting(sampler="batch_sampler", schedule="batch"),
    Setting(sampler="generator"),
    Setting(sampler="stream"),
    Setting(sampler="stream", samples=33, loss="sum", schedule="batch"),
    Setting(sampler="shuffle", workers=2, epochs=2),
    Setting(sampler="stream", workers=2, epochs=1),
]


def _train_all(settings):
    return [train_accelerated(s, split_batches=True) for s in settings]


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_split_batches_follow_plain_pytorch(ranks):
    settings = SETTINGS if ranks == 2 else [s for s in SETTINGS if not s.workers]
    results = run_ranks(ranks, _train_all, settings)
    for i, setting in enumerate(settings):
        expected, weights = train_plain(setting)
        for rank, result in enumerate(results):
            history, own = result[i]
            assert len(history) == len(expected), (setting, rank)
            for step, (a, b) in enumerate(zip(expected, history, strict=True)):
                assert b == pytest.approx(a, rel=2e-5, abs=1e-7), (setting, rank, step)
            torch.testing.assert_close(
                own, weights, rtol=2e-4, atol=2e-6, msg=lambda m, s=setting: f"{s}: {m}"
            )
        for result in results[1:]:
            assert torch.equal(result[i][1], results[0][i][1]), setting
