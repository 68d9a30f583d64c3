"""Values of a launch: which source wins, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.runtime.launch.command import make_plan
from accelify.runtime.launch.config_file import default_path, read_config
from accelify.runtime.launch.settings import LaunchError, Settings, resolve


def from_file(file: Path, devices: int = 0, **flags: object) -> Settings:
    config = read_config(str(file))
    return resolve(
        flags,
        environment={},
        file_values=config.values,
        file_name=config.name,
        lines=config.lines,
        devices=devices,
    )


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


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("NUM_PROCESES", "NUM_PROCESSES"),
        ("MIXED_PRECISON", "MIXED_PRECISION"),
        ("SEED", ""),
        ("CACHE_DIR", ""),
    ],
)
def test_a_misspelled_variable_is_not_passed_over(name: str, meant: str) -> None:
    environment = {f"ACCELIFY_{name}": "1"}
    if not meant:
        resolve({}, environment=environment, devices=0)
        return
    with pytest.raises(LaunchError, match=f"has ACCELIFY_{name}, which .* did you mean ACCELIFY_{meant}"):
        resolve({}, environment=environment, devices=0)


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
        ({"mixed_precision": "bf32"}, "one of no, fp16, bf16"),
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


def test_a_file_of_accelerate_is_read(tmp_path: Path) -> None:
    file = tmp_path / "theirs.yaml"
    file.write_text(
        "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_CPU\nmixed_precision: no\n"
        "num_machines: 1\nnum_processes: 4\nuse_cpu: true\nmain_training_function: main\n"
    )
    settings = from_file(file)
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
        ("num_machines: 1\nnum_machines: 2\n", "line 2: num_machines stands there twice"),
        (
            "debug: false\nfsdp_config:\n  fsdp_verison: 2\n",
            r"line 3: unknown key fsdp_verison in fsdp_config; did",
        ),
        ("zero_stage: 2\n", "line 1: zero_stage belongs into the section deepspeed_config"),
        (
            "megatron_lm_config:\n  megatron_lm_tp_degree: 2\n",
            "line 1: accelify has nothing for megatron_lm_config",
        ),
        ("compute_environment: AMAZON_SAGEMAKER\n", "line 1: accelify starts jobs on the machine it runs on"),
    ],
)
def test_bad_files_are_told_in_one_sentence(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    with pytest.raises(LaunchError, match=words):
        read_config(str(file))


def test_a_section_that_only_refuses_asks_for_nothing(tmp_path: Path) -> None:
    """Accelerate's questions once left `ipex: false` after an answer "no"."""
    file = tmp_path / "cpu.yaml"
    file.write_text("num_processes: 2\nuse_cpu: true\nipex_config:\n  ipex: false\n")
    assert from_file(file)["num_processes"] == 2
    file.write_text("ipex_config:\n  ipex: true\n")
    with pytest.raises(LaunchError, match="accelify has nothing for ipex_config"):
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
    with pytest.raises(LaunchError, match="does not exist: check the path"):
        make_plan(settings, str(tmp_path / "absent.py"), [])
    with pytest.raises(LaunchError, match="__main__"):
        make_plan(settings, str(tmp_path), [])
    with pytest.raises(LaunchError, match="No module named"):
        make_plan(settings, "no_such_module_at_all", [], module=True)


THEIR_FSDP = """\
compute_environment: LOCAL_MACHINE
debug: false
distributed_type: FSDP
downcast_bf16: 'no'
fsdp_config:
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_reshard_after_forward: true
  fsdp_version: 2
machine_rank: 0
main_training_function: main
mixed_precision: bf16
num_machines: 1
num_processes: 2
rdzv_backend: static
same_network: true
tpu_env: []
tpu_use_cluster: false
tpu_use_sudo: false
use_cpu: true
"""


def write(folder: Path, text: str) -> Path:
    file = folder / "config.yaml"
    file.write_text(text)
    return file


def test_sections_of_the_file_are_overridden_by_flag_and_environment(tmp_path: Path) -> None:
    config = read_config(str(write(tmp_path, THEIR_FSDP)))
    settings = resolve(
        {"fsdp_reshard_after_forward": "false"},
        environment={"ACCELIFY_FSDP_MIN_NUM_PARAMS": "100"},
        file_values=config.values, file_name=config.name, lines=config.lines, devices=0,
    )  # fmt: skip
    assert settings["distributed_type"] == "FSDP"
    assert settings.section("fsdp_config") == {
        "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "fsdp_reshard_after_forward": False,
        "fsdp_version": 2,
        "fsdp_min_num_params": 100,
    }
    told = {row[0]: row[2] for row in settings.explain()}
    assert told["fsdp_config.fsdp_version"] == f"config file ({tmp_path / 'config.yaml'}, line 8)"
    assert told["fsdp_config.fsdp_reshard_after_forward"] == "flag"
    assert told["fsdp_config.fsdp_min_num_params"] == "environment (ACCELIFY_FSDP_MIN_NUM_PARAMS)"


def test_what_is_not_set_is_explained_by_what_is_taken_for_it() -> None:
    rows = {row[0]: row[1] for row in resolve({"cpu": True}, environment={}).explain()}
    assert rows["main_process_port"] == "29500, or a free port on one machine"
    assert rows["num_cpu_threads_per_process"] == "cores / processes"


