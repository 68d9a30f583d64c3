"""The configuration file of a launch: where it lies and how it is read, Hugging Face Accelerate's too."""

from __future__ import annotations

import difflib
import importlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accelify.runtime.launch.settings import FIELDS, LaunchError

_OWN_KEYS = {field.key for field in FIELDS if field.key}
# Keys that the peer writes and that a launch on one or several machines does not need to know.
_KNOWN_ELSEWHERE = {
    "compute_environment", "debug", "distributed_type", "downcast_bf16", "enable_cpu_affinity", "gpu_ids",
    "main_training_function", "same_network", "tpu_env", "tpu_name", "tpu_use_cluster", "tpu_use_sudo", "tpu_zone",
    "dynamo_config", "fsdp_config", "deepspeed_config", "megatron_lm_config", "mpirun_config", "ipex_config",
    "fp8_config", "parallelism_config", "dynamo_backend", "commands", "command_file",
}  # fmt: skip
_ENGINES_TO_COME = {"FSDP", "DEEPSPEED", "MEGATRON_LM", "TPU", "XLA"}


def default_path(environment: Mapping[str, str] | None = None) -> Path:
    """Where the file lies: HF_HOME/accelerate, else XDG_CACHE_HOME/huggingface/accelerate, else below ~/.cache."""
    environment = os.environ if environment is None else environment
    if home := environment.get("HF_HOME"):
        folder = Path(home).expanduser()
    elif cache := environment.get("XDG_CACHE_HOME"):
        folder = Path(cache).expanduser() / "huggingface"
    else:
        folder = Path.home() / ".cache" / "huggingface"
    return folder / "accelerate" / "default_config.yaml"


def read_config(path: str | None = None) -> tuple[str, dict[str, Any]]:
    """The file's name and its values.

    Args:
        path: None for the default place, where no file is no error.

    Raises:
        LaunchError: no such file, not YAML, an unknown key, or an engine that a launch cannot start yet.
    """
    file = Path(path).expanduser() if path else default_path()
    if not file.is_file():
        if path:
            raise LaunchError(f"There is no configuration file {path}.")
        return "", {}
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LaunchError(f"The configuration file {file} cannot be read: {error}.") from None
    values = _parse(text, file)
    _check_keys(values, text, file)
    kind = str(values.get("distributed_type", "NO")).upper()
    if kind in _ENGINES_TO_COME:
        raise LaunchError(
            f"{file} asks for distributed_type {kind}, which accelify launch cannot start yet: "
            "set it to MULTI_GPU or NO, or give another file with --config_file."
        )
    return str(file), values


def _parse(text: str, file: Path) -> dict[str, Any]:
    try:
        yaml = importlib.import_module("yaml")
    except ImportError:
        raise LaunchError(f"Reading {file} needs PyYAML: pip install pyyaml.") from None
    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}" if mark else "it"
        raise LaunchError(f"{file} is not valid YAML: {where} cannot be read.") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise LaunchError(f"{file} has to hold `name: value` lines.")
    return values


def _check_keys(values: dict[str, Any], text: str, file: Path) -> None:
    known = _OWN_KEYS | _KNOWN_ELSEWHERE
    for key in values:
        if key in known:
            continue
        number = next((n for n, line in enumerate(text.splitlines(), 1) if str(key) in line), 1)
        close = difflib.get_close_matches(str(key), sorted(known), n=1)
        hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(sorted(_OWN_KEYS))}."
        raise LaunchError(f"{file}, line {number}: unknown key {key}; {hint}")
