"""Notebooks: cells are converted in place; magics, outputs and whatever no edit touches stay byte for byte."""

from __future__ import annotations

import difflib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from accelify.conversion import CONVERTED, REFUSED, Conversion, ConvertOptions
from accelify.convert import convert_source
from accelify.notebook import NotebookSource
from accelify.source import Source, SourceError, find_scripts, split_lines
from tests.cli.conftest import PLAIN, Run, plain, run  # noqa: F401

# Beside no other modules, which the analysis would follow.
BOOK = Path("/nowhere/nb.ipynb")
HEAD = """\
%matplotlib inline
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
!pip install -q nothing \\
    --quiet
?torch
"""
SETUP = """\
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.manual_seed(0)
data = TensorDataset(torch.randn(32, 4), torch.randn(32, 1))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = torch.nn.Linear(4, 1).to(device)  # größer
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
files = !ls
model?"""
TRAIN = """\
%%time
losses = []
for epoch in range(2):
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print("epoch %d, loss %.3f"
          % (epoch, loss.item()))
    %timeit -n 1 len(losses)
"""
CELLS = [
    ("markdown", "# Title\nwith `loss.backward()`"),
    ("code", HEAD),
    ("code", "%%bash\necho 'it is no Python'\nfor x in 1 2; do echo $x; done"),
    ("code", SETUP),
    ("code", ""),
    ("code", TRAIN),
    ("code", 'print("last: %s"\n      % losses[-1])'),
]
OUTPUT = {"name": "stdout", "output_type": "stream", "text": ["epoch 0,\tloss\n", "\u2028 é \\u00e9\n"]}


