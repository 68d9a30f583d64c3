"""What a launch is made of, value by value, and where each value came from."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from accelify.runtime.launch.fields import (
    DEEPSPEED,
    FIELDS,
    PARALLELISM,
    PRECISIONS,
    SECTION_FIELDS,
    SECTIONS,
    XLA,
    Field,
)

__all__ = ["FIELDS", "PRECISIONS", "Field", "LaunchError", "Settings", "Value", "count_devices", "resolve"]

NO_DEVICE = "default (no device visible)"
_MISSPELLED = 0.93
"""How alike two names are of which one is taken for the other misspelled."""
FLAG, ENVIRONMENT, FILE, DEFAULT = "flag", "environment", "config file", "default"
_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off", "")
_ENGINES = ("FSDP", "DEEPSPEED", "XLA")


class LaunchError(Exception):
    """A launch that cannot start; the message is one sentence."""


@dataclass(frozen=True)
class Value:
    """A value and where it came from, as `--explain` prints it."""

    value: Any
    source: str
    where: str = ""
    """What to name in a sentence about it: the flag, the variable, or the file's line."""

    @property
    def given(self) -> bool:
        """Whether the command line or the environment has it, which both are above the file."""
        return self.source.startswith((FLAG, ENVIRONMENT))


@dataclass
class Settings:
    """Every value of a launch, by name, with its source, and the sections of the engines that are asked for."""

    values: dict[str, Value]
    sections: dict[str, dict[str, Value]] = field(default_factory=dict)
    """By name in the configuration file, then by key."""
    file_name: str = ""

    def __getitem__(self, name: str) -> Any:
        return self.values[name].value

    def source(self, name: str) -> str:
        return self.values[name].source

    def section(self, name: str) -> dict[str, Any]:
        """A section's plain values; empty where it is not asked for."""
        return {key: value.value for key, value in self.sections.get(name, {}).items()}

    @property
    def deepspeed_launcher(self) -> bool:
        """Whether DeepSpeed's launcher is to start the processes: asked for, or one of its options is set."""
        section = self.section(DEEPSPEED)
        implied = section.get("deepspeed_multinode_launcher", "standard") != "standard"
        return bool(section.get("deepspeed_launcher", implied or bool(section.get("deepspeed_hostfile"))))

    def explain(self) -> list[tuple[str, str, str]]:
        """One row a value: name, value, source."""
        unset = {item.file_key or item.name: item.unset for item in FIELDS}
        rows = [(item.file_key or item.name, self.values[item.name]) for item in FIELDS]
        rows += [
            (f"{name}.{key}", v) for name, section in self.sections.items() for key, v in section.items()
        ]
        return [
            (name, unset.get(name) or "not set" if v.value is None else str(v.value), v.source)
            for name, v in rows
        ]


class _Sources:
    """Looks a field up: flag first, then environment, then configuration file, then default."""

    def __init__(
        self,
        flags: Mapping[str, Any],
        environment: Mapping[str, str],
        file_values: Mapping[str, Any],
        file_name: str,
        lines: Mapping[tuple[str, ...], int],
        words: Mapping[str, str],
    ) -> None:
        self.flags = flags
        self.environment = environment
        self.file_values = file_values
        self.file_name = file_name
        self.lines = lines
        self.words = words

    def place(self, *keys: str) -> str:
        """A key of the file, with its line, for a sentence."""
        line = self.lines.get(keys)
        at = f", line {line}" if line else ""
        return f"{keys[-1]} in {self.file_name or 'the configuration file'}{at}"

    def in_file(self, *keys: str) -> Value | None:
        """The raw value of a key of the file, None where it has none."""
        found: Any = self.file_values
        for key in keys:
            found = found.get(key) if isinstance(found, Mapping) else None
        if found is None:
            return None
        line = self.lines.get(keys)
        at = f", line {line}" if line else ""
        return Value(found, f"{FILE} ({self.file_name}{at})", self.place(*keys))

    def given(self, field: Field) -> Value | None:
        """The value of the command line or the environment, None where neither has it."""
        if (flag := self.flags.get(field.name)) is not None:
            word = self.words.get(field.name, f"--{field.name}")
            return Value(checked(field, flag, word), FLAG, word)
        variable = field.environment_variable
        if (text := self.environment.get(variable)) is not None:
            return Value(checked(field, text, variable), f"{ENVIRONMENT} ({variable})", variable)
        return None

    def find(self, field: Field, keys: tuple[str, ...]) -> Value | None:
        if (given := self.given(field)) is not None:
            return given
        value = self.in_file(*keys)
        if value is None:
            return None
        return Value(checked(field, value.value, value.where), value.source, value.where)


