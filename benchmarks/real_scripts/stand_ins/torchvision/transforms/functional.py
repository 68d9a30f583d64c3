"""The functions that the transforms call."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps


class InterpolationMode(Enum):
    """How a resized image gets its pixels."""

    NEAREST = "nearest"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    LANCZOS = "lanczos"


def both(size: Any) -> tuple[int, int]:
    """Height and width."""
    if isinstance(size, Sequence):
        return (int(size[0]), int(size[-1]))
    return (int(size), int(size))


def to_tensor(image: Any) -> torch.Tensor:
    """An image or array as a tensor between 0 and 1, channels first."""
    array = np.array(image)
    if array.ndim == 2:
        array = array[:, :, None]
    tensor = torch.from_numpy(np.ascontiguousarray(array.transpose(2, 0, 1)))
    return tensor.to(torch.get_default_dtype()).div(255) if tensor.dtype == torch.uint8 else tensor


def to_pil_image(picture: Any, mode: str | None = None) -> Image.Image:
    """A tensor (channels first) or array as an image."""
    if isinstance(picture, torch.Tensor):
        if picture.is_floating_point():
            picture = picture.mul(255).clamp(0, 255).to(torch.uint8)
        array = picture.cpu().numpy()
        array = array.transpose(1, 2, 0) if array.ndim == 3 else array
    else:
        array = np.asarray(picture)
    return Image.fromarray(array[:, :, 0] if array.ndim == 3 and array.shape[2] == 1 else array)


def normalize(tensor: torch.Tensor, mean: Sequence[float], std: Sequence[float]) -> torch.Tensor:
    """Take the mean off and divide by the deviation, channel by channel."""
    m = torch.as_tensor(mean, dtype=tensor.dtype).view(-1, 1, 1)
    s = torch.as_tensor(std, dtype=tensor.dtype).view(-1, 1, 1)
    return (tensor - m) / s


def get_image_size(image: Any) -> tuple[int, int]:
    """Width and height."""
    return (image.shape[-1], image.shape[-2]) if isinstance(image, torch.Tensor) else image.size


def resize(image: Any, size: Any, interpolation: Any = Image.Resampling.BILINEAR) -> Any:
    """To a size: of the shorter side where one number is given, of both otherwise."""
    width, height = get_image_size(image)
    if isinstance(size, int) or len(size) == 1:
        short = size if isinstance(size, int) else size[0]
        share = short / min(width, height)
        wanted = (max(short, int(height * share)), max(short, int(width * share)))
        wanted = (short, wanted[1]) if height <= width else (wanted[0], short)
    else:
        wanted = both(size)
    if isinstance(image, torch.Tensor):
        return torch.nn.functional.interpolate(image[None].float(), wanted, mode="bilinear")[0]
    if isinstance(interpolation, InterpolationMode):
        interpolation = Image.Resampling[interpolation.name]
    return image.resize((wanted[1], wanted[0]), interpolation)


def crop(image: Any, top: int, left: int, height: int, width: int) -> Any:
    """The part that starts there."""
    if isinstance(image, torch.Tensor):
        return image[..., top : top + height, left : left + width]
    return image.crop((left, top, left + width, top + height))


def center_crop(image: Any, size: Any) -> Any:
    """The middle."""
    height, width = both(size)
    w, h = get_image_size(image)
    return crop(image, round((h - height) / 2), round((w - width) / 2), height, width)


def pad(image: Any, padding: Any, fill: int = 0, padding_mode: str = "constant") -> Any:
    """A border, or the image mirrored at its borders."""
    around = (padding,) * 4 if isinstance(padding, int) else tuple(padding)
    around = around * 2 if len(around) == 2 else around
    left, top, right, bottom = around
    if isinstance(image, torch.Tensor):
        mode = "constant" if padding_mode == "constant" else padding_mode
        return torch.nn.functional.pad(image[None], (left, right, top, bottom), mode)[0]
    if padding_mode == "constant":
        return ImageOps.expand(image, border=around, fill=fill)
    array = np.asarray(image)
    widths = [(top, bottom), (left, right), (0, 0)][: array.ndim]
    return Image.fromarray(np.pad(array, widths, "edge" if padding_mode == "edge" else "reflect"))


def hflip(image: Any) -> Any:
    """Mirrored."""
    return image.flip(-1) if isinstance(image, torch.Tensor) else ImageOps.mirror(image)


def vflip(image: Any) -> Any:
    """Upside down."""
    return image.flip(-2) if isinstance(image, torch.Tensor) else ImageOps.flip(image)
