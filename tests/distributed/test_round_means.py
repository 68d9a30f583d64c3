"""Means over the rounds of an evaluation: where they are named, two processes show another figure than one."""

import pytest

from accelify.conversion import ConvertOptions
from accelify.convert import convert_source
from accelify.source import Source
from tests.distributed.processes import run_ranks
from tests.obligations.round_means import BY_CALLER, BY_SAMPLES, OVER_ROUNDS, script
from tests.transforms.support import PATH

CASES = {**OVER_ROUNDS, **BY_CALLER, **{f"samples: {name}": parts for name, parts in BY_SAMPLES.items()}}
del CASES["samples: first batches"]  # two processes read two


def figures_of(texts):
    found = []
    for text in texts:
        namespace = {}
        exec(compile(text, "script.py", "exec"), namespace)
        found.append(namespace["figure"])
    return found


def _converted(batch_size):
    texts = []
    for parts in CASES.values():
        conversion = convert_source(Source.from_text(script(*parts), PATH), ConvertOptions(batch_size))
        assert conversion.status == "converted"
        texts.append(conversion.new_text)
    return texts


@pytest.mark.distributed
def test_named_means_differ_and_others_do_not():
    expected = dict(zip(CASES, figures_of([script(*parts) for parts in CASES.values()]), strict=True))
    cpu = {"ACCELIFY_USE_CPU": "true"}
    for own in run_ranks(2, figures_of, _converted("total"), env=cpu):
        assert own == pytest.approx(list(expected.values()), rel=1e-5)
    for own in run_ranks(2, figures_of, _converted("per-process"), env=cpu):
        for (name, figure), value in zip(expected.items(), own, strict=True):
            same = value == pytest.approx(figure, rel=1e-5)
            assert same == name.startswith("samples"), (name, figure, value)