def lines_of(text: str) -> list[str]:
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def notebook(cells: list[tuple[str, str]], *, as_list: bool = True, **extra: Any) -> dict[str, Any]:
    made = []
    for kind, text in cells:
        cell: dict[str, Any] = {"cell_type": kind, "metadata": {"tags": ["a", 1.50]}}
        if kind == "code":
            cell |= {"execution_count": 7, "outputs": [OUTPUT]}
        made.append(cell | {"source": lines_of(text) if as_list else text})
    return {
        "cells": made,
        "metadata": {"kernelspec": {"language": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    } | extra


def old_notebook(cells: list[tuple[str, str]]) -> dict[str, Any]:
    made = [
        {"cell_type": kind, "input" if kind == "code" else "source": lines_of(text), "language": "python"}
        for kind, text in cells
    ]
    return {
        "metadata": {"name": ""},
        "nbformat": 3,
        "nbformat_minor": 0,
        "worksheets": [{"cells": made, "metadata": {}}],
    }


def convert(data: bytes) -> tuple[Conversion, bytes]:
    source = Source.from_bytes(data, BOOK)
    conversion = convert_source(source, ConvertOptions())
    return conversion, source.encode(conversion.new_text)


def codes(data: bytes) -> list[str]:
    content = json.loads(data.decode("utf-8-sig"))
    cells = content["cells"] if "cells" in content else content["worksheets"][0]["cells"]
    found = [cell.get("source", cell.get("input")) for cell in cells if cell["cell_type"] == "code"]
    return [text if isinstance(text, str) else "".join(text) for text in found]


WRITTEN = {
    "as Jupyter writes it": lambda content: json.dumps(content, indent=1, ensure_ascii=False) + "\n",
    "two blanks, escaped": lambda content: json.dumps(content, indent=2),
    "compact": lambda content: json.dumps(content, separators=(",", ":")),
    "one line": lambda content: json.dumps(content, ensure_ascii=False),
    "Windows": lambda content: json.dumps(content, indent=1, ensure_ascii=False).replace("\n", "\r\n"),
    "byte-order mark, tabs": lambda content: "\ufeff" + json.dumps(content, indent="\t", ensure_ascii=False),
}


@pytest.mark.parametrize("written", WRITTEN)
@pytest.mark.parametrize("made", [notebook, lambda cells: notebook(cells, as_list=False), old_notebook])
def test_converted_in_place(written: str, made: Any) -> None:
    data = WRITTEN[written](made(CELLS)).encode()
    conversion, new = convert(data)
    assert conversion.status == CONVERTED, conversion.reason
    before, after = codes(data), codes(new)
    assert "from accelify.runtime import Accelerator\n" in after[0]
    assert after[0].startswith("%matplotlib inline\nimport torch\n")
    assert after[0].endswith("!pip install -q nothing \\\n    --quiet\n?torch\n")
    assert after[1] == before[1]
    assert "accelerator.prepare(model, optimizer, loader)" in after[2]
    assert "files = !ls\nmodel?" in after[2]
    assert after[4].startswith("%%time\nlosses = []\n")
    assert "        accelerator.backward(loss)\n" in after[4]
    assert "    %timeit -n 1 len(losses)\n" in after[4]
    assert "accelify-magic" not in new.decode()
    # Everything but the cells that changed is where it was, byte for byte.
    same = rest(new) == rest(data)
    assert same
    again, twice = convert(new)
    same = twice == new and not again.changed
    assert same
    assert again.applied == []


def rest(data: bytes) -> str:
    """The notebook's text without the sources of its code cells."""
    source = Source.from_bytes(data, BOOK)
    assert isinstance(source, NotebookSource)
    text = source.raw
    for cell in reversed(source.cells):
        text = text[: cell.start] + text[cell.end :]
    return text


def test_lines_that_stay_keep_their_escapes_and_indentation() -> None:
    data = json.dumps(notebook(CELLS), indent=3).replace("gr\\u00f6\\u00dfer", "gr\\u00F6ßer").encode()
    conversion, new = convert(data)
    assert conversion.changed
    old_lines, new_lines = data.decode().splitlines(True), new.decode().splitlines(True)
    changed = [
        (old_lines[i1:i2], new_lines[j1:j2])
        for kind, i1, i2, j1, j2 in difflib.SequenceMatcher(None, old_lines, new_lines).get_opcodes()
        if kind != "equal"
    ]
    assert all(line.startswith('            "') for _, lines in changed for line in lines)
    assert "   # gr\\u00F6ßer" not in new.decode()
    assert "optimizer.zero_grad()\\n" in new.decode()


def test_findings_stand_in_their_cells() -> None:
    source = Source.from_bytes(json.dumps(notebook(CELLS)).encode(), BOOK)
    conversion = convert_source(source, ConvertOptions())
    texts = [text for _, text in CELLS]
    backward = next(source.place(f) for f in conversion.applied if f.code == "ACC107")
    assert backward.place == f"{BOOK}:cell 6:8:9"
    assert split_lines(texts[5])[backward.line - 1].strip() == "loss.backward()"
    assert source.place(backward) == backward
    for finding in [*conversion.applied, *conversion.remaining]:
        placed = source.place(finding)
        assert 1 <= placed.line <= placed.end_line or not placed.end_line
        assert placed.line <= len(split_lines(texts[placed.cell - 1]))
    hint = [finding for finding in conversion.remaining if finding.code == "ACC501"]
    assert [(str(f.severity), f.fixable, source.place(f).cell) for f in hint] == [("info", False, 4)]
    assert "notebook_launcher" in hint[0].message


def test_the_advice_names_what_earlier_cells_read() -> None:
    fit = """\
import torch

def fit(net, optimizer):
    for x, y in loader:
        (net(x) - y).pow(2).mean().backward()
        optimizer.step()
"""
    make = """\
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(8, 2), torch.randn(8, 2)))
net = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
fit(net, optimizer)
"""
    source = Source.from_bytes(json.dumps(notebook([("code", fit), ("code", make)])).encode(), BOOK)
    (hint,) = [f for f in convert_source(source, ConvertOptions()).remaining if f.code == "ACC501"]
    assert source.place(hint).cell == 2
    assert "let it begin with `global accelerator, loader`" in hint.message


def test_the_converted_notebook_gives_the_same_losses() -> None:
    pytest.importorskip("torch")
    body = TRAIN.removeprefix("%%time\n").removesuffix("    %timeit -n 1 len(losses)\n")
    setup = SETUP.replace("files = !ls\nmodel?", "model")
    imports = "".join(line for line in lines_of(HEAD) if line.startswith(("import", "from")))
    data = json.dumps(notebook([("code", text) for text in (imports, setup, body, CELLS[-1][1])])).encode()
    conversion, new = convert(data)
    assert conversion.status == CONVERTED
    assert "accelerator.backward(loss)" in "".join(codes(new))
    losses = []
    for version in (data, new):
        names: dict[str, Any] = {"__name__": "__main__"}
        for number, cell in enumerate(codes(version)):
            exec(compile(cell, f"cell {number}", "exec", dont_inherit=True), names)
        losses.append(names["losses"])
    assert len(losses[0]) == 8
    assert losses[0] == losses[1]


KEPT = [
    "%matplotlib inline",
    "%time x = 1",
    "% timeit sum([1])",
    "%timeit -n 10 sum([1])",
    "x = %env HOME",
    "x, y = !ls",
    "!ls {x} | grep 'it''s",
    "!!ls",
    "!pip install \\\n  torch \\\n  numpy\nx = 1",
    "?print",
    "print??",
    "torch.nn.Linear?",
    "%psearch a*?",
    "if True:\n    !ls\nelse:\n    %cd ..\n",
    "def f():\n\t%time sum([1])\n",
    "x = ('%d'\n%(1))\n%who",
    's = """\n%no magic\n!none\n"""\n%who',
    "x = 7 \\\n%3\n%who",
    "%%bash\nrm -f it's",
    "\n\n%%html\n<b>",
    "%%time\n%who\nx = 1",
    "%%capture out\nimport os\n",
    "%%writefile train.py\nloss.backward()\n",
    "x =  # TODO\ny = 1\n",
    "some notes, no code",
    "await f()\nasync for x in y:\n    pass",
    "return 1",
    "  indented = 1",
    "x = '\u2028\x0b' # \x0c\n%who \u2028 \x00",
    "\ud800",
    "x = 1 \\",
    "%time f(\n",
    "# accelify-magic 0: x\n%who",
    "# %% cell 2\nx = 1",
    "x = 1\r\n%who\r\n",
    "x = 1\r%who\ry = 2",
]


@pytest.mark.parametrize("text", KEPT)
def test_what_is_masked_comes_back_line_for_line(text: str) -> None:
    data = json.dumps(notebook([*CELLS, ("code", text), ("code", "z = 1")])).encode()
    source = Source.from_bytes(data, BOOK)
    assert isinstance(source, NotebookSource)
    assert source.tree
    masked = next(cell for cell in source.cells if cell.number == 8)
    assert len(split_lines(masked.masked)) == len(split_lines(text))
    same = source.encode() == data
    assert same
    conversion, new = convert(data)
    assert conversion.status == CONVERTED, conversion.reason
    assert codes(new)[6:] == [text, "z = 1"]
    same = convert(new)[1] == new
    assert same


def test_python_in_brackets_and_strings_is_no_magic() -> None:
    source = Source.from_bytes(
        json.dumps(notebook([("code", KEPT[15]), ("code", KEPT[16])])).encode(), Path("a.ipynb")
    )
    assert isinstance(source, NotebookSource)
    assert "\n%(1))\n# accelify-magic" in source.text
    assert '\n%no magic\n!none\n"""\n# accelify-magic' in source.text


def test_a_cell_that_is_no_python_is_said() -> None:
    cells = [*CELLS, ("code", "x = 1\nother_model = # TODO\n")]
    source = Source.from_bytes(json.dumps(notebook(cells)).encode(), BOOK)
    conversion = convert_source(source, ConvertOptions())
    assert conversion.status == CONVERTED
    left = [source.place(finding) for finding in conversion.remaining if finding.code == "ACC502"]
    assert [finding.place for finding in left] == [f"{BOOK}:cell 8:2:1"]
    assert str(left[0].severity) == "warning"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (r"cd drive/My\ Drive", False),
        ("mkdir -p 'my models'\n", False),
        ("pip install torch", False),
        ("cd somewhere\nx = 1", True),  # IPython takes a magic without its % only where it is all of the cell
        ("cd = other model", True),
        ("net = Net(10 5)", True),
        ("time train(model)", True),
    ],
)
def test_a_magic_without_its_sign(text: str, said: bool) -> None:
    source = Source.from_bytes(json.dumps(notebook([("code", text), *CELLS])).encode(), BOOK)
    conversion = convert_source(source, ConvertOptions())
    assert conversion.status == CONVERTED
    assert ("ACC502" in {f.code for f in conversion.remaining}) is said
    assert text in [
        "".join(cell["source"]) for cell in json.loads(source.encode(conversion.new_text))["cells"]
    ]


