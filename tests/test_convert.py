"""The road from a script to a conversion: status, reason, findings, options."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from accelify import convert as road
from accelify.conversion import ConvertOptions
from accelify.convert import convert_paths, convert_source
from accelify.findings import Severity
from accelify.source import Source, SourceError
from accelify.transforms.base import Change, Context, Rule
from accelify.writer.edits import replace
from tests.transforms.support import PATH, codes, convert, frame


def source(text: str) -> Source:
    return Source.from_text(text, PATH)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no training loop"),
        ("print('hello')\n", "no training loop"),
        ("import torch\nx = torch.zeros(3)\n", "no training loop"),
        ("import torch\nopt = torch.optim.SGD\n", "no training loop"),
        ("# torch backward\n", "no training loop"),
        ("from accelify.runtime import Accelerator\n# torch: loss.backward()\n", "converted already"),
        ("import accelify.runtime as r\n# torch: loss.backward()\n", "converted already"),
    ],
)
def test_nothing_to_do(text: str, reason: str) -> None:
    conversion = convert_source(source(text))
    assert conversion.status == "unchanged"
    assert reason in conversion.reason
    assert conversion.new_text == text
    assert not conversion.changed
    assert conversion.applied == conversion.remaining == []


@pytest.mark.parametrize("text", ["def f(:\n", "import torch\nprint 'backward'\n"])
def test_not_python(text: str) -> None:
    with pytest.raises(SourceError, match=r"train\.py"):
        convert_source(source(text))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("import torch\nx = torch.zeros(3, requires_grad=True)\nx.sum().backward()\n", "ACC003"),
        (frame(backward="torch.autograd.backward([loss, loss], [None, loss.detach()])"), "ACC008"),
    ],
)
def test_refused(text: str, code: str) -> None:
    conversion = convert_source(source(text))
    assert conversion.status == "refused"
    assert conversion.new_text == text
    assert conversion.reason
    assert conversion.applied == []
    assert {f.code for f in conversion.remaining} == {code}
    assert all(f.severity is Severity.ERROR and not f.fixable for f in conversion.remaining)


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("import deepspeed", "DeepSpeed"),
        ("from accelerate import Accelerator", "Accelerate"),
        ("import pytorch_lightning as pl", "Lightning"),
        ("torch.distributed.init_process_group('gloo')", "distributed"),
    ],
)
def test_a_script_that_is_distributed_already_is_left_alone(line: str, word: str) -> None:
    conversion = convert_source(source(frame(imports=line)))
    assert not conversion.changed
    assert conversion.status in ("refused", "unchanged")
    assert word.lower() in conversion.reason.lower()


def test_the_batch_size_option_splits_batches() -> None:
    assert "split_batches" not in convert().new_text
    assert "Accelerator(split_batches=True" in convert("total").new_text


def test_findings_are_sorted_and_point_at_the_old_lines() -> None:
    conversion = convert(epoch="print(loss)", end="torch.save(model.state_dict(), 'm.pt')")
    assert conversion.applied == sorted(conversion.applied)
    lines = conversion.source.text.splitlines()
    by_code = {f.code: lines[f.line - 1].strip() for f in conversion.applied}
    assert by_code["ACC107"] == "loss.backward()"
    assert by_code["ACC201"] == "print(loss)"
    assert by_code["ACC206"] == "torch.save(model.state_dict(), 'm.pt')"
    assert codes(conversion) >= {"ACC101", "ACC102", "ACC106"}
    assert {f.path for f in conversion.applied} == {str(PATH)}


def test_columns_count_characters() -> None:
    conversion = convert(epoch="é = 'ü'; print(loss)")
    (finding,) = [f for f in conversion.applied if f.code == "ACC201"]
    assert conversion.source.text.splitlines()[finding.line - 1][finding.column - 1 :] == "print(loss)"


@pytest.mark.parametrize("newline", ["\r\n", "\n"])
@pytest.mark.parametrize("final", [True, False])
def test_line_ends_are_kept(newline: str, final: bool) -> None:
    text = frame(end="print('é')").rstrip("\n").replace("\n", newline) + (newline if final else "")
    conversion = convert_source(source(text))
    assert conversion.status == "converted"
    assert "accelerator.backward(loss)" in conversion.new_text
    assert conversion.new_text.count("\n") == conversion.new_text.count(newline)
    assert conversion.new_text.endswith(newline) == final


def test_two_runs_give_the_same() -> None:
    one, two = convert(epoch="print(loss)"), convert(epoch="print(loss)")
    assert one.new_text == two.new_text
    assert one.applied == two.applied


def test_a_path_given_twice_is_converted_once(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(frame())
    (conversion,) = convert_paths([path, path])
    assert conversion.status == "converted"
    assert path.read_text() == frame(), "converting writes nothing"


def test_a_missing_file_is_a_source_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"absent\.py"):
        convert_paths([tmp_path / "absent.py"])


RULE = Rule("ACC999", "For this test.")


def edited(context: Context, text: str, *, core: bool) -> Change:
    """A change that puts a text in the place of the first statement."""
    first = context.tree.module.body[0]
    edit = replace(first, text)
    return context.change(RULE, first, "a test", [edit], core=core)


def test_an_edit_that_breaks_the_script_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(road, "TRANSFORMS", (*road.TRANSFORMS, lambda c: [edited(c, "(", core=False)]))
    conversion = convert_source(source(frame()))
    assert conversion.status == "converted"
    assert conversion.new_text.startswith("import os\n")
    (left,) = [f for f in conversion.remaining if f.code == "ACC999"]
    assert "not done" in left.message
    assert not left.fixable


def test_of_two_edits_that_collide_the_first_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def both(context: Context) -> list[Change]:
        return [edited(context, "import os.path", core=False), edited(context, "import io", core=False)]

    monkeypatch.setattr(road, "TRANSFORMS", (*road.TRANSFORMS, both))
    conversion = convert_source(source(frame()))
    assert conversion.new_text.startswith("import os.path\n")
    (left,) = [f for f in conversion.remaining if f.code == "ACC999"]
    assert left.message == "a test (not done: ACC999 (ACC999) changes the same code in two ways)"


def test_a_core_edit_that_cannot_be_made_leaves_the_script_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(road, "TRANSFORMS", (*road.TRANSFORMS, lambda c: [edited(c, "(", core=True)]))
    conversion = convert_source(source(frame()))
    assert conversion.status == "refused"
    assert not conversion.changed
    assert [f.code for f in conversion.remaining] == ["ACC008"]


def test_core_edits_that_collide_are_reported_at_their_own_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def both(context: Context) -> list[Change]:
        return [edited(context, "import os.path", core=True), edited(context, "import io", core=True)]

    monkeypatch.setattr(road, "TRANSFORMS", (*road.TRANSFORMS, both))
    conversion = convert_source(source(frame()))
    assert conversion.status == "refused"
    (left,) = conversion.remaining
    assert "changes the same code in two ways" in left.message
    assert (left.line, left.column) == (1, 1)


def test_a_transform_that_fails_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(context: Context) -> list[Change]:
        raise KeyError("broken")

    monkeypatch.setattr(road, "TRANSFORMS", (fails,))
    conversion = convert_source(source(frame()))
    assert conversion.status == "failed"
    assert "KeyError" in conversion.reason
    assert conversion.new_text == conversion.source.text


def test_options_default_to_whole_batches() -> None:
    assert ConvertOptions().batch_size == "per-process"


def test_what_prepare_is_told_from_has_one_order_and_no_repeats() -> None:
    """Sets of things have no order: the report of a choice between models is the same every time all the same."""
    names = ["Wide", "Deep", "Flat", "Tall", "Thin"]
    classes = "".join(
        f"class {n}(nn.Module):\n    def forward(self, x):\n        return x\n\n\n" for n in names
    )
    chosen = "".join(f'if kind == "{n}":\n    model = {n}()\n' for n in [*names, *names])
    build = f'{classes}kind = os.environ["KIND"]\nmodel = nn.Linear(4, 2)\n{chosen}'
    conversion = convert(build=build + "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n")
    (prepare,) = [f for f in conversion.applied if f.name == "prepare"]
    told = [note for note in prepare.evidence if note.startswith("model: ")]
    assert told == sorted(set(told))
    assert len(told) == len(names) + 1


def test_of_more_models_than_are_kept_in_mind_the_same_ones_are_every_time() -> None:
    names = [f"Net{n}" for n in range(30)]
    classes = "".join(
        f"class {n}(nn.Module):\n    def forward(self, x):\n        return x\n\n\n" for n in names
    )
    table = "".join(f"    model_{n} = {n}()\n" for n in names)
    every = ", ".join(f"model_{n}" for n in names)
    build = f"{classes}def chosen(kind):\n{table}    return [{every}][kind]\n\n\nmodel = chosen(3)\n"
    build += "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    told = {tuple(map(str, convert(build=build).applied)) for _ in range(4)}
    assert len(told) == 1


def test_what_a_script_was_read_into_is_freed_at_once() -> None:
    """The search for garbage has next to nothing to find: it takes a tenth of a conversion otherwise."""
    text = (Path(__file__).parents[1] / "fixtures" / "amp_gradscaler" / "before.py").read_text("utf-8")
    convert_source(source(text))
    gc.collect()
    gc.disable()
    try:
        conversion = convert_source(source(text))
        assert conversion.changed
        assert gc.collect() < 500
    finally:
        gc.enable()
