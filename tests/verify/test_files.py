"""Files that two runs leave behind: the names both ways, and contents by what they are."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import sqlite3
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from accelify.verify.compare.contents import read
from accelify.verify.compare.files import UNREAD, UNREPEATED, compare, paired
from accelify.verify.compare.verdict import NOT_CHECKED, SHARE, Check, Verdict
from accelify.verify.events import RankRecord
from accelify.verify.lines import LineMap
from accelify.verify.runs import Run

CLOSE = 1 + 1e-7
APART = 1.01


@dataclass
class Change:
    path: str
    content: Path | None
    kind: str = "file"


def run(*changes: Change, processes: int = 1, failure: str | None = None) -> Run:
    made = Run("a run", processes, [RankRecord() for _ in range(processes)], 1.0, failure)
    made.changes = list(changes)  # type: ignore[assignment]
    return made


@pytest.fixture
def hold(tmp_path: Path) -> Callable[..., Check]:
    """Compare two files that `write` makes, of two values, under one name."""

    def held(name: str, write: Callable[[Path, Any], Any], a: Any, b: Any, **options: Any) -> Check:
        paths = [tmp_path / side / name for side in ("a", "b")]
        for path, value in zip(paths, (a, b), strict=True):
            path.parent.mkdir(exist_ok=True, parents=True)
            write(path, value)
        exact = options.pop("exact", False)
        processes = options.pop("processes", 1)
        mine, theirs = (Change(f"/w/{name}", path) for path in paths)
        (check,) = compare(run(mine), run(theirs, processes=processes), LineMap({}), exact, **options)
        assert (check.aspect, check.key) == ("files", f"/w/{name}")
        return check

    return held


def state(factor: float = 1.0, **more: Any) -> dict[str, Any]:
    weights = torch.arange(12.0).reshape(3, 4).t() * factor
    return {"model": OrderedDict(weight=weights, half=weights[0].bfloat16()), "epoch": 3, **more}


def save_legacy(path: Path, value: Any) -> None:
    torch.save(value, path, _use_new_zipfile_serialization=False)


def save_pickle(path: Path, value: Any) -> None:
    path.write_bytes(pickle.dumps(value))


def save_text(path: Path, value: str) -> None:
    path.write_text(value)


def save_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1))


def save_arrays(path: Path, value: Any) -> None:
    np.savez(path, **value)


@pytest.mark.parametrize(
    "save", [lambda path, value: torch.save(value, path), save_legacy], ids=["zip", "legacy"]
)
def test_checkpoints(hold: Callable[..., Check], save: Callable[[Path, Any], None]) -> None:
    assert hold("a.pt", save, state(), state(), exact=True).verdict is Verdict.EQUAL
    assert hold("a.pt", save, state(), state(CLOSE)).verdict is Verdict.ROUNDING
    assert hold("a.pt", save, state(), state(CLOSE), exact=True).verdict is Verdict.DIFFERENT
    check = hold("a.pt", save, state(), state(APART))
    assert check.verdict is Verdict.DIFFERENT
    assert check.sentence.startswith(
        "model.weight: 9 of 12 elements differ, one is 11.11 where the original has 11"
    )
    check = hold("a.pt", save, state(), {**state(), "epoch": 4})
    assert check.sentence == "epoch: is 4 where the original has 3"


def test_a_wrapped_models_keys_are_named(hold: Callable[..., Check]) -> None:
    wrapped = {f"module.{key}": value for key, value in state()["model"].items()}
    check = hold("a.pt", lambda path, value: torch.save(value, path), state()["model"], wrapped)
    assert check.verdict is Verdict.DIFFERENT
    assert 'keys that start with "module."' in check.sentence


class Danger:
    """Makes a file where it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return open, (self.path, "w")


def test_nothing_in_a_pickle_is_run(hold: Callable[..., Check], tmp_path: Path) -> None:
    trap = str(tmp_path / "trap")
    first, second = {"x": 0.5, "d": Danger(trap)}, {"x": 0.25, "d": Danger(trap)}
    for name, save in (("a.pkl", save_pickle), ("a.pt", lambda path, value: torch.save(value, path))):
        assert hold(name, save, first, second).sentence == "x: is 0.25 where the original has 0.5"
    assert not os.path.exists(trap)