def test_a_cell_that_is_no_python_is_said_where_the_notebook_is_refused() -> None:
    train = """\
def train(net):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for x in data:
        net(x).mean().backward()
        optimizer.step()
"""
    cells = [("code", "import torch"), ("code", train), ("code", "n =\nnet = Net(n)"), ("code", "train(net)")]
    source = Source.from_bytes(json.dumps(notebook(cells)).encode(), BOOK)
    conversion = convert_source(source, ConvertOptions())
    assert conversion.status == "refused"
    assert {f.code for f in conversion.remaining} == {"ACC004", "ACC502"}


def test_a_timed_statement_is_converted() -> None:
    train = """\
def train(model):
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
"""
    cells = [
        ("code", HEAD),
        ("code", SETUP),
        ("code", train),
        ("code", "%time train(model.to(device))  # go"),
    ]
    conversion, new = convert(json.dumps(notebook(cells)).encode())
    assert conversion.status == CONVERTED, conversion.reason
    last = codes(new)[-1]
    assert last.startswith("%time train(model")
    assert last.endswith("  # go")
    assert ".to(device)" not in last
    moved = next(f for f in map(conversion.source.place, conversion.applied) if f.cell == 4)
    assert moved.line == 1
    assert moved.column > len("%time ")


@example(["\r"], "Windows", False)
@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.text(max_size=40) | st.sampled_from(KEPT), max_size=6),
    st.sampled_from(sorted(WRITTEN)),
    st.booleans(),
)
def test_any_cells_come_back(texts: list[str], written: str, as_list: bool) -> None:
    cells = [("code", text) for text in texts if "backward" not in text]
    content = notebook([*CELLS, *cells], as_list=as_list)
    try:
        data = WRITTEN[written](content).encode()
        source = Source.from_bytes(data, BOOK)
    except (UnicodeEncodeError, SourceError):
        return
    assert isinstance(source, NotebookSource)
    assert source.tree
    same = source.encode() == data
    assert same
    conversion, new = convert(data)
    assert conversion.status == CONVERTED, conversion.reason
    assert codes(new)[6:] == [text for _, text in cells]
    same = rest(new) == rest(data)
    assert same
    same = convert(new)[1] == new
    assert same


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "line 1: not a notebook, its JSON is broken"),
        (b'{"cells": [\n<<<<<<< HEAD\n]}', "line 2: not a notebook, its JSON is broken"),
        (b"[1, 2]", "is JSON but no notebook"),
        (b'{"a": 1}', "is JSON but no notebook"),
        (b'{"cells": []}', "has no code"),
        (b'{"cells": 3}', "is no notebook, as its cells are no list"),
        (b'{"cells": [3, {"cell_type": "code"}, {"cell_type": "code", "source": 4}]}', "has no code"),
        (json.dumps(notebook([("markdown", "x"), ("code", " \n")])).encode(), "has no code"),
        (b'{"cells": ["\xff"]}', "line 1: not valid UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (
            json.dumps(notebook([("code", "x <- 1")], metadata={"language_info": {"name": "R"}})).encode(),
            "holds r, not Python",
        ),
        (
            json.dumps(notebook([("code", "x = 1"), ("code", 'x = 1\nprint "old"')])).encode(),
            "cell 2, line 2: this is Python 2",
        ),
        (
            json.dumps(notebook([("code", "Reader(x, async=True)")])).encode(),
            "cell 1, line 1: `async` is a keyword",
        ),
        (
            json.dumps(notebook([("code", "x =\nloss.backward()")])).encode(),
            "cell 1, line 1: not valid Python",
        ),
    ],
)
def test_what_is_no_notebook_gets_one_sentence(tmp_path: Path, data: bytes, says: str) -> None:
    path = tmp_path / "nb.ipynb"
    path.write_bytes(data)
    with pytest.raises(SourceError) as caught:
        Source.read(path)
    sentence = str(caught.value)
    assert says in sentence
    assert sentence.startswith(str(path))
    assert "\n" not in sentence
    assert caught.value.path == path


