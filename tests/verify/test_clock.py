"""Numbers made of a clock: floats in every use, and known wherever they are shown."""

from __future__ import annotations

import copy
import json
import math
import pickle
from collections.abc import Iterator

import numpy as np
import pytest
import torch
import yaml

from accelify.verify.observe import clock
from accelify.verify.observe.clock import Clock, spans


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    clock._texts.clear()
    clock._values.clear()
    yield
    clock._texts.clear()
    clock._values.clear()


def marked(text: str) -> list[str]:
    return [text[start:end] for start, end in spans(text)]


def test_arithmetic_stays_a_clock() -> None:
    elapsed = Clock(12.5) - Clock(2.25)
    for value in (
        elapsed,
        elapsed / 60,
        100 / elapsed,
        elapsed * 2,
        -elapsed,
        abs(elapsed),
        elapsed // 1,
        elapsed % 3,
    ):
        assert type(value) is Clock
    assert type(round(elapsed, 1)) is Clock
    assert type(sum([elapsed, elapsed])) is Clock
    assert all(type(part) is Clock for part in divmod(elapsed, 3))
    assert elapsed == 10.25
    assert elapsed > 10
    assert max(elapsed, 1.0) is elapsed
    assert hash(elapsed) == hash(10.25)


def test_texts_are_known_however_they_are_made() -> None:
    elapsed = Clock(75.259) - Clock(3)
    assert marked(f"loss 0.5 in {elapsed:.2f}s") == ["72.26"]
    assert marked("loss 0.5 in " + str(elapsed)) == [repr(72.259)]
    assert marked("loss 0.5 in %.1fs" % elapsed) == ["72.3"]  # noqa: UP031
    assert marked(f"{elapsed:>9.3f}s") == ["72.259"]
    minutes = int(elapsed / 60)
    assert marked(f"{minutes}m {int(elapsed - 60 * minutes)}s, 5 left") == ["1", "12"]
    assert marked(f"{math.floor(elapsed)} {round(elapsed)}") == ["72", "72"]
    assert marked(f"mean {np.mean([elapsed, elapsed]):.2f}") == ["72.26"]


def test_longer_numbers_are_not_taken_for_it() -> None:
    text = f"{Clock(2.5):.1f}"
    assert text == "2.5"
    assert marked("12.5 2.51 2.5 v2.5.1") == ["2.5"]
    assert marked("epoch 3 loss 0.5512") == []


def test_libraries_take_it_for_a_float() -> None:
    value = Clock(1.5)
    assert json.dumps({"t": value}) == '{"t": 1.5}'
    assert json.dumps([value, {1: value}], indent=1) == json.dumps([1.5, {1: 1.5}], indent=1)
    assert np.array([value]).dtype == np.float64
    assert np.float64(1) + value == 2.5
    assert torch.tensor([value]).tolist() == [1.5]
    assert (torch.ones(2) * value).tolist() == [1.5, 1.5]
    assert (value * torch.ones(2)).tolist() == [1.5, 1.5]
    assert torch.full((1,), value).item() == 1.5
    assert type(pickle.loads(pickle.dumps(value))) is float
    assert type(copy.deepcopy(value)) is float
    clock._represented(yaml.representer)
    assert yaml.safe_dump({"t": value}) == yaml.safe_dump({"t": 1.5})
    assert yaml.dump({"t": value}) == yaml.dump({"t": 1.5})
