"""`accelify config`: make, change and show the configuration file of launches."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from accelify.cli.terminal import fail
from accelify.runtime.launch.config_file import Config, check, default_path, read_config, write_config
from accelify.runtime.launch.fields import BY_NAME, SECTIONS, section_keys
from accelify.runtime.launch.questions import Machine, ask, default_values
from accelify.runtime.launch.settings import LaunchError, resolve


class Action(StrEnum):
    """What to do with the file."""

    ASK = "ask"
    DEFAULT = "default"
    UPDATE = "update"
    SHOW = "show"


def _either_spelling(word: str) -> str:
    return word.replace("-", "_")


CONTEXT_SETTINGS = {"token_normalize_func": _either_spelling}


def config(
    action: Annotated[
        Action,
        typer.Argument(
            metavar="[ask|default|update|show]",
            help="Ask; or write defaults, update the file that is there, or show it.",
        ),
    ] = Action.ASK,
    changes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME=VALUE...", help="Values for default and update, such as num_processes=4."
        ),
    ] = None,
    config_file: Annotated[
        Path | None, typer.Option("--config_file", help="The file. Default: where launch looks for it.")
    ] = None,
    mixed_precision: Annotated[
        str | None, typer.Option("--mixed_precision", help="The same as mixed_precision=VALUE.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file that is there.")] = False,
) -> None:
    """Make the configuration file that `accelify launch` reads, change it, or show it.

    Without more it asks a few questions, with answers suggested by this machine. `default` writes a file for all
    devices of this machine, `update` changes values and brings an older file up to date, `show` prints the file and
    says what is wrong with it.
    """
    file = (config_file or default_path()).expanduser()
    words = [*(changes or []), *([f"mixed_precision={mixed_precision}"] if mixed_precision else [])]
    try:
        _apply({}, words)  # what is wrong with the words is wrong whatever the file has
        if action is Action.SHOW:
            _show(file)
            return
        if action is Action.UPDATE:
            values = _updated(read_config(str(file)).values)
        else:
            if file.exists() and not force:
                raise LaunchError(
                    f"{file} is there already: change it with `accelify config update`, or replace it with --force."
                )
            machine = Machine.look()
            values = ask(_Terminal(), machine) if action is Action.ASK else default_values(machine)
        _apply(values, words)
        _check(Config(str(file), values))
        write_config(values, file)
    except LaunchError as error:
        fail(str(error))
    except EOFError:
        print()
        fail("The questions ended without an answer: `accelify config default` asks none.")
    print(f"{file} is written; `accelify config show` prints it.")


def _show(file: Path) -> None:
    if not file.exists():
        print(f"There is no configuration file at {file}; launches go by their defaults and flags.")
        return
    print(f"# {file}")
    try:
        print(file.read_text(encoding="utf-8").rstrip("\n"))
    except (OSError, UnicodeDecodeError) as error:
        raise LaunchError(f"{file} cannot be read: {error}.") from None
    _check(read_config(str(file)))


def _check(config: Config) -> None:
    # The file may be for other machines: how many devices are here does not matter.
    resolve(
        {},
        environment={},
        file_values=config.values,
        file_name=config.name,
        lines=config.lines,
        devices=sys.maxsize,
    )


def _updated(values: dict[str, Any]) -> dict[str, Any]:
    """The values as files have them today: defaults for what is missing, sections that say nothing taken out."""
    new = default_values(Machine.look()) | values
    if (backend := new.pop("dynamo_backend", None)) is not None and "dynamo_config" not in new:
        new["dynamo_config"] = {} if str(backend).lower() in ("no", "false") else {"dynamo_backend": backend}
    if new["distributed_type"] in (False, "TPU"):
        new["distributed_type"] = {False: "NO", "TPU": "XLA"}[new["distributed_type"]]
    if "num_processes" not in values:
        # How many there are follows from the kind of machine, which the file already says.
        del new["num_processes"]
    if "use_cpu" not in values:
        new["use_cpu"] = new["distributed_type"] == "MULTI_CPU"
    return {key: value for key, value in new.items() if value not in ({}, [], None)}


def _apply(values: dict[str, Any], words: list[str]) -> None:
    import yaml

    for word in words:
        name, equals, text = word.partition("=")
        section, _, key = name.rpartition(".")
        field = BY_NAME.get(key)
        if not section and field is not None:
            section, key = field.section, field.file_key
        elif not section:
            section = next((s for s in SECTIONS if key in section_keys(s)), "")
        try:
            value = text if key == "mixed_precision" else yaml.safe_load(text)
        except yaml.YAMLError:
            value = text
        if not equals or not key:
            raise LaunchError(f"{word}: write changes as NAME=VALUE, such as num_processes=4.")
        (values.setdefault(section, {}) if section else values)[key] = value
    check(Config("the command line" if words else "The new configuration", values))
    if words and not any(word.startswith("distributed_type=") for word in words):
        _follow(values)


def _follow(values: dict[str, Any]) -> None:
    """Let the distributed type follow from what was changed, where it says less than that."""
    if values.get("distributed_type") not in ("NO", "MULTI_CPU", "MULTI_GPU"):
        return
    owners = [owner for section, (_, owner, _) in SECTIONS.items() if owner and values.get(section)]
    if owners:
        values["distributed_type"] = owners[0]
    elif isinstance(count := values.get("num_processes"), int):
        several = "MULTI_CPU" if values.get("use_cpu") else "MULTI_GPU"
        values["distributed_type"] = several if count > 1 else "NO"


class _Terminal:
    """Asks on the terminal: an empty answer is the default, a wrong one is explained and asked again."""

    def _read(self, question: str, default: str) -> str:
        print(f"{question} [{default}]: " if default else f"{question} ", end="", flush=True)
        return input().strip() or default

    def choose(self, question: str, answers: Mapping[str, str], default: str) -> str:
        keys = list(answers)
        print(question)
        for number, text in enumerate(answers.values(), 1):
            print(f"  {number}  {text}")
        while True:
            answer = self._read("Number", str(keys.index(default) + 1))
            if answer.isdecimal() and 1 <= int(answer) <= len(keys):
                return keys[int(answer) - 1]
            if answer in keys:
                return answer
            print(f"Please give a number from 1 to {len(keys)}.")

    def number(self, question: str, default: int, least: int = 1) -> int:
        while True:
            answer = self._read(question, str(default))
            if answer.isdecimal() and int(answer) >= least:
                return int(answer)
            print(f"Please give a whole number of at least {least}.")

    def yes(self, question: str, default: bool = False) -> bool:
        while True:
            answer = self._read(question, "yes" if default else "no").lower()
            if answer in ("y", "yes", "n", "no"):
                return answer.startswith("y")
            print("Please answer yes or no.")

    def text(self, question: str, default: str = "", needed: bool = False) -> str:
        while True:
            answer = self._read(question, default)
            if answer or not needed:
                return answer
            print("Please give an answer.")