def resolve(
    flags: Mapping[str, Any],
    *,
    environment: Mapping[str, str] | None = None,
    file_values: Mapping[str, Any] | None = None,
    file_name: str = "",
    lines: Mapping[tuple[str, ...], int] | None = None,
    devices: int | None = None,
    words: Mapping[str, str] | None = None,
) -> Settings:
    """Settle every value: flag first, then environment, then configuration file, then default.

    Args:
        flags: by field name; None where the flag is absent.
        environment: default `os.environ`.
        file_values: the values of the configuration file, by its keys.
        file_name: named in messages and sources.
        lines: of the file's keys, a section's as (section, key).
        devices: visible CUDA devices of this machine; counted when None and needed.
        words: flags that stand for others, by the name of the field that they set.

    Raises:
        LaunchError: a value of the wrong kind or out of range, or values that contradict each other.
    """
    environment = os.environ if environment is None else environment
    _check_names(environment)
    sources = _Sources(flags, environment, file_values or {}, file_name, lines or {}, words or {})
    values: dict[str, Value] = {}
    for item in FIELDS:
        found = sources.find(item, (item.file_key,) if item.file_key else ())
        values[item.name] = Value(item.default, DEFAULT) if found is None else found
    sections = _sections(sources, values)
    _settle_type(values, sections)
    _settle_processes(values, sections, devices)
    _settle_rendezvous(values)
    _check_machines(values)
    _check_mesh(values, sections)
    return Settings(values, sections, file_name)


def _check_names(environment: Mapping[str, str]) -> None:
    known = {field.environment_variable for field in (*FIELDS, *SECTION_FIELDS)}
    for name in environment:
        if name.startswith("ACCELIFY_") and name not in known:
            close = difflib.get_close_matches(name, known, n=1, cutoff=_MISSPELLED)
            if close:
                raise LaunchError(
                    f"The environment has {name}, which nothing reads; did you mean {close[0]}?"
                )


def _sections(sources: _Sources, values: dict[str, Value]) -> dict[str, dict[str, Value]]:
    """The sections that are asked for: by the distributed type, or by a value of theirs."""
    kind = values["distributed_type"]
    if kind.value == "TPU":
        kind = values["distributed_type"] = Value("XLA", kind.source, kind.where)
    asked = {name: [v for f in _fields(name) if (v := sources.given(f))] for name in SECTIONS}
    for name, (_, owner, title) in SECTIONS.items():
        if not owner or not asked[name] or kind.value == owner:
            continue
        first = asked[name][0]
        if kind.value in _ENGINES or kind.given:
            raise LaunchError(
                f"{first.where} belongs to {title}, and {kind.where} asks for {kind.value}: "
                f"leave one of them out, or add --distributed_type {owner}."
            )
        kind = values["distributed_type"] = Value(owner, first.source, first.where)
    chosen: dict[str, dict[str, Value]] = {}
    for name, (_, owner, title) in SECTIONS.items():
        in_file = sources.in_file(name)
        has_values = in_file is not None and bool(in_file.value)
        if owner and owner != kind.value:
            if has_values and in_file is not None and kind.source.startswith(FILE):
                raise LaunchError(
                    f"{in_file.where} has values for {title}, and {kind.where} asks for {kind.value}: take the "
                    f"section out, or write distributed_type: {owner}."
                )
            continue
        if owner or has_values or asked[name]:
            chosen[name] = _section(sources, name)
    return {name: section for name, section in chosen.items() if section or SECTIONS[name][1]}


