import pytest

from accelify.runtime import AcceleratorState, GradientState


@pytest.fixture(autouse=True)
def _fresh_state():
    """Shared state starts anew in every test."""
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    yield
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
