"""Transforms of images, on Pillow and tensors. Those that are random draw from torch's generator, as theirs do."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import torch
from PIL import Image

from torchvision.transforms import functional as F
from torchvision.transforms.functional import InterpolationMode

__all__ = ["InterpolationMode", "functional"]
functional = F


class Compose:
    """One after the other."""

    def __init__(self, transforms: Sequence[Callable[[Any], Any]]) -> None:
        self.transforms = transforms

    def __call__(self, image: Any) -> Any:
        for transform in self.transforms:
            image = transform(image)
        return image


class Lambda:
    """Any function."""

    def __init__(self, lambd: Callable[[Any], Any]) -> None:
        self.lambd = lambd

    def __call__(self, image: Any) -> Any:
        return self.lambd(image)


class ToTensor:
    """An image or array as a tensor between 0 and 1, channels first."""

    def __call__(self, image: Any) -> torch.Tensor:
        return F.to_tensor(image)


class ToPILImage:
    """A tensor or array as an image."""

    def __init__(self, mode: str | None = None) -> None:
        self.mode = mode

    def __call__(self, image: Any) -> Image.Image:
        return F.to_pil_image(image)


class Normalize:
    """Take the mean off and divide by the deviation, channel by channel."""

    def __init__(self, mean: Sequence[float], std: Sequence[float], inplace: bool = False) -> None:
        self.mean, self.std = mean, std

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        return F.normalize(tensor, self.mean, self.std)


class Resize:
    """To a size: of the shorter side, or of both."""

    def __init__(self, size: Any, interpolation: Any = Image.Resampling.BILINEAR, **_: Any) -> None:
        self.size, self.interpolation = size, interpolation

    def __call__(self, image: Any) -> Any:
        return F.resize(image, self.size, self.interpolation)


Scale = Resize


class CenterCrop:
    """The middle."""

    def __init__(self, size: Any) -> None:
        self.size = F.both(size)

    def __call__(self, image: Any) -> Any:
        return F.center_crop(image, self.size)


class Pad:
    """A border."""

    def __init__(self, padding: Any, fill: int = 0, padding_mode: str = "constant") -> None:
        self.padding, self.fill, self.mode = padding, fill, padding_mode

    def __call__(self, image: Any) -> Any:
        return F.pad(image, self.padding, self.fill, self.mode)


class RandomCrop:
    """A part at a place drawn anew each time."""

    def __init__(
        self, size: Any, padding: Any = None, pad_if_needed: bool = False, fill: int = 0,
        padding_mode: str = "constant",
    ) -> None:  # fmt: skip
        self.size, self.padding, self.fill, self.mode = F.both(size), padding, fill, padding_mode

    def __call__(self, image: Any) -> Any:
        if self.padding:
            image = F.pad(image, self.padding, self.fill, self.mode)
        width, height = F.get_image_size(image)
        top = int(torch.randint(0, max(height - self.size[0], 0) + 1, (1,)))
        left = int(torch.randint(0, max(width - self.size[1], 0) + 1, (1,)))
        return F.crop(image, top, left, *self.size)


class RandomResizedCrop:
    """A part of random size, brought to one size."""

    def __init__(
        self, size: Any, scale: tuple[float, float] = (0.08, 1.0), ratio: Any = None, **_: Any
    ) -> None:
        self.size, self.scale = F.both(size), scale

    def __call__(self, image: Any) -> Any:
        width, height = F.get_image_size(image)
        share = torch.empty(1).uniform_(*self.scale).item() ** 0.5
        h, w = max(1, int(height * share)), max(1, int(width * share))
        top = int(torch.randint(0, height - h + 1, (1,)))
        left = int(torch.randint(0, width - w + 1, (1,)))
        return F.resize(F.crop(image, top, left, h, w), self.size)


class RandomHorizontalFlip:
    """Mirrored, as often as not."""

    def __init__(self, p: float = 0.5) -> None:
        self.p = p

    def __call__(self, image: Any) -> Any:
        return F.hflip(image) if torch.rand(1).item() < self.p else image


class RandomVerticalFlip(RandomHorizontalFlip):
    """Upside down, as often as not."""

    def __call__(self, image: Any) -> Any:
        return F.vflip(image) if torch.rand(1).item() < self.p else image


class RandomRotation:
    """Turned by some degrees."""

    def __init__(self, degrees: Any, *_: Any, **__: Any) -> None:
        self.degrees = (-degrees, degrees) if isinstance(degrees, (int, float)) else tuple(degrees)

    def __call__(self, image: Any) -> Any:
        return image.rotate(torch.empty(1).uniform_(*self.degrees).item())


class Grayscale:
    """Without colours."""

    def __init__(self, num_output_channels: int = 1) -> None:
        self.channels = num_output_channels

    def __call__(self, image: Any) -> Any:
        grey = image.convert("L")
        return grey if self.channels == 1 else grey.convert("RGB")


class RandomChoice:
    """One of several, drawn from Python's generator as torchvision does."""

    def __init__(self, transforms: Sequence[Callable[[Any], Any]]) -> None:
        self.transforms = transforms

    def __call__(self, image: Any) -> Any:
        return random.choice(self.transforms)(image)
