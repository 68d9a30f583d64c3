"""Process checks and control, as the Accelerator offers them."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from .state import AcceleratorState, DistributedType, F, PartialState


class ProcessControl:
    """The part of the Accelerator that is about processes; see PartialState."""

    process: PartialState
    state: AcceleratorState

    @property
    def distributed_type(self) -> DistributedType:
        return self.state.distributed_type

    @property
    def device(self) -> torch.device:
        return self.process.device

    @property
    def num_processes(self) -> int:
        return self.process.num_processes

    @property
    def process_index(self) -> int:
        return self.process.process_index

    @property
    def local_process_index(self) -> int:
        return self.process.local_process_index

    @property
    def is_main_process(self) -> bool:
        return self.process.is_main_process

    @property
    def is_local_main_process(self) -> bool:
        return self.process.is_local_main_process

    @property
    def is_last_process(self) -> bool:
        return self.process.is_last_process

    @property
    def use_distributed(self) -> bool:
        return self.process.use_distributed

    def print(self, *args: Any, **kwargs: Any) -> None:
        """`print`, on each machine's main process only."""
        self.process.print(*args, **kwargs)

    def wait_for_everyone(self) -> None:
        """Return when every process has come here."""
        self.process.wait_for_everyone()

    def main_process_first(self) -> contextlib.AbstractContextManager[None]:
        """A context in which the main process runs before the others, such as for a download."""
        return self.process.main_process_first()

    def local_main_process_first(self) -> contextlib.AbstractContextManager[None]:
        """A context in which each machine's first process runs before its others."""
        return self.process.local_main_process_first()

    def on_main_process(self, function: F) -> F:
        """Decorator: run on the main process only; elsewhere the call returns None."""
        return self.process.on_main_process(function)

    def on_local_main_process(self, function: F) -> F:
        """Decorator: run on each machine's first process only."""
        return self.process.on_local_main_process(function)

    def on_last_process(self, function: F) -> F:
        """Decorator: run on the last process only."""
        return self.process.on_last_process(function)

    def on_process(self, function: F | None = None, process_index: int | None = None) -> Any:
        """Decorator: run on the process of that rank only."""
        return self.process.on_process(function, process_index)

    def on_local_process(self, function: F | None = None, local_process_index: int | None = None) -> Any:
        """Decorator: run on the process of that rank within its machine only."""
        return self.process.on_local_process(function, local_process_index)

    def split_between_processes(
        self, inputs: Any, apply_padding: bool = False
    ) -> contextlib.AbstractContextManager[Any]:
        """Give every process its share of `inputs`; see PartialState."""
        return self.process.split_between_processes(inputs, apply_padding)
