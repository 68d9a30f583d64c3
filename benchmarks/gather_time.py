"""What a guarded `gather` costs over `torch.distributed.all_gather_into_tensor` of the same tensor, on the CPU.

    python benchmarks/gather_time.py [--processes 2] [--sizes 2 20 200 2000] [--rounds 40]

Both run in the same processes, in rounds that alternate, in the loop of an evaluation: predictions of the size asked
for, then labels of 256 bytes. Printed is, for each size in KB, the median of the rounds' ratios of time, and the
microseconds of both. Torch takes part twice: the second ratio, which should be 1, is the machine's noise.
"""

import argparse
import statistics
import time

import torch
import torch.distributed as dist

from accelify.runtime import Accelerator
from accelify.runtime.launch.notebook import debug_launcher

CALLS = 30


def _plain(tensor):
    whole = tensor.new_empty(dist.get_world_size() * tensor.numel())
    dist.all_gather_into_tensor(whole, tensor)
    return whole


def _seconds(gather, parts):
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(CALLS):
        for part in parts:
            gather(part)
    return (time.perf_counter() - begin) / CALLS


def measure(sizes, rounds):
    """One rank's work; the main process prints."""
    torch.set_num_threads(1)
    accelerator = Accelerator()
    subjects = {"accelify": accelerator.gather, "torch": _plain, "again": _plain}
    for size in sizes:
        parts = torch.rand(size * 256), torch.zeros(32, dtype=torch.int64)
        assert torch.equal(accelerator.gather(parts[0]), _plain(parts[0]))
        taken = {name: [] for name in subjects}
        for number in range(rounds + 4):
            order = list(subjects)[number % 3 :] + list(subjects)[: number % 3]
            for name in order:
                seconds = _seconds(subjects[name], parts)
                if number >= 4:
                    taken[name].append(seconds)
        if accelerator.is_main_process:
            ratio, noise = (
                statistics.median(a / b for a, b in zip(taken[name], taken["torch"], strict=True))
                for name in ("accelify", "again")
            )
            micro = {name: statistics.median(times) * 1e6 for name, times in taken.items()}
            print(
                f"{size:6} KB: {ratio:.2f} times torch's {micro['torch']:.0f} us "
                f"({micro['accelify']:.0f} us); torch again {noise:.2f}",
                flush=True,
            )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--sizes", type=int, nargs="+", default=[2, 20, 200, 2000], help="KB")
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    debug_launcher(measure, (options.sizes, options.rounds), options.processes)


if __name__ == "__main__":
    main()
