"""Settings of the launch that the script's own go before."""

from __future__ import annotations

import os
import warnings
from typing import Any

from .state import PartialState


def warn_where_overruled(argument: str, of_script: Any) -> None:
    """Warn, on the main process, where the launch asks for another value than the script's Accelerator is made with.

    Args:
        argument: of the Accelerator and of `accelify launch`, whose value processes find under `ACCELERATE_` and its
            name in capitals.
        of_script: its value in the script; None where the script gives none.
    """
    asked = os.environ.get(f"ACCELERATE_{argument.upper()}", "")
    if of_script is None or asked in ("", str(of_script)) or not PartialState().is_main_process:
        return
    # "no" and 1 are in each file that the configuration's questions write, whoever wants them.
    by_person = argument.upper() in os.environ.get("ACCELIFY_ASKED_FOR", "").split(",")
    if asked in ("no", "1") and not by_person:
        return
    warnings.warn(
        f"the launch asks for {argument} {asked}, which has no effect: the script makes its Accelerator with "
        f"{argument}={of_script!r}; take that argument out for the launch to choose",
        stacklevel=3,
    )
