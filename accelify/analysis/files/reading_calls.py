"""Calls of libraries that read files."""

from __future__ import annotations

import re

from accelify.analysis.program import Program

READING = tuple(
    "builtins.open io.open gzip.open json.load pickle.load numpy.load numpy.loadtxt numpy.genfromtxt pandas.read_ "
    "torch.load h5py.File yaml.load yaml.safe_load os.system subprocess. joblib.load scipy.io.loadmat PIL.Image.open "
    "os.listdir glob.".split()
)
"""How their names begin."""

# How the last part of a name begins has to be written somewhere for it to be called; `loader` is none of them.
_BEGINNINGS = sorted({name.strip(".").rpartition(".")[2] for name in READING})
_WORDS = re.compile(rf"\b(?:{'|'.join(_BEGINNINGS)})(?!er|_state_dict)".encode())


def may_read(program: Program) -> bool:
    """Whether a program can call one of them at all: a quick no."""
    return any(module.tree.mentions(_WORDS) for module in program.modules.values())
