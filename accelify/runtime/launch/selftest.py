"""What `accelify test` starts: tries, in the processes of a launch, what a training script relies on.

    accelify launch [options] selftest.py RESULTS.json

The main process writes one row a check into the file; a check that fails ends the test, for after it the processes may
be at different places.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from accelify.runtime import Accelerator, GradScalerKwargs, load_weights

# How far a loss may be from that of plain torch in float32: rounding in another order, or in fewer digits.
TOLERANCES = {"no": 1e-4, "bf16": 5e-2, "fp16": 5e-2}
WIDTH, STEPS = 64, 6


class CheckError(Exception):
    """A check that failed; the message is one sentence."""


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        change: torch.Tensor = self.down(torch.relu(self.up(x)))
        return x + change


def make_model(block_names: list[str]) -> nn.Module:
    """The same small network on every process, of blocks with the class names that the configuration wraps."""
    torch.manual_seed(7)
    names = block_names or ["Block"]
    blocks = [type(names[i % len(names)], (_Block,), {})() for i in range(max(2, len(names)))]
    model = nn.Sequential(nn.Linear(8, WIDTH), *blocks, nn.Linear(WIDTH, 1))
    model._no_split_modules = names  # type: ignore[assignment]
    places = range(1, len(blocks) + 1)
    plan = {f"{i}.up": "colwise" for i in places} | {f"{i}.down": "rowwise" for i in places}
    model.tp_plan = plan  # type: ignore[assignment]
    return model


def batches(world: int) -> tuple[TensorDataset, int]:
    """Data for STEPS batches, and the size of a batch that `world` processes can share."""
    size = 4 * world
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(STEPS * size, 8, generator=generator)
    return TensorDataset(x, x.sum(dim=1, keepdim=True).tanh()), size


def plain_losses(names: list[str], world: int) -> list[float]:
    """What plain torch gets, in float32 on the CPU."""
    model = make_model(names)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    data, size = batches(world)
    losses = []
    for x, y in DataLoader(data, batch_size=size):
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


class SelfTest:
    """The checks, in order; each returns a few words on what it found."""

    def __init__(self) -> None:
        # In fp16 gradients would overflow under the usual scale, and the first steps be left out, which is how a scale
        # is found and none of the losses of plain torch.
        scaling = GradScalerKwargs(init_scale=2.0**8)
        self.accelerator = Accelerator(split_batches=True, kwargs_handlers=[scaling])
        engine = json.loads(os.environ.get("ACCELIFY_ENGINE", "{}"))
        named = engine.get("fsdp", {}).get("fsdp_transformer_layer_cls_to_wrap") or ""
        self.names = [name.strip() for name in named.split(",") if name.strip()]
        self.model: Any = None
        self.optimizer: Any = None

    def checks(self) -> list[tuple[str, Callable[[], str]]]:
        return [
            ("processes", self.processes),
            ("collectives", self.collectives),
            ("metrics count every sample once", self.metrics),
            ("losses equal plain torch", self.losses),
            ("checkpoint", self.checkpoint),
            ("saved weights load in plain torch", self.weights),
        ]

    def processes(self) -> str:
        accelerator = self.accelerator
        expected = int(os.environ.get("WORLD_SIZE", "1"))
        if accelerator.num_processes < expected:
            raise CheckError(f"{accelerator.num_processes} of {expected} processes found each other")
        number, engine = accelerator.num_processes, type(accelerator.backend).__name__.removesuffix("Backend")
        if number == 1:
            return f"1 process on {accelerator.device}, not distributed"
        return f"{number} processes on {accelerator.device}, {accelerator.distributed_type} by {engine}"

    def collectives(self) -> str:
        accelerator = self.accelerator
        # Ranks that share layers (tensor parallel) work on the same batch and count once.
        rank, world = accelerator.process.data_rank, accelerator.process.data_ranks
        here = torch.tensor([rank + 1.0], device=accelerator.device)
        total = float(accelerator.reduce(here, reduction="sum")[0])
        if total != world * (world + 1) / 2:
            raise CheckError(f"the sum over the processes is {total}, not {world * (world + 1) / 2}")
        gathered = accelerator.gather(here).tolist()
        if gathered != [i + 1.0 for i in range(world)]:
            raise CheckError(f"gather gives {gathered}")
        from accelify.runtime import broadcast_object_list, gather_object

        objects = gather_object([{"rank": rank}])
        if [item["rank"] for item in objects] != list(range(world)):
            raise CheckError(f"gather_object gives {objects}")
        word = broadcast_object_list(["from the first" if accelerator.is_main_process else None])
        if word != ["from the first"]:
            raise CheckError(f"broadcast_object_list gives {word}")
        accelerator.wait_for_everyone()
        return "reduce, gather, objects, barrier"

    def metrics(self) -> str:
        accelerator = self.accelerator
        # One sample more than the processes can share evenly.
        count = 3 * accelerator.num_processes * 2 + 1
        data = TensorDataset(torch.arange(count))
        loader = accelerator.prepare(DataLoader(data, batch_size=2 * accelerator.num_processes))
        seen: list[int] = []
        for (batch,) in loader:
            seen += accelerator.gather_for_metrics(batch).tolist()
        if sorted(seen) != list(range(count)):
            raise CheckError(
                f"gather_for_metrics saw {len(seen)} samples, {len(set(seen))} different ones, of {count}"
            )
        return f"{count} of {count} samples"

    def losses(self) -> str:
        accelerator = self.accelerator
        expected = plain_losses(self.names, accelerator.num_processes)
        data, size = batches(accelerator.num_processes)
        model = make_model(self.names)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        self.model, self.optimizer, loader = accelerator.prepare(
            model, optimizer, DataLoader(data, batch_size=size)
        )
        found = []
        for x, y in loader:
            loss = nn.functional.mse_loss(self.model(x), y)
            accelerator.backward(loss)
            self.optimizer.step()
            self.optimizer.zero_grad()
            found.append(float(accelerator.reduce(loss.detach().float(), reduction="mean")))
        if len(found) != len(expected):
            raise CheckError(f"{len(found)} batches, not {len(expected)}")
        worst = max(abs(a - b) / max(abs(b), 1e-3) for a, b in zip(found, expected, strict=True))
        tolerance = TOLERANCES.get(accelerator.mixed_precision, 1e-4)
        if not worst <= tolerance:
            raise CheckError(f"the losses are {found}, and plain torch's are {expected}")
        apart = f"up to {worst:.0e} from it (allowed {tolerance:.0e})" if worst else "equal"
        return f"{len(found)} steps, {apart}"

    def _folder(self) -> Path:
        """A folder that all processes see: on one machine a temporary one, on several in the working directory."""
        from accelify.runtime import broadcast_object_list

        several = int(os.environ.get("GROUP_WORLD_SIZE", "1")) > 1
        where: list[Any] = [None]
        if self.accelerator.is_main_process:
            where = [tempfile.mkdtemp(prefix="accelify-test-", dir=Path.cwd() if several else None)]
        return Path(broadcast_object_list(where)[0])

    def checkpoint(self) -> str:
        accelerator, folder = self.accelerator, self._folder()
        try:
            saved = self._probe()
            accelerator.save_state(folder / "state")
            x, y = batches(accelerator.num_processes)[0][: 4 * accelerator.num_processes]
            loss = nn.functional.mse_loss(self.model(x.to(accelerator.device)), y.to(accelerator.device))
            accelerator.backward(loss)
            self.optimizer.step()
            self.optimizer.zero_grad()
            moved = self._probe()
            accelerator.load_state(folder / "state")
            loaded = self._probe()
            if saved != loaded:
                raise CheckError(f"the model answers {loaded} after loading, and {saved} before saving")
            if moved == saved:
                raise CheckError("a further step changed nothing, so loading proves nothing")
            accelerator.wait_for_everyone()
        finally:
            if accelerator.is_main_process:
                shutil.rmtree(folder, ignore_errors=True)
        return "save_state and load_state"

    def _probe(self) -> float:
        """One number that depends on all weights."""
        x = batches(self.accelerator.num_processes)[0][: 4 * self.accelerator.num_processes][0]
        with torch.no_grad():
            return float(self.model(x.to(self.accelerator.device)).float().sum())

    def weights(self) -> str:
        accelerator, folder = self.accelerator, self._folder()
        try:
            probe = self._probe()
            accelerator.save_model(self.model, folder)
            accelerator.wait_for_everyone()
            if accelerator.is_main_process:
                plain = make_model(self.names)
                load_weights(plain, folder)
                x = batches(accelerator.num_processes)[0][: 4 * accelerator.num_processes][0]
                with torch.no_grad():
                    answer = float(plain(x).sum())
                tolerance = TOLERANCES.get(accelerator.mixed_precision, 1e-4) * max(1.0, x.shape[0] / 4)
                if abs(answer - probe) > tolerance * max(1.0, abs(probe)):
                    raise CheckError(
                        f"plain torch answers {answer} with the saved weights, and the model {probe}"
                    )
        finally:
            accelerator.wait_for_everyone()
            if accelerator.is_main_process:
                shutil.rmtree(folder, ignore_errors=True)
        return "save_model and load_weights"


def main(results: Path) -> int:
    """Run the checks; 0 where all hold."""
    rows: list[tuple[str, bool, str]] = []

    def note(name: str, contained: bool, stated: str) -> None:
        rows.append((name, contained, stated))
        if os.environ.get("RANK", "0") == "0":
            results.write_text(json.dumps(rows))

    try:
        test = SelfTest()
    except Exception as error:
        note("start", False, f"{type(error).__name__}: {error}")
        raise
    for name, check in test.checks():
        try:
            note(name, True, check())
        except CheckError as failure:
            note(name, False, str(failure))
            break
        except Exception as error:
            note(name, False, f"{type(error).__name__}: {error}")
            traceback.print_exc()
            break
    return 0 if all(contained for _, contained, _ in rows) else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
