"""A small stand-in for h5py: files are NumPy archives; entries that begin with `attrs_` are the attributes."""

from __future__ import annotations

from typing import Any

import numpy as np


class File:
    """A file opened for reading."""

    def __init__(self, name: str, mode: str = "r") -> None:
        with np.load(name) as archive:
            self.entries = {key: archive[key] for key in archive.files}
        self.attrs = {
            key.removeprefix("attrs_"): value.item()
            for key, value in self.entries.items()
            if key.startswith("attrs_")
        }

    def __getitem__(self, key: str) -> Any:
        return self.entries[key]
