"""Converted scripts meet no device error on the simulated GPU.

The scripts are the fixtures that tests/test_fixture_behaviour.py does not run there, and those in `scripts/`, which run
on a GPU as they are; or on the CPU, on a machine that has a GPU, and then the converted ones do too. A first line
`# said: ACC118` says that the converted one fails, and which finding tells.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from accelify.convert import convert_paths
from tests.gpu.support import DEVICE_ERROR, FIXTURES, KINDS, SCRIPTS, UNVERIFIED, Outcome, is_said, run_on_gpu

pytestmark = pytest.mark.distributed


@pytest.fixture(scope="module")
def fixed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    folder = tmp_path_factory.mktemp("fixtures")
    paths = {}
    for kind in UNVERIFIED:
        (folder / kind).mkdir()
        paths[kind] = folder / kind / "train.py"
        shutil.copy(FIXTURES / kind / "after.py", paths[kind])
    found = run_on_gpu(list(paths.values()))
    return {kind: found[path] for kind, path in paths.items()}


@pytest.mark.parametrize("kind", UNVERIFIED)
def test_fixture(kind: str, fixed: dict[str, Outcome]) -> None:
    assert fixed[kind].status == 0, fixed[kind].output[-3000:]


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    folder = tmp_path_factory.mktemp("scripts")
    paths = {}
    for kind in KINDS:
        for part in ("before", "after"):
            own = folder / f"{kind}_{part}"
            if (SCRIPTS / kind).is_dir():
                shutil.copytree(SCRIPTS / kind, own, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                own.mkdir()
                shutil.copy(SCRIPTS / f"{kind}.py", own / "train.py")
            paths[f"{kind}_{part}"] = own / "train.py"
            if part == "after":
                _convert(own)
    found = run_on_gpu(list(paths.values()))
    return {name: found[path] for name, path in paths.items()}


def _convert(folder: Path) -> None:
    for conversion in convert_paths([folder / "train.py"]):
        assert conversion.status in ("converted", "unchanged"), conversion.reason
        assert conversion.source.path is not None
        conversion.source.path.write_text(conversion.new_text)


@pytest.mark.parametrize("kind", KINDS)
def test_script(kind: str, converted: dict[str, Outcome]) -> None:
    before, after = converted[f"{kind}_before"], converted[f"{kind}_after"]
    assert before.status == 0, before.output[-3000:]
    if is_said(kind):
        assert DEVICE_ERROR.search(after.output)
        return
    assert after.status == 0, after.output[-3000:]
    assert bool(after.kernels) == bool(before.kernels)
