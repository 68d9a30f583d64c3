"""Batches of which a process gets one sample, such as the rest at the end of the data, and batch norm."""

from __future__ import annotations

from .state import PartialState

_OF_TORCH = "Expected more than 1 value per channel when training"


def explained(error: ValueError) -> ValueError:
    """The error itself, or one that says what became of the batch on several processes, and what to do."""
    state = PartialState()
    if state.num_processes == 1 or not str(error).startswith(_OF_TORCH):
        return error
    return ValueError(
        f"rank {state.process_index} got one sample of a batch that {state.num_processes} processes share, and batch "
        "norm needs two to train: give the DataLoader drop_last=True where this is the rest at the end of the data, or "
        f"another batch_size ({error})"
    )


__all__ = ["explained"]
