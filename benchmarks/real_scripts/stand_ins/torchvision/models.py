"""Networks under the names of torchvision's, with the same parts, far smaller. Weights are drawn, never loaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


class BasicBlock(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample: nn.Module | None = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The block's answer."""
        way = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(x)) + way)


class ResNet(nn.Module):
    """A residual network with one block in each of its four layers."""

    def __init__(self, features: int, num_classes: int = 1000) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = nn.Sequential(BasicBlock(64, 8))
        self.layer2 = nn.Sequential(BasicBlock(8, 16, 2))
        self.layer3 = nn.Sequential(BasicBlock(16, 16, 2))
        # As many features as there, through a cheap convolution.
        self.layer4 = nn.Sequential(
            BasicBlock(16, 16, 2), nn.Conv2d(16, features, 1, bias=False), nn.BatchNorm2d(features), nn.ReLU()
        )
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(features, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores of the classes."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


class VGG(nn.Module):
    """Convolutions in the order of VGG-16 or VGG-19, a sixteenth as wide, so that layers keep their numbers."""

    def __init__(self, repeats: tuple[int, ...], num_classes: int = 1000) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inputs = 3
        for width, number in zip((4, 8, 16, 32, 32), repeats, strict=True):
            for _ in range(number):
                layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.ReLU(inplace=True)]
                inputs = width
            layers.append(nn.MaxPool2d(2, 2))
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d((7, 7))
        self.classifier = nn.Sequential(
            nn.Linear(32 * 49, 4096), nn.ReLU(True), nn.Dropout(), nn.Linear(4096, 64), nn.ReLU(True),
            nn.Dropout(), nn.Linear(64, num_classes),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores of the classes."""
        return self.classifier(torch.flatten(self.avgpool(self.features(x)), 1))


class DenseNet(nn.Module):
    """Features and a classifier, as in DenseNet-121."""

    def __init__(self, num_classes: int = 1000) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 7, 2, 3), nn.BatchNorm2d(8), nn.ReLU(True), nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(8, 1024, 1),
        )  # fmt: skip
        self.classifier = nn.Linear(1024, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores of the classes."""
        return self.classifier(torch.flatten(self.features(x), 1))


def _resnet(features: int) -> Callable[..., ResNet]:
    def make(
        pretrained: bool = False, progress: bool = True, *, weights: Any = None, **options: Any
    ) -> ResNet:
        return ResNet(features, **options)

    return make


def _vgg(*repeats: int) -> Callable[..., VGG]:
    def make(pretrained: bool = False, progress: bool = True, *, weights: Any = None, **options: Any) -> VGG:
        return VGG(repeats, **options)

    return make


def densenet121(pretrained: bool = False, *, weights: Any = None, **options: Any) -> DenseNet:
    """A small network with DenseNet-121's parts."""
    return DenseNet(**options)


resnet18, resnet34 = _resnet(512), _resnet(512)
resnet50, resnet101, resnet152 = _resnet(2048), _resnet(2048), _resnet(2048)
vgg11, vgg16, vgg19 = _vgg(1, 1, 2, 2, 2), _vgg(2, 2, 3, 3, 3), _vgg(2, 2, 4, 4, 4)


class _Weights:
    """A name of weights, which are not there: every attribute is None."""

    def __getattr__(self, name: str) -> None:
        return None


ResNet18_Weights = ResNet50_Weights = VGG16_Weights = VGG19_Weights = _Weights()
