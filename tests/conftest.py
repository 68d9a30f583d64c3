"""Tests that are marked `gpu` are skipped on a machine without a CUDA device."""

import pytest


def pytest_runtest_setup(item):
    if item.get_closest_marker("gpu") is None:
        return
    import torch

    if not torch.cuda.is_available():
        pytest.skip("there is no CUDA device here")
