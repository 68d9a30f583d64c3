"""A small stand-in for torchvision: its names, with made-up images, so that scripts run without it and without data."""

from torchvision import datasets, models, transforms, utils

__version__ = "0.28.0"
__all__ = ["datasets", "models", "transforms", "utils"]


def set_image_backend(backend: str) -> None:
    """Accepted and ignored: images are Pillow's."""
