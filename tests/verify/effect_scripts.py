"""Training scripts with effects on the outside, and what stands in their converted forms, right and wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from accelify.verify.compare.verdict import Check, Verdict
from accelify.verify.lines import LineMap
from accelify.verify.nursery import Nursery
from accelify.verify.runs import Job, Run, execute

from . import scripts

HEAD = "import os, shutil, logging, subprocess, sys, socket\nfrom pathlib import Path\n"


def pair(before: str, after: str, end: str = "", end_after: str | None = None) -> tuple[str, str]:
    """A training script with `before` ahead of its loop and `end` after it, and its conversion with the others."""
    plain, converted = scripts.pair()
    plain = plain.replace("X = torch", before + "X = torch", 1) + end
    converted = converted.replace("X = torch", after + "X = torch", 1) + (
        end if end_after is None else end_after
    )
    return HEAD + plain, HEAD + converted


MAIN = "if accelerator.is_main_process:\n    "
WAIT = "accelerator.wait_for_everyone()\n"
SAVE = "torch.save({'a': 1}, 'weights.pt')\n"
LOAD = "torch.load('weights.pt')\n"
FRESH = "out = Path('runs/latest')\nif out.exists():\n    shutil.rmtree(out)\nout.mkdir(parents=True, exist_ok=True)\n"
LOG = (
    "log = logging.getLogger('run')\nlog.setLevel(logging.INFO)\n"
    "log.addHandler(logging.FileHandler('run.log'))\n"
)


def run_pair(
    nursery: Nursery,
    folder: Path,
    texts: tuple[str, str],
    processes: int = 2,
    steps: int = 100,
    may_fail: bool = False,
) -> tuple[Run, Run, LineMap]:
    """The original on one process, the other text on several, and how their lines belong together."""
    script = folder / "train.py"
    script.write_text(texts[0])
    nursery.ready()
    job = Job(script, (), steps=steps, threads=1, limit=60)
    original = execute(job, nursery)
    replaced = {script.resolve(): texts[1].encode()}
    other = execute(
        replace(job, replaced=replaced, label="converted", converted=True, processes=processes), nursery
    )
    assert not original.failure, original.failure
    assert may_fail or not other.failure, other.failure
    return original, other, LineMap({script.resolve(): texts})


def differences(checks: list[Check]) -> list[str]:
    """The sentences of what differs."""
    return [check.sentence for check in checks if check.verdict is Verdict.DIFFERENT]
