"""Assertions in the helpers show both sides, as in the tests themselves."""

import pytest

pytest.register_assert_rewrite("tests.transforms.support")