def test_objects_in_pickles_are_compared_by_what_they_hold(hold: Callable[..., Check]) -> None:
    model = torch.nn.Linear(2, 2)
    with torch.no_grad():
        model.weight.fill_(1.0)
    other = torch.nn.Linear(2, 2)
    other.load_state_dict(model.state_dict())
    save = lambda path, value: torch.save(value, path)  # noqa: E731
    assert hold("whole.pt", save, model, other).verdict is Verdict.EQUAL
    with torch.no_grad():
        other.weight[0, 0] = 2.0
    check = hold("whole.pt", save, model, other)
    assert "weight: 1 of 4 elements differ, one is 2 where the original has 1" in check.sentence
    check = hold("whole.pt", save, model, torch.nn.Bilinear(1, 1, 1))
    assert check.verdict is Verdict.DIFFERENT


def test_arrays_in_pickles_and_files(hold: Callable[..., Check]) -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    for name, save in (("a.npy", np.save), ("a.pkl", save_pickle)):
        assert hold(name, save, array, array * np.float32(CLOSE)).verdict in (Verdict.EQUAL, Verdict.ROUNDING)
        assert hold(name, save, array, array * 2).sentence == (
            "5 of 6 elements differ, one is 10 where the original has 5"
        )
        assert "shape [3, 2]" in hold(name, save, array, array.T.copy()).sentence
        # The order of the first index is only another way to lie in the file.
        assert hold(name, save, array, np.asfortranarray(array)).verdict is Verdict.EQUAL
    counts = np.arange(3)
    assert hold("a.npy", np.save, counts, counts + np.array([0, 0, 1])).verdict is Verdict.DIFFERENT
    assert hold("a.npz", save_arrays, {"x": array}, {"x": array * 2}).sentence.startswith("x: 5 of 6")
    assert hold("a.pkl", save_pickle, {"x": np.float64(1)}, {"x": np.float64(2)}).verdict is Verdict.DIFFERENT


def test_safetensors(hold: Callable[..., Check]) -> None:
    from safetensors.torch import save_file

    save = lambda path, value: save_file(value, path)  # noqa: E731
    first = {"w": torch.ones(3), "b": torch.ones(2).bfloat16(), "n": torch.tensor([1, 2])}
    assert (
        hold("m.safetensors", save, first, {**first, "w": torch.ones(3) * CLOSE}).verdict is Verdict.ROUNDING
    )
    check = hold("m.safetensors", save, first, {**first, "n": torch.tensor([1, 3])})
    assert check.sentence == "n: 1 of 2 elements differ, one is 3 where the original has 2"


def test_documents_and_tables(hold: Callable[..., Check]) -> None:
    best = {"best": 0.5, "history": [{"acc": 0.25}], "n": 3}
    assert hold("a.json", save_json, best, {**best, "best": 0.5 * CLOSE}).verdict is Verdict.ROUNDING
    check = hold("a.json", save_json, best, {**best, "history": [{"acc": 0.125}]}, processes=2)
    assert check.sentence == (
        "history[0].acc: is 0.125 where the original has 0.25: half of it, as where each process has only its share"
    )
    assert "has no 'n'" in hold("a.json", save_json, best, {"best": 0.5, "history": [{"acc": 0.25}]}).sentence
    lines = "epoch,loss\n1,0.5512345\n2,0.25\n"
    assert hold("a.csv", save_text, lines, lines.replace("345", "346")).verdict is Verdict.ROUNDING
    check = hold("a.csv", save_text, lines, lines.replace("2,", "3,"))
    assert check.sentence == '[2]: has "3,0.25" where the original has "2,0.25"'
    assert "has 4 entries" in hold("log.txt", save_text, lines, lines + "3,0.1\n").sentence
    rows = '{"a": 1}\n{"a": 2}\n'
    assert hold("a.jsonl", save_text, rows, rows.replace("2", "3")).sentence.startswith("[1].a: is 3")
    assert hold("a.yaml", save_text, "a: 1\nb: 0.5\n", "b: 0.5\na: 1\n").verdict is Verdict.EQUAL


