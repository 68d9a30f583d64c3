"""Small tensors that travel in the message that ranks exchange before a collective."""

import pytest
import torch

from accelify.runtime.messages import Message, Rooms, signature_within

KINDS = [
    torch.float32,
    torch.float16,
    torch.int64,
    torch.uint8,
    torch.bool,
    torch.complex64,
    torch.complex128,
]


def _sent(message):
    """As every rank has it when all have sent the same."""
    message.all.copy_(message.mine.repeat(message.ranks))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ranks", [2, 3, 7])
@pytest.mark.parametrize("shape", [(), (5,), (2, 3)])
def test_a_tensor_comes_as_it_was_sent(kind, ranks, shape):
    message, tensor = Message(ranks, 4096), (torch.randn(shape) * 4).to(kind)
    assert message.takes(tensor)
    message.put(tensor)
    message.begin(1, -3)
    _sent(message)
    assert message.agrees()
    parts = message.parts(tensor)
    assert parts.shape == (ranks, *shape)
    assert all(torch.equal(part, tensor) for part in parts)
    message.put(torch.zeros_like(tensor))
    _sent(message)
    assert all(torch.equal(part, tensor) for part in parts)  # not the next one's


def test_one_rank_with_another_head_is_seen():
    message = Message(3, 0)
    message.begin(4, 2**63 - 1)
    _sent(message)
    assert message.agrees()
    message.all.view(3, -1)[2, 1] -= 1
    assert not message.agrees()


def test_what_does_not_fit_is_not_taken():
    message = Message(2, 16384)
    assert message.takes(torch.zeros(4096))
    assert not message.takes(torch.zeros(4097))
    assert not message.takes(torch.zeros(0))
    assert not message.takes(torch.eye(3).to_sparse())
    assert not message.takes(torch.zeros(2, dtype=torch.complex64).conj())
    assert not message.takes(torch.zeros(2, device="meta"))
    assert not Message(2, 0).takes(torch.zeros(1))


def test_there_is_room_for_what_came_the_last_time():
    large = torch.zeros(50_000)
    rooms = Rooms(2, with_room=True)
    assert not rooms.expected().takes(large)
    for round_ in range(3):
        # A large tensor after a barrier, a small one after that: from the second round on both are expected.
        message = rooms.after("a barrier", 0)
        assert message.takes(large) == (round_ > 0)
        message = rooms.after("a large gather", large.nbytes)
        assert message.takes(torch.zeros(100))
        assert not message.takes(large)
        rooms.after("a small gather", 400)
    # More than a message ever has, of all ranks together.
    for _ in range(2):
        message = rooms.after("a barrier", 0)
        rooms.after("a huge gather", 1 << 22)
    assert not message.takes(torch.zeros(1 << 20))


def test_without_room_nothing_travels():
    rooms = Rooms(2, with_room=False)
    for _ in range(3):
        rooms.after("a gather", 64)
        assert not rooms.expected().takes(torch.zeros(16))


def test_all_that_must_agree_is_in_the_signature():
    told, number = signature_within("gather", torch.float32, torch.Size([2, 3]))
    assert told == "gather of float32[2, 3]"
    others = [
        signature_within("reduce", torch.float32, torch.Size([2, 3])),
        signature_within("gather", torch.float16, torch.Size([2, 3])),
        signature_within("gather", torch.float32, torch.Size([3, 2])),
    ]
    assert number not in {other for _, other in others}
