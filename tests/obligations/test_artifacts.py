"""Artifacts of a tracker: who has not logged one gets an error where it waits for it."""

from __future__ import annotations

import pytest

from accelify.knowledge import Knowledge
from accelify.obligations import Status, validate

TEXT = """\
import wandb
from accelify.runtime import Accelerator
accelerator = Accelerator()
artifact = wandb.Artifact(name="weights", type="model")
if accelerator.is_main_process:
    wandb.log_artifact(artifact)
{wait}
"""


@pytest.mark.parametrize(
    ("wait", "is_named"),
    [("artifact.wait()", True), ("if accelerator.is_main_process:\n    artifact.wait()", False)],
)
def test_an_artifact_is_waited_for_by_who_logged_it(wait: str, is_named: bool) -> None:
    found = validate(TEXT.format(wait=wait), None, Knowledge()).obligations
    named = [one.found for one in found if one.status is Status.NAMED]
    assert named == (["`artifact.wait` is done by every process"] if is_named else [])