def test_edits_over_the_border_of_a_cell_leave_the_notebook_alone() -> None:
    source = Source.from_bytes(json.dumps(notebook(CELLS)).encode(), BOOK)
    assert isinstance(source, NotebookSource)
    for broken, says in (
        (source.text.replace("# %% cell 6", "    # %% cell 6"), "borders of cells"),
        (source.text.replace("\n# accelify-magic 0: %matplotlib inline", ""), "a magic out of cell 2"),
    ):
        assert says in source.problem(broken)
        conversion = source.finished(Conversion(source, CONVERTED, new_text=broken), "accelify")
        assert (conversion.status, conversion.changed) == (REFUSED, False)
        with pytest.raises(SourceError, match=says):
            source.encode(broken)


@pytest.fixture
def book(tmp_path: Path) -> Path:
    path = tmp_path / "nb.ipynb"
    path.write_text(WRITTEN["as Jupyter writes it"](notebook(CELLS)))
    return path


def test_convert_in_place_and_to_elsewhere(run: Run, book: Path) -> None:  # noqa: F811
    old = book.read_bytes()
    outcome = run("convert", book, "--output", "-")
    new = outcome.stdout
    assert (outcome.code, book.read_bytes()) == (0, old)
    assert run("convert", "-", stdin=old).stdout == new
    elsewhere = book.parent / "out" / "other.ipynb"
    outcome = run("convert", book, "--output", elsewhere)
    assert (outcome.code, elsewhere.read_bytes()) == (0, new)
    assert f"{elsewhere}:cell 4:" in outcome.out
    outcome = run("convert", book)
    assert outcome.code == 0
    assert "averaged the gradients over the processes (cell 6:8) ACC712" in outcome.out
    assert f"{book}:cell 4:" in outcome.out
    assert book.read_bytes() == new != old
    assert run("check", book).out == ""
    assert run("convert", book).code == 0
    assert book.read_bytes() == new


