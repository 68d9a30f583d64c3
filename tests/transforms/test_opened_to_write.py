"""HDF5 files that are opened to write and only read."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.convert import convert_project
from accelify.source import Source
from tests.transforms.support import check_noop, check_transformed, frame

READ = "shape = file['x'].shape\nx = torch.tensor(file['x'][:].astype('f'))"


@pytest.mark.parametrize(
    "snippet",
    [
        f"file = h5py.File('a.h5', 'r')\n{READ}",
        f"file = h5py.File('a.h5')\n{READ}",
        f"file = h5py.File('a.h5', 'r+')\n{READ}\nfile['y'] = 1",
        f"file = h5py.File('a.h5', 'r+')\n{READ}\nfile['y'][0] = 1",
        f"file = h5py.File('a.h5', 'r+')\n{READ}\nfile['y'].attrs['n'] = 1",
        f"file = h5py.File('a.h5', 'r+')\n{READ}\nfile['y'].resize(3)",
        f"file = h5py.File('a.h5', 'r+')\n{READ}\ngiven(file)",
        "file = h5py.File('a.h5', 'r+')",
    ],
)
def test_what_is_written_stays(snippet: str) -> None:
    check_noop("end", snippet, "ACC203", imports="import h5py\nfrom given import given")


@pytest.mark.parametrize("mode", ["'r+'", "mode='r+'"])
def test_what_is_only_read_is_opened_for_that(mode: str) -> None:
    snippet = f"file = h5py.File('a.h5', {mode})\n{READ}\nfile.close()"
    after = snippet.replace("'r+'", "'r'")
    check_transformed("end", snippet, after, imports="import h5py")


@pytest.mark.parametrize(
    "method",
    [
        "def __init__(self):\n        with h5py.File('a', 'r+') as file:\n            self.x = file['x'][:]\n",
        "def __init__(self):\n        self.n = 3\n\n    def __getitem__(self, i):\n"
        "        file = h5py.File('a', 'r+')\n        return file['x'][i]\n",
    ],
)
def test_a_data_set_of_another_module_is_named(tmp_path: Path, method: str) -> None:
    (tmp_path / "scans.py").write_text(f"import h5py\n\n\nclass Scans:\n    {method}")
    (tmp_path / "train.py").write_text(frame(imports="from scans import Scans", setup="more = Scans()"))
    (found,) = convert_project(Source.read(tmp_path / "train.py"))
    assert [f.code for f in found.remaining if "h5py.File in scans.py" in f.message] == ["ACC203"]
