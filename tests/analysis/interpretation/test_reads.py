"""What a statement has read: it is run again where that has changed, and only there."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from accelify.analysis import values as v
from accelify.analysis.interpretation.interpreter import Interpreter
from accelify.analysis.interpretation.reads import ReadsOfNodes
from accelify.analysis.values import Entity, Method
from accelify.convert import convert_project
from accelify.source import Source

FIXTURES = Path(__file__).parents[3] / "fixtures"
SCRIPTS = sorted(FIXTURES.glob("*/before.py"))


def test_a_node_holds_until_what_it_read_grows() -> None:
    reads, node, held = ReadsOfNodes(), ast.Pass(), {1}
    assert not reads.holds(node)
    reads.begin()
    reads.note(held)
    reads.end(node)
    assert reads.holds(node)
    held.add(2)
    assert not reads.holds(node)


def test_what_a_node_adds_to_what_it_has_read_counts() -> None:
    reads, node, held = ReadsOfNodes(), ast.Pass(), {1}
    reads.begin()
    reads.note(held)
    held.add(2)
    reads.note(held)
    reads.end(node)
    assert not reads.holds(node)


def test_a_node_that_looked_for_something_in_vain_runs_when_it_is_there() -> None:
    reads, node = ReadsOfNodes(), ast.Pass()
    reads.begin()
    reads.missing("loader")
    reads.end(node)
    reads.made("model")
    assert reads.holds(node)
    reads.made("loader")
    assert not reads.holds(node)


def test_nothing_holds_where_something_changed_while_it_ran() -> None:
    reads, node = ReadsOfNodes(), ast.Pass()
    reads.begin()
    reads.nothing_holds()
    reads.end(node)
    assert not reads.holds(node)


def test_a_node_runs_again_where_what_it_has_read_is_of_another_kind() -> None:
    reads, node, other = ReadsOfNodes(), ast.Pass(), ast.Pass()
    thing = Entity(v.UNKNOWN, None)
    for reader, held in ((node, {Method(thing, "step")}), (other, {Entity(v.UNKNOWN, None)})):
        reads.begin()
        reads.note(held)
        reads.end(reader)
    reads.changed_in_place({thing})
    assert not reads.holds(node)
    assert reads.holds(other)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.parent.name)
def test_running_every_statement_in_every_round_finds_nothing_more(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = 0
    run = Interpreter._run

    def counted(self: Interpreter, *given: object) -> None:
        nonlocal ran
        ran += 1
        run(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(Interpreter, "_run", counted)
    found = [(c.new_text, c.remaining, c.applied) for c in convert_project(Source.read(script))]
    needed = ran
    monkeypatch.setattr(ReadsOfNodes, "holds", lambda self, node: False)
    ran = 0
    assert found == [(c.new_text, c.remaining, c.applied) for c in convert_project(Source.read(script))]
    assert needed < ran
