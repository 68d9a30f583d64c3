"""`accelify config`: the file that it writes is the one that a launch reads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from accelify.runtime.launch.config_file import default_path, read_config
from accelify.runtime.launch.questions import Machine, default_values
from accelify.runtime.launch.settings import Settings, resolve
from tests.cli.conftest import Run


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("CUDA_VISIBLE_DEVICES", "PJRT_DEVICE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    return default_path()


def settings(file: Path) -> Settings:
    config = read_config(str(file))
    return resolve(
        {}, environment={}, file_values=config.values, file_name=config.name, lines=config.lines, devices=9
    )


def test_default_writes_what_a_launch_reads(run: Run, file: Path) -> None:
    done = run("config", "default")
    assert done.code == 0, done.err
    assert done.out == f"{file} is written; `accelify config show` prints it.\n"
    values = yaml.safe_load(file.read_text())
    assert values["compute_environment"] == "LOCAL_MACHINE"
    assert settings(file)["num_processes"] == values["num_processes"]


def test_default_takes_changes_and_the_type_follows(run: Run, file: Path) -> None:
    assert run("config", "default", "use_cpu=true", "num_processes=2", "mixed_precision=no").code == 0
    assert settings(file)["distributed_type"] == "MULTI_CPU"
    assert settings(file)["mixed_precision"] == "no"


def test_a_file_that_is_there_is_kept(run: Run, file: Path) -> None:
    run("config", "default", "use_cpu=true")
    before = file.read_text()
    done = run("config", "default")
    assert (done.code, file.read_text()) == (2, before)
    assert "is there already" in done.err
    assert run("config", "default", "use_cpu=true", "num_processes=3", "--force").code == 0
    assert settings(file)["num_processes"] == 3


def test_update_changes_a_value_and_keeps_the_rest(run: Run, file: Path) -> None:
    run("config", "default", "use_cpu=true", "num_processes=2")
    assert run("config", "update", "zero_stage=2", "max_restarts=1").code == 0
    found = settings(file)
    assert (found["num_processes"], found["max_restarts"], found["distributed_type"]) == (2, 1, "DEEPSPEED")
    assert found.section("deepspeed_config") == {"zero_stage": 2}


def test_update_brings_an_old_file_up_to_date(run: Run, file: Path) -> None:
    file.parent.mkdir()
    file.write_text("distributed_type: NO\nfsdp_config: {}\ndynamo_backend: INDUCTOR\ncommands: null\n")
    assert run("config", "update").code == 0
    values = yaml.safe_load(file.read_text())
    assert values["distributed_type"] == "NO"
    assert values["dynamo_config"] == {"dynamo_backend": "INDUCTOR"}
    assert {"fsdp_config", "commands", "dynamo_backend"}.isdisjoint(values)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["zero_stge=2"], "unknown key zero_stge"),
        (["num_processes"], "NAME=VALUE"),
        (["num_processes=two"], "it has to be a whole number"),
        (["use_cpu=true", "distributed_type=MULTI_GPU"], "leave one out"),
    ],
)
def test_bad_changes_write_nothing(run: Run, file: Path, words: list[str], expected: str) -> None:
    done = run("config", "default", *words)
    assert done.code == 2
    assert expected in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert not file.exists()


def test_all_that_is_wrong_is_said_at_once_and_first_what_was_just_typed(run: Run, file: Path) -> None:
    file.parent.mkdir()
    file.write_text("distributed_type: FSPD\nnum_process: 2\nmax_restarts: -1\n")
    said = run("config", "show").err
    assert "line 2: unknown key num_process; did you mean num_processes?" in said
    assert f"distributed_type in {file}, line 1 is 'FSPD'; it has to be one of NO, " in said
    assert f"max_restarts in {file}, line 3 is -1; it has to be at least 0." in said
    done = run("config", "update", "num_proceses=4")
    assert (done.code, done.err) == (
        2,
        "accelify: the command line: unknown key num_proceses; did you mean num_processes?\n",
    )


def test_show_prints_the_file_and_what_is_wrong(run: Run, file: Path) -> None:
    done = run("config", "show")
    assert (done.code, "no configuration file" in done.out) == (0, True)
    file.parent.mkdir()
    text = "num_machines: 2\nnum_proceses: 2\nfsdp_config:\n  fsdp_verison: 2\nzero_stage: 2\n"
    file.write_text(text)
    done = run("config", "show")
    assert done.out == f"# {file}\n{text}"
    assert (done.code, done.err) == (
        2,
        f"accelify: {file}, line 2: unknown key num_proceses; did you mean num_processes?\n"
        f"{file}, line 4: unknown key fsdp_verison in fsdp_config; did you mean fsdp_version?\n"
        f"{file}, line 5: zero_stage belongs into the section deepspeed_config.\n",
    )


ANSWERS = {
    "one process": (["2", "", "", "", ""], {"distributed_type": "NO", "use_cpu": True, "num_processes": 1}),
    "a wrong answer is asked again": (
        ["5", "cpu", "0", "1", "3", "1", "bf16", "perhaps", "n"],
        {"distributed_type": "MULTI_CPU", "num_processes": 3, "mixed_precision": "bf16"},
    ),
    "two machines": (
        ["1", "2", "1", "", "10.0.0.1", "", "2", "4", "1", "", ""],
        {"num_machines": 2, "machine_rank": 1, "main_process_ip": "10.0.0.1", "num_processes": 8, "max_restarts": 2,
         "rdzv_backend": "c10d", "distributed_type": "MULTI_GPU"},
    ),
    "fsdp": (
        ["1", "1", "4", "2", "2", "1000", "n", "y", "2", "", "", ""],
        {"distributed_type": "FSDP", "num_processes": 4, "fsdp_config": {
            "fsdp_version": 2, "fsdp_auto_wrap_policy": "SIZE_BASED_WRAP", "fsdp_min_num_params": 1000,
            "fsdp_reshard_after_forward": False, "fsdp_activation_checkpointing": True,
            "fsdp_state_dict_type": "FULL_STATE_DICT"}},
    ),
    "tensor parallel": (
        ["1", "1", "4", "3", "2", "", ""],
        {"distributed_type": "MULTI_GPU", "parallelism_config": {"parallelism_config_tp_size": 2}},
    ),
    "deepspeed": (
        ["1", "1", "2", "4", "n", "4", "2", "", "y", "4", "", ""],
        {"distributed_type": "DEEPSPEED", "deepspeed_config": {
            "zero_stage": 3, "offload_optimizer_device": "cpu", "offload_param_device": "none",
            "zero3_save_16bit_model": True, "gradient_accumulation_steps": 4}},
    ),
    "tpu and compile": (
        ["3", "1", "y", "3"], {"distributed_type": "XLA", "xla_config": {"spmd": True}, "mixed_precision": "bf16"},
    ),
    "compile": (["2", "1", "1", "1", "y", ""], {"dynamo_config": {"dynamo_backend": "INDUCTOR"}}),
}  # fmt: skip


@pytest.mark.parametrize("name", ANSWERS)
def test_questions(run: Run, file: Path, name: str) -> None:
    answers, expected = ANSWERS[name]
    done = run("config", stdin="".join(f"{answer}\n" for answer in answers).encode())
    assert done.code == 0, done.out + done.err
    values = yaml.safe_load(file.read_text())
    assert {key: values.get(key) for key in expected} == expected
    settings(file)


def test_answers_that_end_early_write_nothing(run: Run, file: Path) -> None:
    done = run("config", stdin=b"2\n")
    assert (done.code, file.exists()) == (2, False)
    assert "`accelify config default` asks none" in done.err


def test_a_look_at_the_machine(tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / f"proc/driver/nvidia/gpus/{number}").mkdir(parents=True)
    assert Machine.look({}, tmp_path).gpus == 4
    assert Machine.look({"CUDA_VISIBLE_DEVICES": "0,2"}, tmp_path).gpus == 2
    assert Machine.look({"CUDA_VISIBLE_DEVICES": ""}, tmp_path).gpus == 0
    assert Machine.look({"PJRT_DEVICE": "TPU"}, tmp_path / "none").tpu
    values = default_values(Machine(gpus=4))
    assert (values["distributed_type"], values["num_processes"], values["use_cpu"]) == ("MULTI_GPU", 4, False)
    assert default_values(Machine())["use_cpu"]


def test_default_loads_no_torch() -> None:
    program = (
        "import sys\nfrom accelify.cli.main import main\n"
        "try:\n    main(['config', 'default', '--force'])\nexcept SystemExit as stop:\n    assert not stop.code\n"
        "print([name for name in ('torch', 'numpy', 'rich') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
