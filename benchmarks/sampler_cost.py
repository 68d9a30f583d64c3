"""What the order of a pass costs a rank for each of its batches, by the number of ranks.

    python benchmarks/sampler_cost.py [samples]

Prints microseconds for a batch of 32, beside those of torch's own DistributedSampler, which shuffles for itself.
"""

import sys
import time

import torch
from torch.utils.data import BatchSampler, DistributedSampler, RandomSampler, SequentialSampler

from accelify.runtime import BatchSamplerShard

BATCH = 32


def microseconds(batches) -> float:
    """Of one batch, between the first and the last: there the order is made, and its memory given back."""
    source = iter(batches)
    next(source)
    count = min(2000, len(batches) - 3)
    begun = time.perf_counter()
    for _ in range(count):
        next(source)
    return (time.perf_counter() - begun) / count * 1e6


def main() -> None:
    samples = int(float(sys.argv[1])) if len(sys.argv) > 1 else 10_000_000
    data = range(samples)
    for ranks in (1, 8, 64, 1_000, 10_000):
        figures = {
            "in order": BatchSamplerShard(BatchSampler(SequentialSampler(data), BATCH, True), ranks, 0),
            "shuffled": BatchSamplerShard(BatchSampler(RandomSampler(data), BATCH, True), ranks, 0),
            "split": BatchSamplerShard(
                BatchSampler(RandomSampler(data), BATCH * ranks, True), ranks, 0, split_batches=True
            ),
            "DistributedSampler": BatchSampler(DistributedSampler(data, ranks, 0), BATCH, True),
        }
        words = ", ".join(f"{name} {microseconds(batches):.1f}" for name, batches in figures.items())
        print(f"{ranks} ranks: {words}", flush=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    main()
