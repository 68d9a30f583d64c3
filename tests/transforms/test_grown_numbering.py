"""Numberings that grow while a loop trains."""

from __future__ import annotations

import pytest

from tests.transforms.support import codes, convert

VOCABULARY = """
class Vocabulary:
    def __init__(self):
        self.index, self.size = {{}}, 0

    def number(self, word):
        if word not in self.index:
            {add}
        return self.index[word]

    def numbers(self, words):
        return [self.number(word) for word in words]

vocabulary, index = Vocabulary(), dict()
"""
LENGTH = "self.index[word] = len(self.index)"
COUNT = "self.index[word] = self.size; self.size += 1"
ASKED = "t = torch.tensor(vocabulary.numbers(y.tolist()))"


@pytest.mark.parametrize(
    ("add", "batch"),
    [
        (LENGTH, ASKED),
        (COUNT, ASKED),
        ("pass", "for word in y.tolist():\n    if word not in index:\n        index[word] = len(index)"),
    ],
)
def test_what_is_numbered_in_the_loop_is_named(add: str, batch: str) -> None:
    conversion = convert(setup=VOCABULARY.format(add=add), batch=batch)
    assert "ACC431" in codes(conversion)
    assert conversion.new_text.count("TODO(accelify ACC431)") == 1


@pytest.mark.parametrize(
    ("add", "ready", "batch"),
    [
        (LENGTH, "vocabulary.numbers(range(9))", "t = y"),
        ("self.index[word] = 1", "", ASKED),
        ("pass", "", "own = {}\nfor word in y.tolist():\n    own[word] = len(own)"),
        ("pass", "", "index[i] = len(y)"),
    ],
)
def test_what_is_numbered_before_or_anew_is_not(add: str, ready: str, batch: str) -> None:
    assert "ACC431" not in codes(convert(setup=VOCABULARY.format(add=add), ready=ready, batch=batch))
