"""Where each rank goes on after a checkpoint: its random streams, its place in the epoch, its open window."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from .data.random_state import restore_random_state

if TYPE_CHECKING:
    from .accelerator import Accelerator


def is_divided_as_here(accelerator: Accelerator, ranks: int, state: dict[str, Any]) -> bool:
    """Whether a batch of the script is divided now as it was then: a rank's place in the epoch is then what it was.

    Args:
        accelerator: of this run.
        ranks: how many saved it.
        state: what was saved for rank 0; older checkpoints do not say how batches were divided.
    """
    data_ranks = accelerator.process.data_ranks
    now = _batches_of_a_step(accelerator.split_batches, data_ranks)
    then = _batches_of_a_step(
        state.get("split", accelerator.split_batches), state.get("data_ranks", data_ranks)
    )
    return (ranks, then) == (accelerator.num_processes, now)


def restore_here(accelerator: Accelerator, state: dict[str, Any]) -> None:
    """Go on as a rank of as many as there were.

    Args:
        accelerator: of this run.
        state: what was saved for this rank.
    """
    _restore_window(accelerator, state["window"])
    accelerator._tokens = state["tokens"]
    _restore_gradients(accelerator, state.get("gradients"))
    restore_random_state(state["random"])
    _restore_loaders(accelerator, state["loaders"], state["random"])


def restore_elsewhere(
    accelerator: Accelerator, source: Path, ranks: int, state_of: Callable[[int], dict[str, Any]]
) -> None:
    """Go on on another number of ranks, or with batches divided otherwise: with the order of the samples and the batch
    that was next.

    Losses are those of the run that was stopped where batches are split (the batch of all ranks is then the
    script's); noise that ranks draw for their samples is different.

    Args:
        accelerator: of this run.
        source: the checkpoint.
        ranks: how many saved it.
        state_of: reads what was saved for a rank.
    """
    first = state_of(0)
    limits = []
    split_before = first.get("split", False)
    before = _batches_of_a_step(split_before, first.get("data_ranks", ranks))
    now = _batches_of_a_step(accelerator.split_batches, accelerator.process.data_ranks)
    positions = []
    for state in first["loaders"]:
        position = state["position"]
        done = None if position is None else position * before
        if done is not None and done % now:
            limits.append(
                f"the pass goes on with batch {done // now * now} of the script's, {done % now} earlier"
            )
        positions.append({**state, "position": None if done is None else done // now})
    if not first["window"]["complete"]:
        if split_before and accelerator.split_batches and _are_plain(first["gradients"]):
            states = [first, *(state_of(rank) for rank in range(1, ranks))]
            _restore_window(accelerator, first["window"])
            _share_out(accelerator, states)
        else:
            limits.append("the gradients of its open accumulation window are left out")
    if not split_before or not accelerator.split_batches:
        limits.append("each process takes whole batches, so that a step takes another number of them")
    if limits and accelerator.is_main_process:
        print(
            f"accelify: {source} was saved by {_stated(ranks, split_before)} and is loaded by "
            f"{_stated(accelerator.num_processes, accelerator.split_batches)}: " + "; ".join(limits)
        )
    random = _of_another_rank(first["random"], accelerator.process.data_rank)
    restore_random_state(first["random"] if not _is_within_a_pass(first) else random)
    _restore_loaders(accelerator, positions, random)


def _batches_of_a_step(split: bool, data_ranks: int) -> int:
    """How many batches of the script all ranks take together."""
    return 1 if split else data_ranks


def _stated(ranks: int, split: bool) -> str:
    return f"{ranks} processes{' with split_batches=True' if split else ''}"


def _is_within_a_pass(state: dict[str, Any]) -> bool:
    """Whether the ranks' streams had parted."""
    return any(loader["position"] is not None and loader.get("parted") for loader in state["loaders"])


def _of_another_rank(state: dict[str, Any], rank: int) -> dict[str, Any]:
    """Rank 0's random state for another rank: what the script decides by is the same, the noise for samples differs."""
    if rank == 0:
        return state
    retained = {name: value for name, value in state.items() if name not in ("cuda", "xla", "own_numpy")}
    number = zlib.crc32(state["torch"].numpy().tobytes())
    generator = torch.Generator().manual_seed((number + rank * 0x9E3779B97F4A7C15) % 2**63)
    return {**retained, "torch": generator.get_state()}


def _are_plain(gradients: Any) -> bool:
    """Whether every rank had whole gradients, which can be added up."""
    return gradients is not None and all(g is None or isinstance(g, torch.Tensor) for g in gradients)


def _share_out(accelerator: Accelerator, states: list[dict[str, Any]]) -> None:
    """Give rank 0 the sum over all old ranks, scaled so that the mean over the ranks is the mean over the old ones."""
    factor = accelerator.process.data_ranks / len(states)
    is_first = accelerator.process.data_rank == 0
    accelerator._tokens = sum(state["tokens"] for state in states) if is_first else 0.0
    sums: list[torch.Tensor | None] = []
    for parts in zip(*(state["gradients"] for state in states), strict=True):
        there = [part for part in parts if part is not None]
        total = torch.stack(there).sum(0) * factor if there else None
        sums.append(total if is_first or total is None else torch.zeros_like(total))
    _restore_gradients(accelerator, sums)


def _restore_window(accelerator: Accelerator, saved: dict[str, Any]) -> None:
    window = accelerator.gradient_state.window
    for name, value in saved.items():
        setattr(window, name, value)
    window.iteration = None


def _restore_gradients(accelerator: Accelerator, gradients: list[Any] | None) -> None:
    parameters = accelerator._trained_parameters()
    if gradients is None or not parameters:
        return
    if len(parameters) != len(gradients):
        raise ValueError(
            f"the checkpoint holds gradients of {len(gradients)} parameters in an open accumulation window, and the "
            f"optimizers that are prepared here train {len(parameters)}: prepare the same ones before load_state"
        )
    accelerator.backend.restore_window_gradients(parameters, gradients)


def _restore_loaders(
    accelerator: Accelerator, positions: list[dict[str, Any]], random: dict[str, Any]
) -> None:
    """Loaders in the order in which they are prepared; those that are prepared later find theirs then."""
    here = accelerator._dataloaders
    for loader, position in zip(here, positions, strict=False):
        loader.resume_from(position, random)
    accelerator._waiting_positions = [(position, random) for position in positions[len(here) :]]
