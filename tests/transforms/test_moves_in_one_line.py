"""Moves that stand in choices of one line: the statement goes as a whole, and no edit meets another one."""

from __future__ import annotations

import pytest

from tests.transforms.support import convert, place_of

OPTIONS = """\
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--gpu", action="store_true")
args = parser.parse_args()
"""


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ("x = x.cuda() if args.gpu else x", ""),
        ("x, y = x.cuda(non_blocking=True) if args.gpu else x, y.cuda() if args.gpu else y", ""),
        ("x = x.cuda() if args.gpu else x; y = y.cuda() if args.gpu else y", ""),
        ("z, y = x.cuda() if args.gpu else x, y.cuda() if args.gpu else y", "z = x"),
    ],
)
def test_choices_that_only_move_go_with_their_statement(line: str, left: str) -> None:
    converted = convert(setup=OPTIONS, batch=line).new_text
    assert place_of(converted, "batch") == left