def _fields(section: str) -> list[Field]:
    return [item for item in SECTION_FIELDS if item.section == section]


def _section(sources: _Sources, name: str) -> dict[str, Value]:
    found = {item.file_key: sources.find(item, (name, item.file_key)) for item in _fields(name)}
    section = {key: value for key, value in found.items() if value is not None}
    if name == DEEPSPEED:
        # The one value that is outside of the section too, and that the engine wants to know.
        steps = next(item for item in FIELDS if item.name == "gradient_accumulation_steps")
        for keys in ((name, steps.name), (steps.name,)):
            if steps.name not in section and (value := sources.find(steps, keys)) is not None:
                section[steps.name] = value
    if name == "dynamo_config":
        old = sources.in_file("dynamo_backend")
        if old is not None and "dynamo_backend" not in section:
            section["dynamo_backend"] = old
        backend = section.get("dynamo_backend")
        if backend is None and section:
            raise LaunchError(
                f"{next(iter(section.values())).where} is for torch.compile, which is not asked for: "
                "add dynamo_backend, such as inductor."
            )
        if backend is not None and str(backend.value).lower() in ("no", "false"):
            return {}
    return section


def _settle_type(values: dict[str, Value], sections: dict[str, dict[str, Value]]) -> None:
    kind, cpu = values["distributed_type"], values["cpu"]
    if kind.value == "MULTI_CPU" and not cpu.value:
        if cpu.given or (cpu.source != DEFAULT and not kind.given):
            raise LaunchError(
                f"{kind.where} asks for MULTI_CPU, and {cpu.where} is false: leave one of them out."
            )
        values["cpu"] = Value(True, kind.source, kind.where)
    if kind.value == "MULTI_GPU" and cpu.value:
        if cpu.given == kind.given:
            raise LaunchError(f"{kind.where} asks for MULTI_GPU, and {cpu.where} for the CPU: leave one out.")
        if cpu.given:
            values["distributed_type"] = Value("MULTI_CPU", cpu.source, cpu.where)
        else:
            values["cpu"] = Value(False, kind.source, kind.where)
    mesh = sections.get(PARALLELISM)
    if mesh and kind.value in ("DEEPSPEED", "XLA"):
        raise LaunchError(
            f"{next(iter(mesh.values())).where} works alone or with FSDP, and {kind.where} asks for {kind.value}: "
            "leave one of them out."
        )


def _settle_processes(
    values: dict[str, Value], sections: dict[str, dict[str, Value]], devices: int | None
) -> None:
    kind, count = values["distributed_type"], values["num_processes"]
    machines = values["num_machines"].value
    if kind.value == "NO" and count.value is not None and count.value > 1:
        if kind.given == count.given:
            raise LaunchError(
                f"{kind.where} is NO, which means one process, and {count.where} is {count.value}: leave one of them "
                "out, or write MULTI_CPU or MULTI_GPU."
            )
        if kind.given:
            values["num_processes"] = count = Value(1, kind.source, kind.where)
        else:
            values["distributed_type"] = kind = Value(None, DEFAULT)
    if kind.value == "XLA":
        _settle_xla(values, sections[XLA])
        return
    if count.value is None:
        if kind.value == "NO":
            number, why = 1, kind.source
        elif values["cpu"].value:
            number, why = 1, f"{DEFAULT} (one, on the CPU)"
        else:
            found = count_devices() if devices is None else devices
            number = max(found, 1)
            why = f"{DEFAULT} (visible devices)" if found else NO_DEVICE
        values["num_processes"] = count = Value(number * machines, why)
    if kind.value is None:
        several = "MULTI_CPU" if values["cpu"].value else "MULTI"
        name = "NO" if count.value == 1 else several
        if name == "MULTI":
            found = count_devices() if devices is None else devices
            name = "MULTI_GPU" if found else "MULTI_CPU"
        values["distributed_type"] = Value(name, f"{DEFAULT} (from the processes and devices)")
    elif kind.value == "MULTI_GPU" and not (count_devices() if devices is None else devices):
        raise LaunchError(
            f"{kind.where} asks for MULTI_GPU, and no CUDA device is visible here: --cpu runs it on the CPU."
        )