def test_databases_and_packed_files(hold: Callable[..., Check]) -> None:
    def save(path: Path, value: float) -> None:
        path.unlink(missing_ok=True)
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE metrics (name TEXT, value REAL)")
            connection.execute("INSERT INTO metrics VALUES ('loss', ?)", [value])
        connection.close()

    assert hold("a.db", save, 0.5, 0.5 * CLOSE).verdict is Verdict.ROUNDING
    check = hold("a.db", save, 0.5, 0.75)
    assert check.sentence == "metrics[0][1]: is 0.75 where the original has 0.5"

    def pack(path: Path, value: str) -> None:
        path.write_bytes(gzip.compress(value.encode(), mtime=len(value)))

    assert hold("a.txt.gz", pack, "x 1.0", "x  1.0").verdict is Verdict.EQUAL

    def archive(path: Path, value: str) -> None:
        with zipfile.ZipFile(path, "w") as made:
            made.writestr("in.txt", value)

    assert hold("a.zip", archive, "x 1.0", "x 2.0").sentence.startswith("in.txt[0]: has")


def test_event_files_are_compared_without_their_times(hold: Callable[..., Check], tmp_path: Path) -> None:
    from torch.utils.tensorboard import SummaryWriter

    def save(path: Path, value: float) -> None:
        folder = path.parent / f"board{value}"
        with SummaryWriter(str(folder)) as board:
            for step in range(3):
                board.add_scalar("loss", value * (step + 1), step)
            board.add_text("note", f"value {value}")
            board.add_histogram("weights", torch.arange(4.0) * value)
        (written,) = folder.iterdir()
        path.write_bytes(written.read_bytes())
        written.unlink()

    name = "events.out.tfevents.1764312488.host.4711.0"
    assert hold(name, save, 0.5, 0.5, exact=True).verdict is Verdict.EQUAL
    assert read(tmp_path / "a" / name, name)["loss"][2] == {"step": 2, "value": 1.5}
    check = hold(name, save, 0.5, 0.25)
    assert check.sentence.startswith("loss[0].value: is 0.25 where the original has 0.5")


def test_pictures_by_their_pixels(hold: Callable[..., Check]) -> None:
    from PIL import Image, PngImagePlugin

    def save(path: Path, value: tuple[int, str]) -> None:
        level, comment = value
        picture = Image.new("RGB", (4, 3), (100, 100, 100))
        picture.putpixel((1, 1), (100 + level, 100, 100))
        about = PngImagePlugin.PngInfo()
        about.add_text("made", comment)
        picture.save(path, pnginfo=about)

    assert hold("p.png", save, (0, "now"), (0, "then"), exact=True).verdict is Verdict.EQUAL
    assert hold("p.png", save, (0, ""), (3, "")).verdict is Verdict.ROUNDING
    assert hold("p.png", save, (0, ""), (3, ""), exact=True).verdict is Verdict.DIFFERENT
    assert hold("p.png", save, (0, ""), (90, "")).sentence == "1 of 12 pixels of the picture differ"


def test_figures_of_a_pdf_to_rounding(hold: Callable[..., Check]) -> None:
    def save(path: Path, value: tuple[str, str]) -> None:
        drawn = zlib.compress(f"0.5 w\n10.25 {value[0]} l\nS".encode())
        about = f"1 0 obj\n<< /CreationDate (D:{value[1]}) >>\nendobj\n"
        stream = f"2 0 obj\n<< /Length {len(drawn)} >>\nstream\n".encode() + drawn + b"\nendstream\nendobj\n"
        table = f"xref\n0 3\n{len(stream):010} 00000 n \ntrailer\n<< >>\nstartxref\n{len(stream)}\n%%EOF"
        path.write_bytes(b"%PDF-1.4\n" + about.encode() + stream + table.encode())

    assert hold("p.pdf", save, ("33.75", "2026"), ("33.75", "2027"), exact=True).verdict is Verdict.EQUAL
    assert hold("p.pdf", save, ("33.7512345", ""), ("33.7512347", "")).verdict is Verdict.ROUNDING
    check = hold("p.pdf", save, ("33.75", ""), ("34.75", ""))
    assert check.sentence == '[1][1]: has "10.25 34.75 l" where the original has "10.25 33.75 l"'


