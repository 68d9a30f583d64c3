"""The GitHub action and the GitLab template: what they run does what they say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
SCRIPT = """\
from accelerate import Accelerator

accelerator = Accelerator()
if accelerator.is_main_process:
    accelerator.wait_for_everyone()
"""


def shell(commands: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run commands as a service does, with `accelify` on the path."""
    tools = folder / "tools"
    tools.mkdir(exist_ok=True)
    for name, words in (("accelify", "-m accelify"), ("pip", "-c pass")):
        tool = tools / name
        tool.write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        tool.chmod(0o755)
    path = os.pathsep.join([str(tools), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), **variables}
    return subprocess.run(
        ["bash", "-e", "-c", commands],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_github_action_annotates_or_writes_sarif(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    step = action["runs"]["steps"][-1]
    assert set(step["env"]) == {"PATHS", "ARGUMENTS", "SARIF_FILE"}
    assert all(value.split("inputs.")[1].split()[0] in action["inputs"] for value in step["env"].values())
    shown = shell(step["run"], tmp_path, PATHS="train.py", ARGUMENTS="", SARIF_FILE="")
    assert shown.returncode == 1
    assert shown.stdout.startswith("::warning file=train.py,line=5,")
    quiet = shell(step["run"], tmp_path, PATHS="train.py", ARGUMENTS="--ignore ACC704", SARIF_FILE="")
    assert (quiet.returncode, quiet.stdout) == (0, "")
    written = shell(step["run"], tmp_path, PATHS="train.py", ARGUMENTS="", SARIF_FILE="found.sarif")
    assert written.returncode == 0
    assert json.loads((tmp_path / "found.sarif").read_text())["runs"][0]["results"][0]["ruleId"] == "ACC704"


def test_the_gitlab_template_writes_a_report_and_fails_where_something_is_found(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    job = yaml.safe_load((ROOT / "docs/templates/gitlab-ci.yml").read_text())["accelify"]
    variables = {**job["variables"], "ACCELIFY_PATHS": "train.py"}
    unset = shell("\n".join(job["script"]), tmp_path, **variables)
    assert (unset.returncode, unset.stdout) == (1, "")
    assert "ACCELIFY_SOURCE is not set" in unset.stderr
    variables["ACCELIFY_SOURCE"] = "/a/clone"
    ran = shell("\n".join(job["script"]), tmp_path, **variables)
    assert ran.returncode == 1
    assert "train.py:5:5: ACC704" in ran.stdout
    report = job["artifacts"]["reports"]["codequality"]
    assert [row["location"]["lines"]["begin"] for row in json.loads((tmp_path / report).read_text())] == [5]
