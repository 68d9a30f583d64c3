"""Loggers that speak once, not once a process."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import MutableMapping
from typing import Any

from .state import PartialState


class MultiProcessAdapter(logging.LoggerAdapter[logging.Logger]):
    """A logger whose messages come from the main process.

    Every call takes `main_process_only` (default True; False: every process logs) and `in_order` (default False;
    with it, processes log one after another; every process must make the call).
    """

    def log(  # type: ignore[override]
        self,
        level: int,
        msg: object,
        *args: Any,
        main_process_only: bool = True,
        in_order: bool = False,
        **kwargs: Any,
    ) -> None:
        """As `logging.Logger.log`, once."""
        kwargs.setdefault("stacklevel", 1)
        if in_order:
            process = PartialState()
            for rank in range(process.num_processes):
                if rank == process.process_index and self.isEnabledFor(level):
                    self._emit(level, msg, args, kwargs)
                process.wait_for_everyone()
        elif self.isEnabledFor(level) and (not main_process_only or PartialState().is_main_process):
            self._emit(level, msg, args, kwargs)

    def _emit(self, level: int, msg: object, args: Any, kwargs: dict[str, Any]) -> None:
        text, options = self.process(msg, kwargs)
        # This method and `log` are between the caller and the logger.
        options["stacklevel"] += 2
        self.logger.log(level, text, *args, **options)

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """As `logging.LoggerAdapter.process`."""
        return msg, kwargs

    def warning_once(self, *args: Any, **kwargs: Any) -> None:
        """A warning that is printed only once for the same arguments."""
        _warn_once(self, args, tuple(sorted(kwargs.items())))


@functools.lru_cache(None)
def _warn_once(
    logger: MultiProcessAdapter, args: tuple[Any, ...], kwargs: tuple[tuple[str, Any], ...]
) -> None:
    logger.warning(*args, **dict(kwargs))


def get_logger(name: str, log_level: str | None = None) -> MultiProcessAdapter:
    """A logger for a script or module.

    Args:
        name: such as `__name__`.
        log_level: such as "INFO"; default: ACCELERATE_LOG_LEVEL, else as logging is configured.
    """
    logger = logging.getLogger(name)
    level = log_level or os.environ.get("ACCELERATE_LOG_LEVEL")
    if level is not None:
        logger.setLevel(level.upper())
        logger.root.setLevel(level.upper())
    return MultiProcessAdapter(logger, {})
