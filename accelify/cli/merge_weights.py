"""`accelify merge-weights`: one safetensors file of a sharded checkpoint."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from accelify.cli.terminal import fail


def _either_spelling(word: str) -> str:
    return word.replace("-", "_")


CONTEXT_SETTINGS = {"token_normalize_func": _either_spelling}


def merge_weights(
    checkpoint: Annotated[Path, typer.Argument(help="Folder that save_state wrote.")],
    output: Annotated[Path, typer.Argument(help="The file, or a folder for a model.safetensors.")],
    model: Annotated[
        int | None, typer.Option("--model", help="Number of the model, where there are several.")
    ] = None,
    remove_checkpoint_dir: Annotated[
        bool, typer.Option("--remove_checkpoint_dir", help="Delete the checkpoint afterwards.")
    ] = False,
) -> None:
    """Make one safetensors file of a checkpoint, also of one of which every process wrote its part."""
    try:
        from accelify.runtime.launch.merge import merge
        from accelify.runtime.launch.settings import LaunchError
    except ImportError as error:
        fail(f"{error}.")
    try:
        path, tensors, size = merge(checkpoint, output, model)
    except LaunchError as error:
        fail(str(error))
    print(f"{path} is written: {tensors} tensors, {size / 2**20:.1f} MiB.")
    if remove_checkpoint_dir:
        shutil.rmtree(checkpoint)
        print(f"{checkpoint} is deleted.")
