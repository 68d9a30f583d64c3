"""What a launch is made of, value by value, and where each value came from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FLAG, ENVIRONMENT, FILE, DEFAULT = "flag", "environment", "config file", "default"
PRECISIONS = ("no", "fp16", "bf16", "fp8")
RENDEZVOUS = ("static", "c10d")
_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off", "")


class LaunchError(Exception):
    """A launch that cannot start, told in one sentence."""


@dataclass(frozen=True)
class Field:
    """One value of a launch: its name, which is the flag's too, its kind, and the names it has elsewhere."""

    name: str
    kind: type
    default: Any
    variable: str
    """Environment variable read when the flag is absent."""
    key: str = ""
    """Key in the configuration file; empty where it has none."""
    choices: tuple[str, ...] = ()
    least: int | None = None


FIELDS = (
    Field("num_processes", int, None, "ACCELIFY_NUM_PROCESSES", "num_processes", least=1),
    Field("cpu", bool, False, "ACCELIFY_USE_CPU", "use_cpu"),
    Field("mixed_precision", str, None, "ACCELIFY_MIXED_PRECISION", "mixed_precision", choices=PRECISIONS),
    Field(
        "gradient_accumulation_steps",
        int,
        None,
        "ACCELIFY_GRADIENT_ACCUMULATION_STEPS",
        "gradient_accumulation_steps",
        least=1,
    ),
    Field("num_machines", int, 1, "ACCELIFY_NUM_MACHINES", "num_machines", least=1),
    Field("machine_rank", int, 0, "ACCELIFY_MACHINE_RANK", "machine_rank", least=0),
    Field("main_process_ip", str, None, "ACCELIFY_MAIN_PROCESS_IP", "main_process_ip"),
    Field("main_process_port", int, None, "ACCELIFY_MAIN_PROCESS_PORT", "main_process_port", least=0),
    Field("rdzv_backend", str, "static", "ACCELIFY_RDZV_BACKEND", "rdzv_backend", choices=RENDEZVOUS),
    Field("max_restarts", int, 0, "ACCELIFY_MAX_RESTARTS", "max_restarts", least=0),
)
BY_NAME = {field.name: field for field in FIELDS}


@dataclass(frozen=True)
class Value:
    """A value and where it came from, as `--explain` prints it."""

    value: Any
    source: str


class Settings:
    """Every value of a launch, by name, with its source."""

    def __init__(self, values: dict[str, Value]) -> None:
        self.values = values

    def __getitem__(self, name: str) -> Any:
        return self.values[name].value

    def source(self, name: str) -> str:
        return self.values[name].source

    def explain(self) -> list[tuple[str, str, str]]:
        """One row a value: name, value, source."""
        return [
            (name, "not set" if v.value is None else str(v.value), v.source)
            for name, v in self.values.items()
        ]


def resolve(
    flags: Mapping[str, Any],
    *,
    environment: Mapping[str, str] | None = None,
    file_values: Mapping[str, Any] | None = None,
    file_name: str = "",
    devices: int | None = None,
) -> Settings:
    """Settle every value: flag first, then environment, then configuration file, then default.

    Args:
        flags: by field name; None where the flag was not given.
        environment: default `os.environ`.
        file_values: what the configuration file holds, by its own keys.
        file_name: named in messages and sources.
        devices: visible accelerators of this machine; counted when None and needed.

    Raises:
        LaunchError: a value of the wrong kind or out of range, or values that contradict each other.
    """
    environment = os.environ if environment is None else environment
    file_values = file_values or {}
    values: dict[str, Value] = {}
    for field in FIELDS:
        given = flags.get(field.name)
        variable = environment.get(field.variable)
        if given is not None:
            values[field.name] = Value(_checked(field, given, f"--{field.name}"), FLAG)
        elif variable is not None:
            values[field.name] = Value(
                _checked(field, variable, field.variable), f"{ENVIRONMENT} ({field.variable})"
            )
        elif field.key and file_values.get(field.key) is not None:
            where = f"{field.key} in {file_name or 'the configuration file'}"
            values[field.name] = Value(
                _checked(field, file_values[field.key], where), f"{FILE} ({file_name})"
            )
        else:
            values[field.name] = Value(field.default, DEFAULT)
    _settle_processes(values, devices)
    _check_machines(values)
    return Settings(values)


def _settle_processes(values: dict[str, Value], devices: int | None) -> None:
    if values["num_processes"].value is not None:
        return
    if values["cpu"].value:
        count, why = 1, f"{DEFAULT} (one, on the CPU)"
    else:
        found = count_devices() if devices is None else devices
        count = max(found, 1)
        why = f"{DEFAULT} (visible devices)" if found else f"{DEFAULT} (no device visible)"
    values["num_processes"] = Value(count * values["num_machines"].value, why)


def _check_machines(values: dict[str, Value]) -> None:
    processes, machines = values["num_processes"].value, values["num_machines"].value
    if processes % machines:
        raise LaunchError(
            f"--num_processes counts the processes of all machines: {processes} cannot be divided by "
            f"--num_machines {machines}."
        )
    if values["machine_rank"].value >= machines:
        raise LaunchError(
            f"--machine_rank counts from 0: {values['machine_rank'].value} is too high for {machines} "
            f"machine{'s' if machines > 1 else ''}."
        )
    if machines > 1 and not values["main_process_ip"].value:
        raise LaunchError(
            "Several machines need the address of the first one: give --main_process_ip, the same on each of them."
        )


def _checked(field: Field, given: Any, where: str) -> Any:
    if field.kind is bool:
        if isinstance(given, bool):
            return given
        word = str(given).strip().lower()
        if word in _TRUE + _FALSE:
            return word in _TRUE
        raise LaunchError(f"{where} is {given!r}; it has to be true or false.")
    if field.kind is int:
        try:
            number = int(given)
        except (TypeError, ValueError):
            raise LaunchError(f"{where} is {given!r}; it has to be a whole number.") from None
        if field.least is not None and number < field.least:
            raise LaunchError(f"{where} is {number}; it has to be at least {field.least}.")
        return number
    # YAML reads an unquoted `no` as false, and that is how a precision of "no" often stands in a file.
    word = "no" if given is False and "no" in field.choices else str(given)
    if field.choices and word not in field.choices:
        raise LaunchError(f"{where} is {word!r}; it has to be one of {', '.join(field.choices)}.")
    return word


def count_devices() -> int:
    """The CUDA devices that a process started here would see; torch is asked only where a driver is there at all."""
    driver = any(Path(node).exists() for node in ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd"))
    if not driver and os.name == "posix":
        return 0
    import torch

    return torch.cuda.device_count()