def test_what_is_not_read_is_the_same_bytes_or_not_comparable(hold: Callable[..., Check]) -> None:
    save = lambda path, value: path.write_bytes(value)  # noqa: E731
    assert hold("a.bin", save, b"\0\1\2", b"\0\1\2").verdict is Verdict.EQUAL
    check = hold("a.bin", save, b"\0\1\2", b"\0\1\3")
    assert (check.verdict, check.sentence) == (Verdict.NOT_COMPARABLE, UNREAD)
    # A file that only looks like one that is read.
    assert hold("a.npy", save, b"\x93NUMPY\1\0x", b"\x93NUMPY\1\0y").verdict is Verdict.NOT_COMPARABLE
    assert hold("a.zip", save, b"PK\x03\x04one", b"PK\x03\x04two").verdict is Verdict.NOT_COMPARABLE


def test_names_both_ways_and_kinds() -> None:
    mine = run(Change("/w/a", None, "folder"), Change("/w/b", None))
    checks = {check.key: check for check in compare(mine, run(Change("/w/c", None)), LineMap({}), False)}
    assert {check.verdict for check in checks.values()} == {Verdict.DIFFERENT}
    assert checks["/w/a"].sentence == "the original leaves the folder /w/a, this run does not"
    assert checks["/w/c"].sentence == "this run leaves /w/c, which the original does not"
    kinds = compare(run(Change("/w/a", None, "removed")), run(Change("/w/a", None)), LineMap({}), False)
    assert kinds[0].sentence == "this run leaves /w/a, the original removes /w/a"
    unreached = compare(mine, run(failure="line 3: no"), LineMap({}), False)
    assert {check.verdict for check in unreached} == {Verdict.NOT_REACHED}


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ("runs/Nov28_06-48-26_host", "runs/Nov28_06-49-01_host", True),
        ("out/2026-11-28/06-48-26/x.pt", "out/2026-11-28/06-49-00/x.pt", True),
        ("log_20261128_064826.txt", "log_20261128_064901.txt", True),
        ("events.out.tfevents.1764312488.host.4711.0", "events.out.tfevents.1764312499.host.4712.0", True),
        ("tmpab12cd_9/x", "tmpzz12cd_9/x", True),
        ("ckpt_1764312488.12.pt", "ckpt_1764312499.9.pt", True),
        ("epoch_3.pt", "epoch_4.pt", False),
        ("step_001000.pt", "step_002000.pt", False),
        ("size_2048_1024.pt", "size_2048_1025.pt", False),
    ],
)
def test_names_made_from_the_clock(a: str, b: str, same: bool) -> None:
    pairs = paired({a: Change(a, None)}, {b: Change(b, None)})
    assert len(pairs) == (1 if same else 2)


def test_what_the_original_does_not_repeat_is_not_compared(
    hold: Callable[..., Check], tmp_path: Path
) -> None:
    path = tmp_path / "again.json"
    save_json(path, {"id": 3})
    first = tmp_path / "first.json"
    save_json(first, {"id": 1})
    again = run(Change("/w/a.json", first)), run(Change("/w/a.json", path))
    check = hold("a.json", save_json, {"id": 1}, {"id": 2}, repeats=again)
    assert (check.verdict, check.sentence) == (Verdict.NOT_COMPARABLE, UNREPEATED)
    save_json(path, {"id": 1})
    assert hold("a.json", save_json, {"id": 1}, {"id": 2}, repeats=again).verdict is Verdict.DIFFERENT


