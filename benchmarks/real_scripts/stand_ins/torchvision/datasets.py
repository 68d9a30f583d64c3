"""Datasets of made-up images: the same ones in every process and every run, and no draw from the script's generators.

How many there are says STAND_IN_TRAIN (default 149, so that the last batch is an uneven one) and STAND_IN_TEST (47).
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset

IMAGE_ENDINGS = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm")


def count(train: bool) -> int:
    """How many samples a part of a dataset has."""
    name, default = ("STAND_IN_TRAIN", 149) if train else ("STAND_IN_TEST", 47)
    return int(os.environ.get(name, default))


def pixels(label: str, index: int, shape: tuple[int, ...]) -> np.ndarray:
    """The image with that number: blocks of random grey with noise, as bytes."""
    rng = np.random.default_rng([zlib.crc32(label.encode()), index])
    blocks = rng.integers(0, 200, tuple(-(-n // 4) if k < 2 else n for k, n in enumerate(shape)))
    image = blocks.repeat(4, 0).repeat(4, 1)[: shape[0], : shape[1]]
    return (image + rng.integers(0, 56, shape)).astype(np.uint8)


class VisionDataset(Dataset):
    """What all of them have in common: a root, and what is done to samples and targets."""

    def __init__(
        self,
        root: Any = None,
        transforms: Callable[..., Any] | None = None,
        transform: Callable[..., Any] | None = None,
        target_transform: Callable[..., Any] | None = None,
    ) -> None:
        self.root = root
        self.transform, self.target_transform, self.transforms = transform, target_transform, transforms

    def _pair(self, image: Any, target: Any) -> tuple[Any, Any]:
        if self.transform is not None:
            image = self.transform(image)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return image, target


class MNIST(VisionDataset):
    """Grey images of 28 by 28 with ten labels."""

    classes = [str(n) for n in range(10)]

    def __init__(
        self,
        root: Any = None,
        train: bool = True,
        transform: Callable[..., Any] | None = None,
        target_transform: Callable[..., Any] | None = None,
        download: bool = False,
    ) -> None:
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.train = train
        label, number = f"{type(self).__name__}-{train}", count(train)
        self.data = torch.from_numpy(np.stack([pixels(label, k, (28, 28)) for k in range(number)]))
        self.targets = torch.tensor([(7 * k + k // 10) % 10 for k in range(number)])

    @property
    def train_data(self) -> torch.Tensor:
        """The images under the name of old releases."""
        return self.data

    @property
    def train_labels(self) -> torch.Tensor:
        """The labels under the name of old releases."""
        return self.targets

    test_data, test_labels = train_data, train_labels

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self._pair(Image.fromarray(self.data[index].numpy()), int(self.targets[index]))


class FashionMNIST(MNIST):
    """The same with other images."""


class KMNIST(MNIST):
    """The same with other images."""


class CIFAR10(VisionDataset):
    """Coloured images of 32 by 32."""

    classes = [f"class{n}" for n in range(10)]

    def __init__(
        self,
        root: Any = None,
        train: bool = True,
        transform: Callable[..., Any] | None = None,
        target_transform: Callable[..., Any] | None = None,
        download: bool = False,
    ) -> None:
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.train = train
        label, number, labels = f"{type(self).__name__}-{train}", count(train), len(self.classes)
        self.data = np.stack([pixels(label, k, (32, 32, 3)) for k in range(number)])
        self.targets = [(7 * k + k // 10) % labels for k in range(number)]
        self.class_to_idx = {name: number for number, name in enumerate(self.classes)}

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self._pair(Image.fromarray(self.data[index]), self.targets[index])


class CIFAR100(CIFAR10):
    """The same with a hundred labels."""

    classes = [f"class{n}" for n in range(100)]


class SVHN(CIFAR10):
    """Chosen by the name of a split; labels are an array."""

    def __init__(
        self,
        root: Any = None,
        split: str = "train",
        transform: Callable[..., Any] | None = None,
        target_transform: Callable[..., Any] | None = None,
        download: bool = False,
    ) -> None:
        super().__init__(root, split != "test", transform, target_transform, download)
        self.split = split
        self.labels = np.array(self.targets)


class DatasetFolder(VisionDataset):
    """Files in one folder for each class."""

    def __init__(
        self,
        root: Any,
        loader: Callable[[str], Any] | None = None,
        extensions: tuple[str, ...] | None = None,
        transform: Callable[..., Any] | None = None,
        target_transform: Callable[..., Any] | None = None,
        is_valid_file: Callable[[str], bool] | None = None,
    ) -> None:
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.loader = loader or default_loader
        self.classes = sorted(entry.name for entry in Path(root).iterdir() if entry.is_dir())
        self.class_to_idx = {name: number for number, name in enumerate(self.classes)}
        self.samples = [
            (str(path), number)
            for name, number in self.class_to_idx.items()
            for path in sorted(Path(root, name).rglob("*"))
            if path.suffix.lower() in (extensions or IMAGE_ENDINGS)
        ]
        self.imgs = self.samples
        self.targets = [number for _, number in self.samples]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        path, target = self.samples[index]
        return self._pair(self.loader(path), target)


class ImageFolder(DatasetFolder):
    """Images in one folder for each class."""

    def __init__(
        self,
        root: Any,
        transform: Callable[..., Any] | None = None,
        target_transform: Callable[..., Any] | None = None,
        loader: Callable[[str], Any] | None = None,
    ) -> None:
        super().__init__(root, loader, None, transform, target_transform)


class FakeData(VisionDataset):
    """Random images of any size."""

    def __init__(
        self,
        size: int = 100,
        image_size: tuple[int, int, int] = (3, 32, 32),
        num_classes: int = 10,
        transform: Callable[..., Any] | None = None,
        target_transform: Callable[..., Any] | None = None,
    ) -> None:
        super().__init__(None, transform=transform, target_transform=target_transform)
        self.size, self.shape, self.labels = size, (*image_size[1:], image_size[0]), num_classes

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self._pair(Image.fromarray(pixels("FakeData", index, self.shape)), index % self.labels)


def default_loader(path: str) -> Image.Image:
    """The image in a file, in colours."""
    return Image.open(path).convert("RGB")
