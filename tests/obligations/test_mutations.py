"""The engine over the goldens and over seeded faults: it names nothing in the first, and every one of the second.

The faults that `benchmarks/verify_mutations.py` runs, which are known to change what a run does, are among them.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.obligations import suite
from tests.obligations.mutations import MUTATORS

FOUND = 0.97
# The share of the found ones where the engine points to the fault, or to what follows from it.
PLACED = 0.95

# What the engine names in goldens though it is right, by golden and line: the reasons go with the entries.
FALSE_NAMES: dict[str, dict[int, str]] = {}


@pytest.mark.parametrize("name", suite.NAMES)
def test_nothing_is_named_in_a_golden(name: str) -> None:
    named = {one.line for one in suite.named(suite.golden(name))}
    assert named == set(FALSE_NAMES.get(name, {}))


def test_every_mutator_has_a_place() -> None:
    kinds = {
        mutator for name in suite.NAMES for mutator in MUTATORS if suite.applies(mutator, suite.golden(name))
    }
    assert kinds == set(MUTATORS)


def test_there_are_enough_faults() -> None:
    assert sum(len(suite.mutants(name)) for name in suite.NAMES) >= 200


def test_faults_are_named_in_the_right_place() -> None:
    answers = [answer for name in suite.NAMES for answer in suite.answers(name)]
    missed = [answer for answer in answers if not answer.new]
    astray = [answer for answer in answers if answer.new and not answer.placed]
    assert len(missed) <= (1 - FOUND) * len(answers), "\n".join(map(str, missed))
    assert len(astray) <= (1 - PLACED) * len(answers), "\n".join(map(str, astray))


def _verified() -> ModuleType:
    """The faults whose effect verify shows: `benchmarks/mutations.py`, which is no module of a package."""
    path = Path(__file__).resolve().parents[2] / "benchmarks" / "mutations.py"
    spec = importlib.util.spec_from_file_location("verified_mutations", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


# Faults of verify's that are no matter of placement, order or effects: the engine says nothing of them.
NOT_OF_THE_ENGINE = {
    "clipping of the first parameter only": "another number, the same on every process",
    "last window scaled by its own length": "another option of the runtime",
    "stop by a share of the error": "another number, the same on every process",
    "learning rate multiplied by the number of processes": "a choice that a script may make",
    "shard_batch left out": "every process trains the same batches: the numbers stay right",
}


@pytest.mark.parametrize("fault", _verified().MUTATIONS, ids=lambda fault: fault.kind)
def test_what_verify_finds_is_named(fault: object) -> None:
    new = suite.named_anew(fault)
    assert bool(new) is (fault.kind not in NOT_OF_THE_ENGINE)  # type: ignore[attr-defined]