def test_rounding_carries_arrays_as_far_as_in_a_disturbed_run(
    hold: Callable[..., Check], tmp_path: Path
) -> None:
    """As far as Adam carries a weight whose gradient is nothing but rounding, and no further."""

    def saved(noise: float, weight: float = 2.0) -> dict[str, Any]:
        return {"bias": torch.tensor([noise, weight]), "epochs": [torch.tensor([weight])]}

    def changed(name: str, value: Any) -> Run:
        torch.save(value, tmp_path / name)
        return run(Change("/w/a.pt", tmp_path / name))

    control = changed("disturbed.pt", saved(-5e-3))
    noisy = hold("a.pt", lambda path, value: torch.save(value, path), saved(5e-3), saved(-8e-3))
    assert noisy.verdict is Verdict.DIFFERENT
    for other, expected in [
        (saved(-8e-3), Verdict.ROUNDING),
        (saved(-0.5), Verdict.DIFFERENT),
        (saved(5e-3, 3.0), Verdict.DIFFERENT),
    ]:
        check = hold("a.pt", lambda path, value: torch.save(value, path), saved(5e-3), other, control=control)
        assert check.verdict is expected


def test_figures_of_a_share_are_excused_and_no_others(hold: Callable[..., Check]) -> None:
    lines = "0.5 1\n0.25 2\n"
    known = {(0.5, 0.75): SHARE, (0.25, 0.375): NOT_CHECKED}
    excuse = lambda a, b: known.get((a, b), "")  # noqa: E731
    check = hold("log.txt", save_text, lines, "0.75 1\n0.25 2\n", excuse=excuse)
    assert (check.verdict, check.sentence, check.partial) == (Verdict.NOT_COMPARABLE, SHARE, True)
    unchecked = hold("log.txt", save_text, lines, "0.75 1\n0.375 2\n", excuse=excuse)
    assert (unchecked.sentence, unchecked.partial) == (NOT_CHECKED, False)
    worse = hold("log.txt", save_text, lines, "0.75 1\n0.125 2\n", excuse=excuse)
    assert worse.verdict is Verdict.DIFFERENT


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=12,
    )
)
@settings(max_examples=60, deadline=None)
def test_any_value_equals_itself_in_json_and_pickle(value: Any) -> None:
    from accelify.verify.compare.documents import Comparison
    from accelify.verify.compare.pickles import read_pickle

    comparison = Comparison(0.0, True)
    comparison.hold(value, read_pickle(pickle.dumps(value)))
    comparison.hold(value, json.loads(json.dumps(value)))
    comparison.finish()
    assert comparison.match == 0, comparison.first


class Plain:
    """Any object."""

    def __init__(self) -> None:
        self.rates = [0.1, 0.2]


class Wrapper:
    """Written as what is in it, as the runtime's wrappers are."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.inner.__reduce_ex__(1)


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, pickle.HIGHEST_PROTOCOL])
def test_what_is_written_through_a_wrapper_is_what_is_in_it(protocol: int) -> None:
    from accelify.verify.compare.pickles import read_pickle

    inner = Plain()
    read = [read_pickle(pickle.dumps(one, protocol)) for one in (inner, Wrapper(inner))]
    assert read[0] == read[1]


def test_an_import_of_torch_is_not_needed() -> None:
    import subprocess
    import sys

    buffer = io.BytesIO()
    torch.save(state(), buffer)
    code = (
        "import sys, io, zipfile; from accelify.verify.compare import files, pickles; "
        "found = pickles.read_checkpoint(zipfile.ZipFile(io.BytesIO(sys.stdin.buffer.read()))); "
        "assert found['model']['weight'].shape == (4, 3), found; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], input=buffer.getvalue(), check=True)


@pytest.mark.parametrize(
    ("state", "processes", "verdict"),
    [
        ({"total_steps": 14, "last_epoch": 4, "_step_count": 5}, 2, Verdict.EQUAL),
        ({"total_steps": 14, "last_epoch": 4, "_step_count": 5}, 1, Verdict.DIFFERENT),
        ({"total_steps": 14, "last_epoch": 4}, 2, Verdict.DIFFERENT),
        ({"base_lr": 0.1, "last_epoch": 4, "_step_count": 5}, 2, Verdict.DIFFERENT),
    ],
)
def test_a_schedule_of_several_processes_counts_in_its_own_unit(
    hold: Callable[..., Check], state: dict[str, Any], processes: int, verdict: Verdict
) -> None:
    other = {key: 2 * value for key, value in state.items()}
    saved = [{"scheduler": one} for one in (state, other)]
    assert hold("a.pt", lambda p, v: torch.save(v, p), *saved, processes=processes).verdict is verdict