def _settle_xla(values: dict[str, Value], section: dict[str, Value]) -> None:
    """One process a machine that drives all its devices, or one process a device."""
    count, machines = values["num_processes"], values["num_machines"].value
    number, spmd = section.get("num_devices"), section.get("spmd")
    if spmd is None:
        several = count.value is not None and count.value > machines
        spmd = section["spmd"] = Value(not several, f"{DEFAULT} ({'num_processes' if several else 'SPMD'})")
    if not spmd.value and number is None and count.value is not None:
        number = section["num_devices"] = Value(count.value // machines, count.source, count.where)
    if spmd.value and count.value is not None and count.value > machines:
        raise LaunchError(
            f"{count.where} is {count.value}, and under SPMD ({spmd.where or 'the default'}) one process drives all "
            "devices of a machine: leave it out, or set --spmd false."
        )
    processes = 1 if spmd.value or number is None else number.value
    if count.value is None:
        values["num_processes"] = Value(processes * machines, f"{DEFAULT} (XLA)")


def _settle_rendezvous(values: dict[str, Value]) -> None:
    way, restarts = values["rdzv_backend"], values["max_restarts"]
    if values["num_machines"].value == 1 or not restarts.value or way.value == "c10d":
        return
    if way.source == DEFAULT or (way.source.startswith(FILE) and restarts.given):
        # A machine can only come back to a rendezvous that waits for it.
        values["rdzv_backend"] = Value("c10d", f"{DEFAULT} (for {restarts.where})")
        return
    raise LaunchError(
        f"{restarts.where} is {restarts.value}, and with {way.where} static no machine can come back: "
        "use c10d, or no restarts."
    )


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


def _check_mesh(values: dict[str, Value], sections: dict[str, dict[str, Value]]) -> None:
    mesh, processes = sections.get(PARALLELISM), values["num_processes"].value
    if not mesh:
        return
    product = 1
    for value in mesh.values():
        product *= max(value.value, 1)
    if processes % product:
        sizes = " times ".join(f"{value.where} {value.value}" for value in mesh.values())
        raise LaunchError(f"{sizes} does not divide the {processes} processes of --num_processes.")


def checked(field: Field, given: Any, where: str) -> Any:
    """A value as its field has it. LaunchError, naming `where` it stands, for one that cannot be."""
    if field.words and where == f"--{field.name}":
        where = f"{where} ({', '.join(field.words)})"  # either may be what was typed
    if field.kind is bool:
        if isinstance(given, bool):
            return given
        word = str(given).strip().lower()
        if word in _TRUE + _FALSE:
            return word in _TRUE
        raise LaunchError(f"{where} is {given!r}; it has to be true or false.")
    if field.kind is object:
        words: dict[str, Any] = {"true": True, "false": False}
        text = str(given).strip()
        return int(text) if text.isdecimal() else words.get(text.lower(), given)
    if field.kind in (int, float):
        if given == "auto" and field.section == DEEPSPEED:
            return given
        try:
            number = field.kind(given)
        except (TypeError, ValueError):
            kind = "a whole number" if field.kind is int else "a number"
            raise LaunchError(f"{where} is {given!r}; it has to be {kind}.") from None
        if field.least is not None and number < field.least:
            raise LaunchError(f"{where} is {number}; it has to be at least {field.least}.")
        if field.most is not None and number > field.most:
            raise LaunchError(f"{where} is {number}; it has to be at most {field.most}.")
        return number
    # YAML reads an unquoted `no` as false, and that is how a precision of "no" often is in a file.
    word = "no" if given is False else str(given)
    if field.choices:
        fitting = next((choice for choice in field.choices if choice.lower() == word.lower()), None)
        if fitting is None:
            raise LaunchError(f"{where} is {word!r}; it has to be one of {', '.join(field.choices)}.")
        return fitting
    return word


def count_devices() -> int:
    """The CUDA devices that a process started here would see; torch is asked only where a driver is there at all."""
    driver = any(Path(node).exists() for node in ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd"))
    if not driver and os.name == "posix":
        return 0
    import torch

    return torch.cuda.device_count()
