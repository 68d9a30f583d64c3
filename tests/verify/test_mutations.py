"""Faults in converted fixtures are found by `verify`; `benchmarks/verify_mutations.py` tries all of them."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from accelify.verify.nursery import Nursery

BENCHMARKS = Path(__file__).resolve().parent.parent.parent / "benchmarks"
KINDS = [
    "guard of np.save left out",
    "guard of a print left out",
    "reduce of a sum left out",
    "stop by a share of the error",
    "reduction of a summed loss left out",
    "learning rate multiplied by the number of processes",
]


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    for name in ("mutations", "verify_mutations"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return __import__("verify_mutations")


def test_every_fault_fits_its_fixture(benchmark: ModuleType) -> None:
    kinds = [mutation.kind for mutation in benchmark.MUTATIONS]
    assert len(kinds) == len(set(kinds)) == 40
    for mutation in benchmark.MUTATIONS:
        assert benchmark.allowed(mutation, benchmark.mutated(mutation))


@pytest.mark.distributed
@pytest.mark.parametrize("kind", KINDS)
def test_found_in_the_right_line(kind: str, benchmark: ModuleType, nursery: Nursery) -> None:
    mutation = next(mutation for mutation in benchmark.MUTATIONS if mutation.kind == kind)
    answer = benchmark.try_mutation(mutation, nursery)
    assert answer.found, answer.sentence
    assert answer.in_line, answer.checks
