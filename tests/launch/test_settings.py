"""Values of a launch: which source wins, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.runtime.launch.command import make_plan
from accelify.runtime.launch.config_file import default_path, read_config
from accelify.runtime.launch.settings import LaunchError, resolve


def test_flag_beats_environment_beats_file_beats_default() -> None:
    environment = {"ACCELIFY_NUM_PROCESSES": "3", "ACCELIFY_MAX_RESTARTS": "4"}
    file_values = {"num_processes": 5, "max_restarts": 6, "mixed_precision": "bf16"}
    settings = resolve(
        {"num_processes": 2}, environment=environment, file_values=file_values, file_name="f.yaml"
    )
    assert (settings["num_processes"], settings.source("num_processes")) == (2, "flag")
    assert (settings["max_restarts"], settings.source("max_restarts")) == (
        4,
        "environment (ACCELIFY_MAX_RESTARTS)",
    )
    assert (settings["mixed_precision"], settings.source("mixed_precision")) == (
        "bf16",
        "config file (f.yaml)",
    )
    assert (settings["num_machines"], settings.source("num_machines")) == (1, "default")


@pytest.mark.parametrize(("devices", "cpu", "expected"), [(0, False, 1), (4, False, 4), (4, True, 1)])
def test_default_number_of_processes_is_that_of_the_devices(devices: int, cpu: bool, expected: int) -> None:
    assert resolve({"cpu": cpu}, environment={}, devices=devices)["num_processes"] == expected


def test_default_number_counts_the_devices_of_all_machines() -> None:
    settings = resolve({"num_machines": 2, "main_process_ip": "10.0.0.1"}, environment={}, devices=4)
    assert settings["num_processes"] == 8


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"num_processes": 0}, "at least 1"),
        ({"num_processes": 3, "num_machines": 2, "main_process_ip": "h"}, "cannot be divided"),
        ({"num_processes": 2, "num_machines": 2}, "--main_process_ip"),
        ({"machine_rank": 1}, "--machine_rank"),
        ({"mixed_precision": "bf32"}, "one of no, fp16, bf16, fp8"),
    ],
)
def test_contradictions_are_refused_in_one_sentence(flags: dict[str, object], words: str) -> None:
    with pytest.raises(LaunchError, match=words):
        resolve(flags, environment={}, devices=0)


def test_environment_of_the_wrong_kind_names_the_variable() -> None:
    with pytest.raises(LaunchError, match="ACCELIFY_NUM_PROCESSES is 'two'"):
        resolve({}, environment={"ACCELIFY_NUM_PROCESSES": "two"}, devices=0)


def test_place_of_the_configuration_file() -> None:
    assert default_path({"HF_HOME": "/h", "XDG_CACHE_HOME": "/x"}) == Path(
        "/h/accelerate/default_config.yaml"
    )
    assert default_path({"XDG_CACHE_HOME": "/x"}) == Path("/x/huggingface/accelerate/default_config.yaml")
    assert default_path({}) == Path.home() / ".cache/huggingface/accelerate/default_config.yaml"


def test_a_file_of_the_peer_is_read(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    file = tmp_path / "peer.yaml"
    file.write_text(
        "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_CPU\nmixed_precision: no\n"
        "num_machines: 1\nnum_processes: 4\nuse_cpu: true\nmain_training_function: main\n"
    )
    name, values = read_config(str(file))
    settings = resolve({}, environment={}, file_values=values, file_name=name, devices=0)
    assert (settings["num_processes"], settings["cpu"], settings["mixed_precision"]) == (4, True, "no")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "num_machines: 1\nnum_proceses: 2\n",
            r"line 2: unknown key num_proceses; did you mean num_processes\?",
        ),
        ("a: [1\n", "not valid YAML"),
        ("- 1\n", "name: value"),
        ("distributed_type: FSDP\n", "FSDP"),
    ],
)
def test_bad_files_are_told_in_one_sentence(tmp_path: Path, text: str, words: str) -> None:
    pytest.importorskip("yaml")
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    with pytest.raises(LaunchError, match=words):
        read_config(str(file))


def test_one_process_is_plain_python(tmp_path: Path) -> None:
    script = tmp_path / "s.py"
    script.write_text("")
    plan = make_plan(resolve({}, environment={}, devices=0), str(script), ["--lr", "1"])
    assert plan.command[1:] == (str(script), "--lr", "1")
    assert not plan.elastic


def test_several_machines_name_the_first_one(tmp_path: Path) -> None:
    script = tmp_path / "s.py"
    script.write_text("")
    flags = {"num_processes": 4, "num_machines": 2, "machine_rank": 1, "main_process_ip": "10.0.0.1"}
    words = make_plan(resolve(flags, environment={}), str(script), []).elastic
    assert words[words.index("--nproc-per-node") + 1] == "2"
    assert words[words.index("--node-rank") + 1] == "1"
    assert words[words.index("--master-addr") + 1] == "10.0.0.1"


def test_missing_script_and_module(tmp_path: Path) -> None:
    settings = resolve({}, environment={}, devices=0)
    with pytest.raises(LaunchError, match="There is no file"):
        make_plan(settings, str(tmp_path / "absent.py"), [])
    with pytest.raises(LaunchError, match="__main__"):
        make_plan(settings, str(tmp_path), [])
    with pytest.raises(LaunchError, match="No module named"):
        make_plan(settings, "no_such_module_at_all", [], module=True)
