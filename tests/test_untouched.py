"""What no edit touches stays as it was, byte for byte: over all fixtures, whatever their line ends and encoding, and
over the standard library's own files, as they are and with a training loop behind them."""

from __future__ import annotations

import ast
import random
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelify.conversion import CONVERTED, UNCHANGED, Conversion, ConvertOptions
from accelify.convert import convert_source
from accelify.report.sides import side_by_side
from accelify.source import Source, SourceError, python_files
from tests.cli.conftest import PLAIN

FIXTURES = Path(__file__).parents[1] / "fixtures"
KINDS = {path.parent.name: Source.read(path).text for path in sorted(FIXTURES.glob("*/before.py"))}
NEAR = 5
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::SyntaxWarning")


def convert(text: str) -> Conversion:
    return convert_source(Source.from_text(text, "/nowhere/train.py"), ConvertOptions())


def touched_without_reason(conversion: Conversion) -> list[str]:
    """Old lines that are changed or gone although no finding stands near and no Accelerator was handed on there."""
    # A finding stands at a loop or a call; what it rewrites may lie a few lines off.
    reasons = {
        line
        for finding in [*conversion.applied, *conversion.remaining]
        for line in range(finding.line - NEAR, max(finding.end_line, finding.line) + NEAR + 1)
    }
    return [
        f"{row.old.number}: {row.old.text} -> {row.new.text if row.new else ''}"
        for block in side_by_side(conversion)
        if block.changed
        for row in block.rows
        if row.old is not None
        and row.old.number not in reasons
        and not (row.new is not None and "accelerator" in row.new.text)
        # A block that goes under an `if` or `with` is moved to the right.
        and not (row.new is not None and row.new.text.strip() == row.old.text.strip())
        # A statement that goes takes a blank line beside it along.
        and row.old.text.strip()
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_only_lines_with_a_finding_change(kind: str) -> None:
    assert touched_without_reason(convert(KINDS[kind])) == []


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(sorted(KINDS)),
    st.sampled_from(["\r\n", "\r"]),
    st.booleans(),
    st.sampled_from(["utf-8", "latin-1", "cp1252"]),
    st.booleans(),
)
def test_line_ends_marks_and_encodings_are_carried_along(
    kind: str, newline: str, bom: bool, encoding: str, ended: bool
) -> None:
    text = KINDS[kind].rstrip("\n") + "  # caf\xe9" + "\n" * ended
    if encoding != "utf-8":
        text = f"# -*- coding: {encoding} -*-\n{text}"
        bom = False
    data = (b"\xef\xbb\xbf" if bom else b"") + text.replace("\n", newline).encode(encoding)
    source = Source.from_bytes(data, Path("train.py"))
    new = source.encode(convert_source(source, ConvertOptions()).new_text)
    plainly = convert(text).new_text.replace("\n", newline).encode(encoding)
    assert new == (b"\xef\xbb\xbf" if bom else b"") + plainly


def standard_library(share: float = 1.0) -> Iterator[tuple[Path, Source]]:
    chance = random.Random(0)
    for path in python_files(Path(sysconfig.get_paths()["stdlib"])):
        if chance.random() > share:
            continue
        try:
            source = Source.read(path)
            assert source.tree
        except SourceError:
            # CPython keeps a few files that no Python accepts, to test its own errors.
            assert {"test", "tests"} & set(path.parts), path
            continue
        yield path, source


def test_the_standard_library_comes_through_unchanged() -> None:
    seen = 0
    for path, source in standard_library(share=0.25):
        if b"backward" not in path.read_bytes() and seen >= 200:
            continue
        conversion = convert_source(source)
        assert (conversion.status, conversion.changed) == (UNCHANGED, False), path
        assert source.encode(conversion.new_text) == path.read_bytes(), path
        seen += 1
    assert seen >= 100  # of a Python without its own tests, as Debian has it


def test_the_standard_library_with_a_training_loop_behind() -> None:
    converted = 0
    for path, source in standard_library(share=0.02):
        if len(source.text) > 60_000:
            continue
        end = "" if source.text.endswith(("\n", "\r")) or not source.text else source.newline
        text = source.text + end + PLAIN.replace("\n", source.newline)
        try:
            ast.parse(text)
        except SyntaxError:
            continue
        conversion = convert(text)
        if conversion.status != CONVERTED:
            assert conversion.reason, path
            continue
        converted += 1
        assert touched_without_reason(conversion) == [], path
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(conversion.new_text, str(path), "exec", dont_inherit=True)
        assert convert(conversion.new_text).new_text == conversion.new_text, path
    assert converted >= 10
