"""The configuration file of a launch: where it is, how it is read (Hugging Face Accelerate's too) and written."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from accelify.runtime.launch.fields import (
    FIELDS,
    IDLE_KEYS,
    MISSING_KEYS,
    SECTION_FIELDS,
    SECTIONS,
    section_keys,
)
from accelify.runtime.launch.settings import LaunchError, checked

_OWN_KEYS = {item.file_key for item in FIELDS if item.file_key}
_KNOWN_KEYS = _OWN_KEYS | set(SECTIONS) | IDLE_KEYS | MISSING_KEYS | {"dynamo_backend"}


@dataclass
class Config:
    """A configuration file: its name (empty where there is none), its values, and the lines of their keys."""

    name: str = ""
    values: dict[str, Any] = field(default_factory=dict)
    lines: dict[tuple[str, ...], int] = field(default_factory=dict)

    def place(self, *keys: str) -> str:
        return f"{self.name}, line {self.lines[keys]}" if keys in self.lines else self.name


def default_path(environment: Mapping[str, str] | None = None) -> Path:
    """Where the file is: HF_HOME/accelerate, else XDG_CACHE_HOME/huggingface/accelerate, else below ~/.cache."""
    environment = os.environ if environment is None else environment
    if home := environment.get("HF_HOME"):
        folder = Path(home).expanduser()
    elif cache := environment.get("XDG_CACHE_HOME"):
        folder = Path(cache).expanduser() / "huggingface"
    else:
        folder = Path.home() / ".cache" / "huggingface"
    return folder / "accelerate" / "default_config.yaml"


def read_config(path: str | None = None) -> Config:
    """The file's values.

    Args:
        path: None for the default place, where no file is no error.

    Raises:
        LaunchError: no such file, not YAML, an unknown key, or something that accelify does not have.
    """
    file = Path(path).expanduser() if path else default_path()
    if not file.exists() or file.is_dir():
        if path:
            raise LaunchError(f"There is no configuration file {path}; `accelify config default` makes one.")
        return Config()
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LaunchError(f"The configuration file {file} cannot be read: {error}.") from None
    config = _parse(text, file)
    check(config)
    return config


def write_config(values: Mapping[str, Any], path: Path) -> None:
    """Write values as plain YAML, whole or not at all.

    Raises:
        LaunchError: the file cannot be written.
    """
    import yaml

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        beside.write_text(yaml.safe_dump(dict(values), sort_keys=False), encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        raise LaunchError(f"{path} cannot be written: {error.strerror or error}.") from None


def _parse(text: str, file: Path) -> Config:
    import yaml

    # The C parser where PyYAML has it; both know plain data only.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)
    try:
        node = loader.get_single_node()
        values = loader.construct_document(node) if node is not None else None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}" if mark else "it"
        raise LaunchError(f"{file} is not valid YAML: {where} cannot be read.") from None
    finally:
        loader.dispose()
    if values is None:
        return Config(str(file))
    if not isinstance(values, dict):
        raise LaunchError(f"{file} has to hold `name: value` lines.")
    lines: dict[tuple[str, ...], int] = {}
    _note_lines(node, (), lines, str(file))
    return Config(str(file), values, lines)


def _note_lines(node: Any, above: tuple[str, ...], lines: dict[tuple[str, ...], int], file: str) -> None:
    for key, value in node.value:
        path = (*above, str(key.value))
        if path in lines:
            raise LaunchError(
                f"{file}, line {key.start_mark.line + 1}: {path[-1]} stands there twice; line {lines[path]} has it too."
            )
        lines[path] = key.start_mark.line + 1
        if not above and value.id == "mapping":
            _note_lines(value, path, lines, file)


def check(config: Config) -> None:
    """LaunchError for all keys that no launch knows, and all values that cannot be, with lines and suggestions."""
    if wrong := [*_wrong_keys(config), *_wrong_values(config)]:
        raise LaunchError("\n".join(wrong))


def _wrong_keys(config: Config) -> Iterator[str]:
    for key, value in config.values.items():
        if key not in _KNOWN_KEYS:
            elsewhere = next((name for name in SECTIONS if key in section_keys(name)), None)
            hint = _hint(str(key), _KNOWN_KEYS)
            what = (
                f"{key} belongs into the section {elsewhere}." if elsewhere else f"unknown key {key}; {hint}"
            )
            yield f"{config.place(str(key))}: {what}"
        if key in MISSING_KEYS and _asks_for_something(value):
            yield f"{config.place(key)}: accelify has nothing for {key}; take it out."
        if key in SECTIONS:
            yield from _wrong_in_section(config, key, value)
    if str(config.values.get("compute_environment", "LOCAL_MACHINE")) not in ("LOCAL_MACHINE", "TPU"):
        yield (
            f"{config.place('compute_environment')}: accelify starts jobs on the machine it runs on, "
            f"not on {config.values['compute_environment']}; write LOCAL_MACHINE."
        )


def _wrong_values(config: Config) -> Iterator[str]:
    for item in (*FIELDS, *SECTION_FIELDS):
        keys = (item.section, item.file_key) if item.section else (item.file_key,)
        around = config.values.get(item.section) if item.section else config.values
        value = around.get(item.file_key) if isinstance(around, dict) else None
        if value is not None:
            try:
                checked(item, value, f"{item.file_key} in {config.place(*keys)}")
            except LaunchError as error:
                yield str(error)


def _asks_for_something(value: Any) -> bool:
    """Whether a section has more than refusals in it: Accelerate's questions leave `ipex: false` after a "no"."""
    if isinstance(value, dict):
        return any(map(_asks_for_something, value.values()))
    return bool(value) and str(value).lower() not in ("false", "no")


def _wrong_in_section(config: Config, name: str, section: Any) -> Iterator[str]:
    if section is None:
        return
    if not isinstance(section, dict):
        yield f"{config.place(name)}: {name} has to be a section with `name: value` lines below it."
        return
    known = set(section_keys(name)) | (
        {"gradient_accumulation_steps"} if name == "deepspeed_config" else set()
    )
    for key in section:
        if key not in known and not _is_of_accelerate(name, str(key), section[key]):
            yield f"{config.place(name, str(key))}: unknown key {key} in {name}; {_hint(str(key), known)}"


def _is_of_accelerate(section: str, key: str, value: Any) -> bool:
    """A key of Accelerate's for a way of working that its value leaves off."""
    off = {
        "parallelism_config": ("cp_size", "sp_size"),
        "fsdp_config": ("fsdp_activation_checkpointing_offload",),
        "dynamo_config": ("dynamo_use_regional_compilation",),
    }
    wanted = key.removeprefix("parallelism_config_")
    if wanted in off.get(section, ()):
        return value in (None, False, 1, "1", "false")
    return section == "parallelism_config" and wanted.startswith(("cp_", "sp_"))


def _hint(key: str, known: set[str]) -> str:
    close = difflib.get_close_matches(key, sorted(known), n=1)
    own = sorted(known & _OWN_KEYS) or sorted(known)
    return f"did you mean {close[0]}?" if close else f"known are {', '.join(own)}."
