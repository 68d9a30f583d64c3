"""Pictures of tensors: a grid, and a file of it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from PIL import Image


def make_grid(
    tensor: Any,
    nrow: int = 8,
    padding: int = 2,
    normalize: bool = False,
    value_range: tuple[float, float] | None = None,
    scale_each: bool = False,
    pad_value: float = 0.0,
    **_: Any,
) -> torch.Tensor:
    """The images of a batch in rows of `nrow`, as one image of three channels."""
    images = torch.stack(list(tensor)) if isinstance(tensor, (list, tuple)) else tensor
    images = images.detach().float()
    while images.dim() < 4:
        images = images.unsqueeze(0)
    if images.size(1) == 1:
        images = images.expand(-1, 3, -1, -1)
    if normalize:
        low, high = value_range or (float(images.min()), float(images.max()))
        images = (images.clamp(low, high) - low) / max(high - low, 1e-5)
    columns = min(nrow, len(images))
    height, width = images.size(2) + padding, images.size(3) + padding
    rows = math.ceil(len(images) / columns)
    grid = images.new_full((images.size(1), rows * height + padding, columns * width + padding), pad_value)
    for number, image in enumerate(images):
        y, x = number // columns * height + padding, number % columns * width + padding
        grid[:, y : y + images.size(2), x : x + images.size(3)] = image
    return grid


def save_image(tensor: Any, fp: Any, nrow: int = 8, padding: int = 2, **options: Any) -> None:
    """Write the grid of a batch into a file."""
    grid = make_grid(tensor, nrow=nrow, padding=padding, **options)
    array = grid.mul(255).clamp(0, 255).permute(1, 2, 0).to("cpu", torch.uint8).numpy()
    image = Image.fromarray(array)
    image.save(fp if not isinstance(fp, str) else Path(fp))