def test_a_shortcut_is_named_as_it_was_given() -> None:
    with pytest.raises(LaunchError, match=r"^--multi_gpu asks for MULTI_GPU, and no CUDA device"):
        resolve(
            {"distributed_type": "MULTI_GPU"},
            environment={}, devices=0, words={"distributed_type": "--multi_gpu"},
        )  # fmt: skip


def test_a_value_of_an_engine_asks_for_the_engine() -> None:
    settings = resolve({"zero_stage": 3, "cpu": True, "num_processes": 2}, environment={})
    assert (settings["distributed_type"], settings.section("deepspeed_config")) == (
        "DEEPSPEED",
        {"zero_stage": 3},
    )
    settings = resolve({"tp_size": 2, "cpu": True, "num_processes": 4}, environment={})
    assert settings["distributed_type"] == "MULTI_CPU"
    assert settings.section("parallelism_config") == {"parallelism_config_tp_size": 2}


@pytest.mark.parametrize(
    ("text", "flags", "words"),
    [
        (THEIR_FSDP, {"zero_stage": 2}, r"--zero_stage belongs to DeepSpeed, and distributed_type in .*, line 3 asks"),
        (THEIR_FSDP.replace("FSDP\ndown", "MULTI_CPU\ndown"), {}, r"fsdp_config in .*, line 5 has values for FSDP"),
        ("distributed_type: NO\nnum_processes: 2\n", {}, r"line 1 is NO, which means one process, and num_processes"),
        ("distributed_type: MULTI_GPU\nnum_processes: 2\n", {}, "no CUDA device is visible"),
        ("distributed_type: MULTI_GPU\nuse_cpu: true\n", {}, "leave one out"),
        ("distributed_type: MULTI_TPU\n", {}, "one of NO, MULTI_CPU"),
        ("distributed_type: XLA\nnum_processes: 4\nxla_config:\n  spmd: true\n", {}, "one process drives all"),
        ("parallelism_config:\n  parallelism_config_tp_size: 3\nnum_processes: 4\n", {}, "does not divide the 4"),
        ("distributed_type: DEEPSPEED\n", {"tp_size": 2}, "works alone or with FSDP"),
        ("dynamo_config:\n  dynamo_mode: default\n", {}, "line 2 is for torch.compile"),
        ("mixed_precision: bf17\n", {}, "line 1 is 'bf17'; it has to be one of"),
        ("fsdp_config:\n  fsdp_version: 3\ndistributed_type: FSDP\n", {}, "fsdp_version.* at most 2"),
        ("fsdp_config:\n  fsdp_version: two\ndistributed_type: FSDP\n", {}, "line 2 is 'two'; it has to be a whole"),
    ],
)  # fmt: skip
def test_contradictions_of_the_file_name_their_lines(
    tmp_path: Path, text: str, flags: dict[str, object], words: str
) -> None:
    with pytest.raises(LaunchError, match=words):
        from_file(write(tmp_path, text), **flags)


@pytest.mark.parametrize("kind", ["XLA", "TPU"])
def test_xla_is_one_process_that_drives_all_devices(tmp_path: Path, kind: str) -> None:
    text = f"distributed_type: {kind}\nuse_cpu: true\nxla_config:\n  num_devices: 4\n"
    settings = from_file(write(tmp_path, text))
    assert (settings["distributed_type"], settings["num_processes"]) == ("XLA", 1)
    assert settings.section("xla_config") == {"spmd": True, "num_devices": 4}


def test_several_xla_processes_are_replicas() -> None:
    settings = resolve({"distributed_type": "TPU", "num_processes": 8}, environment={})
    assert settings.section("xla_config") == {"spmd": False, "num_devices": 8}


def test_a_flag_beats_no_and_gpu_of_the_file(tmp_path: Path) -> None:
    file = write(tmp_path, "distributed_type: NO\nuse_cpu: true\nnum_processes: 1\n")
    settings = from_file(file, num_processes=2)
    assert (settings["distributed_type"], settings["num_processes"]) == ("MULTI_CPU", 2)
    file = write(tmp_path, "distributed_type: MULTI_GPU\nnum_processes: 2\n")
    assert from_file(file, cpu=True)["distributed_type"] == "MULTI_CPU"


def test_dynamo_of_old_and_new_files(tmp_path: Path) -> None:
    assert from_file(write(tmp_path, "dynamo_backend: 'NO'\n")).sections == {}
    assert from_file(write(tmp_path, "dynamo_config:\n  dynamo_backend: INDUCTOR\n")).section(
        "dynamo_config"
    ) == {"dynamo_backend": "INDUCTOR"}


def test_restarts_over_machines_wait_for_them() -> None:
    flags = {"num_processes": 2, "num_machines": 2, "main_process_ip": "h", "max_restarts": 1, "cpu": True}
    assert resolve(flags, environment={})["rdzv_backend"] == "c10d"
    with pytest.raises(LaunchError, match="no machine can come back"):
        resolve({**flags, "rdzv_backend": "static"}, environment={})


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("false", False), ("4", 4), ("FULL_SHARD", "FULL_SHARD")]
)
def test_resharding_is_a_word_a_number_or_a_choice(tmp_path: Path, text: str, value: object) -> None:
    file = write(tmp_path, f"distributed_type: FSDP\nfsdp_config:\n  fsdp_reshard_after_forward: {text}\n")
    for settings in (
        from_file(file),
        resolve({"fsdp_reshard_after_forward": text}, environment={}, devices=0),
    ):
        found = settings.section("fsdp_config")["fsdp_reshard_after_forward"]
        assert found == value
        assert type(found) is type(value)
