import collections
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from accelify.runtime import (
    concatenate,
    convert_outputs_to_fp32,
    find_batch_size,
    pad_input_tensors,
    recursively_apply,
    send_to_device,
    slice_tensors,
)
from accelify.runtime.nested import leaves

Point = collections.namedtuple("Point", "x y")


@dataclass
class Batch:
    x: torch.Tensor
    name: str = "a"


def sample(value=1.0):
    return {
        "list": [torch.full((3,), value), (torch.full((3, 2), value), 5)],
        "point": Point(torch.full((3,), value), None),
        "batch": Batch(torch.full((3,), value)),
        "text": "abc",
        "ordered": collections.OrderedDict(a=torch.full((3,), value)),
        "default": collections.defaultdict(list, b=torch.full((3,), value)),
    }


def test_containers_keep_their_types():
    done = recursively_apply(lambda t: t + 1, sample())
    assert isinstance(done["list"], list)
    assert isinstance(done["list"][1], tuple)
    assert isinstance(done["point"], Point)
    assert isinstance(done["batch"], Batch)
    assert type(done["ordered"]) is collections.OrderedDict
    assert type(done["default"]) is collections.defaultdict
    assert done["default"]["new"] == []
    assert done["text"] == "abc"
    assert done["list"][1][1] == 5
    assert all((t == 2).all() for t in leaves(done) if isinstance(t, torch.Tensor))


def test_other_leaves_are_an_error_when_asked():
    with pytest.raises(TypeError, match="not on str"):
        recursively_apply(lambda t: t, {"a": "b"}, error_on_other_type=True)


def test_sizes_slices_and_joins():
    assert find_batch_size(sample()) == 3
    assert find_batch_size([torch.tensor(1.0), "a"]) is None
    part = slice_tensors(sample(), slice(1, 3))
    assert part["batch"].x.shape == (2,)
    assert part["list"][1][0].shape == (2, 2)
    joined = concatenate([{"a": [torch.ones(2), Point(torch.tensor(1.0), torch.ones(1))]}] * 2)
    assert joined["a"][0].shape == (4,)
    assert joined["a"][1].x.shape == (2,)
    with pytest.raises(TypeError, match="concatenate joins tensors"):
        concatenate(["a", "b"])


class OwnBatch:
    def __init__(self):
        self.device = "here"

    def to(self, device):
        self.device = device
        return self


def test_objects_with_a_to_of_their_own_are_moved():
    moved = send_to_device({"own": OwnBatch(), "t": torch.ones(2), "class": OwnBatch, "n": 3}, "meta")
    assert moved["own"].device == "meta"
    assert moved["t"].device.type == "meta"
    assert moved["class"] is OwnBatch
    kept = send_to_device({"a": torch.ones(1), "b": torch.ones(1)}, "meta", skip_keys="b")
    assert (kept["a"].device.type, kept["b"].device.type) == ("meta", "cpu")


def test_half_precision_outputs_become_float32():
    forward = convert_outputs_to_fp32(
        lambda: {"a": torch.ones(1, dtype=torch.bfloat16), "n": torch.ones(1).long()}
    )
    assert forward()["a"].dtype == torch.float32
    assert forward()["n"].dtype == torch.int64


@given(st.integers(1, 40), st.integers(1, 8))
def test_padded_batches_divide(size, ranks):
    padded = pad_input_tensors((torch.arange(size), torch.ones(3)), size, ranks)
    assert padded[0].shape[0] % ranks == 0
    assert padded[0][:size].tolist() == list(range(size))
    assert set(padded[0][size:].tolist()) <= {size - 1}