def test_diff_is_of_the_cells(run: Run, book: Path) -> None:  # noqa: F811
    outcome = run("convert", book, "--diff")
    assert f"+++ b/{str(book).lstrip('/')}:cell 6\n" in outcome.out
    assert "+        accelerator.backward(loss)\n" in outcome.out
    assert "\n ?torch\n" in outcome.out or "\n     --quiet\n" in outcome.out
    assert ":cell 3" not in outcome.out
    assert "accelify-magic" not in outcome.out
    assert "No newline" not in outcome.out, "cells end without one"


def test_check_names_cell_and_line(run: Run, book: Path) -> None:  # noqa: F811
    assert f"{book}:cell 6:8:9: ACC712 [*]" in run("check", book).out
    found = json.loads(run("check", book, "--output-format", "json").out)
    backward = next(finding for finding in found if finding["code"] == "ACC712")
    assert (backward["file"], backward["cell"], backward["line"]) == (str(book), 6, 8)
    assert "cell 6, line 8" in run("check", book, "--output-format", "github").out
    assert [f["cell"] for f in found] == sorted(f["cell"] for f in found)
    report = json.loads(run("convert", book, "--diff", "--json").out)
    assert {finding["cell"] for finding in report["files"][0]["applied"]} == {2, 4, 6, 7}


def test_folders_are_searched_for_notebooks(run: Run, book: Path, plain: Path) -> None:  # noqa: F811
    (book.parent / ".ipynb_checkpoints").mkdir()
    (book.parent / ".ipynb_checkpoints" / "nb.ipynb").write_bytes(book.read_bytes())
    (book.parent / "plot.ipynb").write_text(json.dumps(notebook([("code", "import torch")])))
    assert find_scripts(book.parent).scripts == [book, plain]
    assert run("convert", book.parent).code == 0
    assert b"accelerator" in book.read_bytes()
    assert "accelerator" in plain.read_text()
    assert plain.read_text() != PLAIN


def test_the_report_page_takes_notebooks(run: Run, book: Path) -> None:  # noqa: F811
    page = book.parent / "page.html"
    assert run("convert", book, "--diff", "--report", page).code == 0
    assert f"{book}:cell 4:" in page.read_text()


def test_the_import_comes_first_where_a_comment_heads_the_first_cell() -> None:
    train = (
        "model = nn.Linear(4, 2)\noptimizer = optim.Adam(model.parameters())\nfor step in range(3):\n"
        "    loss = model(torch.randn(8, 4)).pow(2).mean()\n    optimizer.zero_grad()\n    loss.backward()\n"
        "    optimizer.step()"
    )
    texts = [
        "# the text of the file\nwith open('text') as f:\n    text = f.read()\n\nprint(text[:9])",
        "import torch\nfrom torch import nn, optim",
        train,
    ]
    conversion, new = convert(json.dumps(notebook([("code", text) for text in texts])).encode())
    assert conversion.status == CONVERTED, conversion.reason
    lines = codes(new)[0].splitlines()
    assert lines[:2] == ["from accelify.runtime import Accelerator", ""]
    assert lines.index("# the text of the file") + 1 == lines.index("with open('text') as f:")


def test_neighbours_in_two_cells_get_a_guard_each() -> None:
    guarded = ["import os\nos.makedirs('a')", "os.makedirs('b')\nos.makedirs('c')"]
    conversion, new = convert(json.dumps(notebook([*CELLS, *[("code", text) for text in guarded]])).encode())
    assert conversion.status == CONVERTED, conversion.reason
    assert codes(new)[-2:] == [
        "import os\nif accelerator.is_main_process:\n    os.makedirs('a')",
        "if accelerator.is_main_process:\n    os.makedirs('b')\n    os.makedirs('c')",
    ]
