"""DeepSpeed's files, read without running anything that they ask for.

They are pickles, which DeepSpeed loads as they are. While it does, torch is made to take only tensors, plain containers
and the few classes that DeepSpeed writes; a file that asks for anything else is refused.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
from collections.abc import Iterator
from typing import Any

import torch

# Settings and counters, which do nothing when they are made.
_CLASSES = (
    ("deepspeed.runtime.fp16.loss_scaler", "LossScaler"),
    ("deepspeed.runtime.fp16.loss_scaler", "LossScalerBase"),
    ("deepspeed.runtime.fp16.loss_scaler", "DynamicLossScaler"),
    ("deepspeed.runtime.zero.config", "ZeroStageEnum"),
    ("deepspeed.utils.tensor_fragment", "fragment_address"),
)
_FORCED = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"


@contextlib.contextmanager
def only_data() -> Iterator[None]:
    """A region in which torch loads data only, whatever its caller asks for.

    Raises:
        ValueError: a file asks for something else, named in the message.
    """
    known: list[Any] = []
    for module, name in _CLASSES:
        with contextlib.suppress(ImportError, AttributeError):
            known.append(getattr(importlib.import_module(module), name))
    before = os.environ.get(_FORCED)
    # The other way round excludes it.
    contrary = os.environ.pop("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", None)
    os.environ[_FORCED] = "1"
    try:
        with torch.serialization.safe_globals(known):
            yield
    except pickle.UnpicklingError as error:
        reason = next(
            (line.strip() for line in str(error).splitlines() if "GLOBAL" in line), str(error).splitlines()[0]
        )
        raise ValueError(
            f"a file of the DeepSpeed checkpoint holds more than data, and is not loaded: {reason}"
        ) from None
    finally:
        if before is None:
            del os.environ[_FORCED]
        else:
            os.environ[_FORCED] = before
        if contrary is not None:
            os.environ["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] = contrary
