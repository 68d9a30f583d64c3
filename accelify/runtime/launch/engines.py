"""The runtime's settings for engines: sections of the configuration file, checked by the engines' classes."""

from __future__ import annotations

import json
import os
from pathlib import Path

from accelify.runtime.launch.fields import DEEPSPEED, SECTIONS, XLA
from accelify.runtime.launch.settings import LaunchError, Settings, Value

# Keys that are for a launcher and not for the engine.
_LAUNCHER_KEYS = (
    "deepspeed_launcher", "deepspeed_hostfile", "deepspeed_inclusion_filter", "deepspeed_exclusion_filter",
    "deepspeed_multinode_launcher",
)  # fmt: skip


def engine_environment(settings: Settings) -> dict[str, str]:
    """ACCELIFY_ENGINE for the script's processes, and what an engine's library reads.

    Raises:
        LaunchError: an engine refuses a value, or this installation does not have the engine.
    """
    stated = {}
    for name, values in settings.sections.items():
        section = {key: value.value for key, value in values.items() if key not in _LAUNCHER_KEYS}
        _check(settings, name, section)
        stated[SECTIONS[name][0]] = section
    if not stated:
        return {}
    environment = {"ACCELIFY_ENGINE": json.dumps(stated)}
    if XLA in settings.sections:
        environment |= _xla_environment(settings)
    return environment


def _check(settings: Settings, name: str, section: dict[str, object]) -> None:
    from accelify.runtime.arguments import plugin_class

    engine, _, title = SECTIONS[name]
    file = section.get("deepspeed_config_file") if name == DEEPSPEED else None
    if file and not Path(str(file)).is_file():
        value = settings.sections[name]["deepspeed_config_file"]
        raise LaunchError(f"{value.where} names {file}, and there is no such file.")
    try:
        plugin_class(engine).from_config(dict(section))
    except ImportError as error:
        raise LaunchError(f"{title} is not there: {error}.") from None
    except (ValueError, TypeError) as error:
        raise LaunchError(_with_place(str(error).rstrip("."), settings.sections[name], title)) from None


def _with_place(stated: str, values: dict[str, Value], title: str) -> str:
    """The engine's sentence with the flag, variable or line of the value that it names."""
    named = max((key for key in values if key in stated), key=len, default=None)
    if named is None:
        return f"{title}: {stated}."
    where = values[named].where
    return f"{where}{stated.removeprefix(named)}." if stated.startswith(named) else f"{where}: {stated}."


def _xla_environment(settings: Settings) -> dict[str, str]:
    section = settings.section(XLA)
    environment = {}
    if settings["cpu"]:
        environment["PJRT_DEVICE"] = "CPU"
        environment["CPU_NUM_DEVICES"] = str(section.get("num_devices", 1))
    elif "PJRT_DEVICE" not in os.environ:
        environment["PJRT_DEVICE"] = "TPU"
    if section["spmd"]:
        environment["XLA_USE_SPMD"] = "1"
    return environment
