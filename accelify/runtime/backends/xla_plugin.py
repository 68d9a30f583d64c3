"""Settings of a script or the configuration file for runs on XLA devices (TPUs)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from ..plugins import KwargsHandler
from ..sections import as_bool, as_int, near

_TRUTHS = ("spmd", "shard_weights", "pad_to_fixed_shape")
_LEAST = {"num_devices": 1, "prefetch_batches": 0}


@dataclass
class XLAPlugin(KwargsHandler):
    """Options of the engine for XLA devices, for `Accelerator(xla_plugin=...)`. Passing one selects XLA.

    Args:
        spmd: one process drives all devices it sees, each batch spread over them; default: yes where it sees several.
            False: this process uses one device.
        num_devices: how many devices there must be; with PJRT_DEVICE=CPU this number is made.
        shard_weights: with SPMD, weights and optimizer states are in pieces on the devices, as FSDP has them.
        prefetch_batches: batches that a thread puts on the device ahead of the loop; 0: none. Loaders without worker
            processes are read by the loop itself nevertheless, so that random draws keep the script's order.
        pad_to_fixed_shape: a batch with fewer samples than the loader's batch size is filled up with its last sample.
            The mask of samples that count is filled as in `ignore_values`; a batch without such an entry is an error.
        pad_lengths: lengths that dimension 1 of a batch's tensors is padded to, each time the smallest that fits.
        ignore_values: for entries of a batch, by key or by position, the value that the loss leaves out.
        cache_dir: directory in which compiled programs are stored for the next run.

    Raises:
        ValueError: a value that cannot be.
    """

    spmd: bool | None = None
    num_devices: int | None = None
    shard_weights: bool = False
    prefetch_batches: int = 2
    pad_to_fixed_shape: bool = False
    pad_lengths: list[int] = field(default_factory=list)
    ignore_values: dict[str | int, float] = field(default_factory=lambda: {"labels": -100})
    cache_dir: str | Path | None = None

    def __post_init__(self) -> None:
        for name in _TRUTHS:
            value = getattr(self, name)
            if not isinstance(value, bool) and not (name == "spmd" and value is None):
                raise ValueError(f"XLA's {name} must be true or false, not {value!r}")
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < least):
                raise ValueError(f"XLA's {name} must be a whole number of at least {least}, not {value!r}")
        lengths = self.pad_lengths
        if not isinstance(lengths, (list, tuple)) or any(type(n) is not int or n < 1 for n in lengths):
            raise ValueError(
                f"XLA's pad_lengths must be a list of whole numbers such as [64, 128], not {lengths!r}"
            )
        self.pad_lengths = sorted(lengths)
        if not isinstance(self.ignore_values, Mapping):
            raise ValueError(
                f'XLA\'s ignore_values must name entries of a batch, such as {{"labels": -100}}, not '
                f"{self.ignore_values!r}"
            )
        if self.shard_weights and self.spmd is False:
            raise ValueError(
                "XLA's shard_weights spreads weights over the devices of one process; it needs spmd"
            )

    @classmethod
    def from_config(cls, section: Mapping[str, Any] | None) -> XLAPlugin:
        """The plugin for the section `xla_config` of a configuration file.

        Args:
            section: values by the names of the fields; None or nothing: the defaults.

        Raises:
            ValueError: an unknown key, with a suggestion, or a value that cannot be.
        """
        known = [f.name for f in fields(cls)]
        values: dict[str, Any] = {}
        for key, value in (section or {}).items():
            if key not in known:
                raise ValueError(f"xla_config has no key {key!r}: {near(str(key), known)}")
            if value is None or value == "":
                continue
            values[key] = value
            if key in _TRUTHS:
                values[key] = as_bool(value, f"{key} in xla_config")
            elif key in _LEAST:
                values[key] = as_int(value, f"{key} in xla_config", _LEAST[key])
        return cls(**values)
