"""A checkpoint that is written while training goes on."""

from __future__ import annotations

import contextlib
import copy
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from .nested import map_leaves


def staged(item: Any) -> Any:
    """A copy of a nested container that further training leaves as it is, its tensors on the host. Tensors that share
    memory, such as tied weights, share it in the copy too."""
    known: dict[Any, torch.Tensor] = {}

    def copied(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return copy.deepcopy(leaf)
        place = leaf.device, leaf.data_ptr(), leaf.shape, leaf.stride()
        if place not in known or not leaf.numel():
            known[place] = leaf.detach().to("cpu", copy=True)
        return known[place]

    return map_leaves(copied, item)


class Background:
    """Writes from a thread. A process that ends waits for it: what was begun is completed.

    Args:
        target: the checkpoint's directory.
        finish: writes it, and needs no other rank.
        resources: closed when that is done.
    """

    def __init__(self, target: Path, finish: Callable[[], None], resources: contextlib.ExitStack) -> None:
        self.target = target
        self._finish = finish
        self._resources = resources
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=f"accelify-saving-{target.name}", daemon=False)
        self._thread.start()

    def _run(self) -> None:
        try:
            with self._resources:
                self._finish()
        except Exception as error:
            self._error = error

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do."""
        return not self._thread.is_alive()

    def result(self) -> tuple[str | None, Exception | None]:
        """Wait; the error's sentence and the error, or None twice."""
        self._thread.join()
        error = self._error
        return (None, None) if error is None else (str(error) or type(error).__name__, error)
