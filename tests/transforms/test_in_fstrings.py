"""Edits of what stands in the braces of f-strings: nested, in several lines, with quotes of their own."""

from __future__ import annotations

import ast

import pytest

from accelify.analysis.syntax import Tree
from tests.transforms.support import convert

IMPORTS = "import numpy as np"
BOTH = """device = torch.device('cuda')
model.to(device)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
"""


@pytest.mark.parametrize(
    ("places", "line"),
    [
        pytest.param(
            {"end": 'print(f"{type(model).__name__} is trained")'},
            'print(f"{type(accelerator.unwrap_model(model)).__name__} is trained")',
            id="class",
        ),
        pytest.param(
            {"end": "print(f'{model.__class__.__name__!r:>10}')"},
            "print(f'{accelerator.unwrap_model(model).__class__.__name__!r:>10}')",
            id="conversion-and-format",
        ),
        pytest.param(
            {"build": f"model = nn.Linear(4, 2)\n{BOTH}",
             "batch": 'name = f"{x.to(device).mean():.{len(str(i))}f}"'},
            'name = f"{x.mean():.{len(str(i))}f}"',
            id="move",
        ),
        pytest.param(
            {"batch": 'shown = f"{model(x.cuda()).argmax(1)[0]} of {x.cuda().shape[0]}"'},
            'shown = f"{model(x).argmax(1)[0]} of {x.shape[0]}"',
            id="two-moves",
        ),
        pytest.param(
            {"batch": 'shown = (f"first "\n    f"{x.cuda().shape[0]}"\n    " last")'},
            'f"{x.shape[0]}"',
            id="parts",
        ),
        pytest.param(
            {"batch": 'shown = f"""of\n{x.cuda().shape[0]} and\n{ y.cuda().shape }"""'},
            'shown = f"""of\n{x.shape[0]} and\n{ y.shape }"""',
            id="lines",
        ),
        pytest.param(
            {"batch": "shown = f\"{ {'x': x.cuda()}['x'].shape }\""},
            "shown = f\"{ {'x': x}['x'].shape }\"",
            id="nested-quotes",
        ),
        pytest.param(
            {"batch": "shown = f'{f\"{x.cuda().shape[0]}\" + \"!\"}'"},
            "shown = f'{f\"{x.shape[0]}\" + \"!\"}'",
            id="nested-strings",
        ),
    ],
)  # fmt: skip
def test_what_stands_in_braces_is_edited(places: dict[str, str], line: str) -> None:
    conversion = convert(**places)
    assert conversion.status == "converted", conversion.reason
    assert line.replace("\n", "\n        ") in conversion.new_text or line in conversion.new_text


def test_quotes_of_what_is_put_in_are_not_those_around() -> None:
    conversion = convert(imports=IMPORTS, end="print(f\"{model.state_dict()['weight'].numpy().max()}\")")
    assert conversion.status == "converted", conversion.reason
    compile(conversion.new_text, "train.py", "exec")


@pytest.mark.parametrize(
    "text",
    [
        'a = f"{x}"',
        'a = f"{x!r:>{width}}"',
        'a = (f"{x} "\n     f"{y.z[0]}")',
        'a = f"""\n{x + 1}\n  {f(y)}"""',
        "a = f'''{x}''' f\"{y}\"",
    ],
)
def test_every_node_has_a_place_and_its_text(text: str) -> None:
    tree = Tree(text)
    for node in ast.walk(tree.module):
        if isinstance(node, ast.expr) and tree.in_fstring(node) and not isinstance(node, ast.Constant):
            if isinstance(node, (ast.FormattedValue, ast.JoinedStr)):
                continue
            assert ast.unparse(ast.parse(tree.segment(node), mode="eval").body) == ast.unparse(node)
            assert 0 <= tree.start(node) < tree.end(node) <= len(text)
