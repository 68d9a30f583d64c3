"""A healthy job with random delays on random ranks: it may not be killed, and gives the weights of one without them.

    python benchmarks/soak.py --minutes 30 --longest 60

Each rank trains, gathers, and saves (in the foreground and in the background), and at random places of that it sleeps,
is stopped (SIGSTOP, as a machine that is moved or a frozen job) or computes, for up to `--longest` seconds. At the end
the weights of all ranks are compared with those of the same steps without a delay.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))


def _delay(seconds: float, kind: str) -> None:
    if kind == "sleep":
        time.sleep(seconds)
    elif kind == "compute":
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            sum(range(10_000))
    else:
        # A process that is stopped cannot wake itself up.
        subprocess.Popen(["sh", "-c", f"sleep {seconds}; kill -CONT {os.getpid()}"])
        os.kill(os.getpid(), signal.SIGSTOP)


def train(steps: int | None, minutes: float, longest: float, often: float, folder: str) -> Any:
    """Train for so many steps, or for so long; the steps, the weights and the delays."""
    import torch
    from torch import nn

    from tests.distributed.processes import fresh_accelerator

    torch.manual_seed(0)
    accelerator = fresh_accelerator()
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model, optimizer = accelerator.prepare(model, optimizer)
    generator = torch.Generator().manual_seed(accelerator.process_index)
    chance = random.Random(os.urandom(8))
    delays: list[tuple[str, str, float]] = []

    def perhaps(place: str) -> None:
        if longest and chance.random() < often:
            seconds, kind = chance.uniform(0, longest), chance.choice(["sleep", "stop", "compute"])
            delays.append((place, kind, seconds))
            _delay(seconds, kind)

    model.register_full_backward_hook(lambda *_: perhaps("backward"))
    end = time.monotonic() + 60 * minutes
    done = 0
    while (
        done < steps
        if steps is not None
        else not accelerator.reduce(int(time.monotonic() > end and accelerator.is_main_process), "max")
    ):
        perhaps("step")
        loss = model(torch.randn(8, 64, generator=generator)).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        done += 1
        if steps is None and done % 5 == 0:
            perhaps("gather")
            accelerator.gather(loss.detach())
        if steps is None and done % 20 == 0:
            perhaps("saving")
            accelerator.save_state(f"{folder}/c", asynchronous=done % 40 == 0)
    accelerator.wait_for_saving()
    return done, [p.tolist() for p in accelerator.unwrap_model(model).parameters()], delays


def main() -> None:
    from tests.distributed.processes import run_ranks

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--longest", type=float, default=60, help="seconds of a delay")
    parser.add_argument("--often", type=float, default=0.02, help="chance of a delay at each place")
    parser.add_argument("--ranks", type=int, default=2)
    arguments = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="accelify-soak-")
    try:
        limit = 60 * arguments.minutes + 600
        found = run_ranks(
            arguments.ranks, train, None, arguments.minutes, arguments.longest, arguments.often, folder,
            timeout=limit,
        )  # fmt: skip
        steps = found[0][0]
        plain = run_ranks(arguments.ranks, train, steps, 0.0, 0.0, 0.0, folder, timeout=600)
        same = all(done == steps and weights == plain[0][1] for done, weights, _ in found)
        delays = [delay for _, _, own in found for delay in own]
        total = sum(seconds for _, _, seconds in delays)
        print(
            f"{steps} steps, {len(delays)} delays of {total:.0f} s together; weights equal to the bit: {same}"
        )
        for place, kind, seconds in sorted(delays, key=lambda delay: -delay[2])[:5]:
            print(f"  {seconds:5.1f} s {kind} in {place}")
        sys.exit(0 if same else 1)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
