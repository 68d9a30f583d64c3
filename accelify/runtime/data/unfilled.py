"""The message where `drop_last` leaves nothing of a loader's batches."""

from __future__ import annotations

import warnings

from torch.utils.data import get_worker_info

from ..state import PartialState


class Unfilled:
    """Warns, once for each loader, that it has fewer full batches than there are ranks to share them.

    Args:
        ranks: how many they are.
    """

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self.reported = False

    def __call__(self, batches: int) -> None:
        """Print it on the main process.

        Args:
            batches: full batches of the pass, all of which are left out.
        """
        # A worker has only a part of the data, and forgets with every pass what it has reported.
        if self.reported or get_worker_info() is not None or not PartialState().is_main_process:
            return
        self.reported = True
        has = "1 full batch" if batches == 1 else f"{batches} full batches"
        warnings.warn(
            f"a prepared loader with drop_last=True gives no batch at all, as it has {has} for {self.ranks} processes: "
            "use smaller batches, fewer processes or drop_last=False",
            stacklevel=2,
        )
