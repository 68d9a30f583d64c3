"""`async=` as torch had it: parsed as it was meant, at the places where it stands."""

from __future__ import annotations

import ast

import pytest

from accelify.obsolete_keywords import modernised, parse_old


@pytest.mark.parametrize(
    ("text", "modern"),
    [
        ("x = x.cuda(async=True)\n", "x = x.cuda(non_blocking=True)\n"),
        ("f(y.to(d, async = flag), net.cuda(0, async=True))\n",
         "f(y.to(d, non_blocking = flag), net.cuda(0, non_blocking=True))\n"),
        ("x = (x\r\n     .cuda(  # now\r\n        async=not g(a)[0]))\r\n",
         "x = (x\r\n     .cuda(  # now\r\n        non_blocking=not g(a)[0]))\r\n"),
        ("é = 'async=1'; a.copy_(b, async=True)  # async=True\n",
         "é = 'async=1'; a.copy_(b, non_blocking=True)  # async=True\n"),
    ],
)  # fmt: skip
def test_moves_get_todays_name_and_keep_their_places(text: str, modern: str) -> None:
    assert modernised(text) == modern
    old, new = parse_old(text), ast.parse(modern)
    names = [k.arg for node in ast.walk(old) if isinstance(node, ast.Call) for k in node.keywords]
    assert "async" in names
    for node in ast.walk(old):
        if isinstance(node, ast.keyword) and node.arg == "async":
            assert text.splitlines()[node.lineno - 1].encode()[node.col_offset :].startswith(b"async")
            node.arg = "non_blocking"
    assert ast.dump(old) == ast.dump(new)


@pytest.mark.parametrize(
    "text",
    [
        "reader = Reader(data, async=True)\n",
        "def move(x, async=True):\n    return x.cuda(async=async)\n",
        "async = 1\n",
        "x.cuda(async=True)\nprint 'old'\n",
        "x.cuda(async=True\n",
        "x.cuda({async=True})\n",
    ],
)
def test_what_is_not_torchs_still_does_not_parse(text: str) -> None:
    with pytest.raises(SyntaxError):
        parse_old(text)


def test_what_parses_is_parsed_as_ever() -> None:
    text = "async def f(x):\n    return x.cuda(non_blocking=True)  # async=True\n"
    assert ast.dump(parse_old(text)) == ast.dump(ast.parse(text))
    assert modernised(text) == text
