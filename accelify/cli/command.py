"""What every command has in common: its help page, its hints, and how much it says."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from difflib import get_close_matches
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from accelify.cli import terminal
from accelify.cli.entry import interrupted

# From here on an unknown option is taken for a misspelt one.
_ALIKE = 0.8
# What stands for a value on the help page, and what a wrong one is not, by the name of its type.
_VALUES = {
    "int": "N",
    "int range": "N",
    "float": "X",
    "float range": "X",
    "str": "TEXT",
    "text": "TEXT",
    "path": "PATH",
}
_KINDS = {"int": "a whole number", "float": "a number"}
# Commands that have --quiet and --verbose, with what these mean there.
AMOUNTS = {
    "convert": ("Print only what is left for a person.", "Also print every edit with its reason."),
    "check": (
        "Print findings only: no count, no progress.",
        "List each finding of a folder's scripts for one device; print which file is looked at, and for how long.",
    ),
    "verify": ("Print one line for each run.", "Print a line on standard error when a run begins."),
}


class Commands(TyperGroup):
    """All commands, each with its whole summary on the help page."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the name and the summary of each command."""
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, one.help or one.short_help or "") for name, one in self.commands.items()]
            )


class Command(TyperCommand):
    """A command whose help page is plain text: whole names of options at any width, under their headings."""

    hint = ""
    """A sentence for an option that the command does not have."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The words of the usage line, without the braces around arguments that are needed."""
        return [piece.strip("{}") for piece in super().collect_usage_pieces(ctx)]

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters, with capitals where a value stands."""
        parameters = super().get_params(ctx)
        for one in parameters:
            if one.metavar is None and one.param_type_name == "argument":
                one.metavar = (one.name or "").upper()
            elif one.metavar is None and not getattr(one, "is_flag", False):
                one.metavar = _VALUES.get(one.type.name)
        return parameters

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments and options, those of a panel under its name."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            other = "Arguments" if parameter.param_type_name == "argument" else "Options"
            sections.setdefault(getattr(parameter, "rich_help_panel", None) or other, []).append(record)
        for name, records in sections.items():
            with formatter.section(name):
                formatter.write_dl(records)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the command line; a message about an unknown option ends with what is meant, or the command's hint."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            if message := getattr(error, "message", ""):
                kind = re.search(r"is not a valid (int|float)\b[^.]*", message)
                stated = message.replace(kind[0], f"is not {_KINDS[kind[1]]}") if kind else message
                error.message = stated  # type: ignore[attr-defined]
            if type(error).__name__ == "NoSuchOption":
                option, known = getattr(error, "option_name", ""), getattr(error, "possibilities", None)
                meant = get_close_matches(option, known or (), 1, _ALIKE)
                hint = f"Did you mean {meant[0]}?" if meant else self.hint
                error.message = f"{error.message}. {hint}".removesuffix(" ")  # type: ignore[attr-defined]
                error.possibilities = []  # type: ignore[attr-defined]
            raise

    def invoke(self, ctx: Any) -> Any:
        """Run the command; typer alone would end an interrupted one without a word."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise SystemExit(interrupted()) from None


def with_amount(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The command `function`, with --quiet and --verbose where the command `name` has them."""
    if name not in AMOUNTS:
        return function
    signature = inspect.signature(function, eval_str=True)
    less, more = AMOUNTS[name]
    added = [_flag("quiet", "-q", less), _flag("verbose", "-v", more)]

    @functools.wraps(function)
    def command(*args: Any, quiet: bool = False, verbose: bool = False, **given: Any) -> Any:
        if quiet and verbose:
            terminal.fail("--quiet and --verbose exclude each other: leave one out.")
        terminal.amount = terminal.QUIET if quiet else terminal.VERBOSE if verbose else terminal.NORMAL
        return function(*args, **given)

    setattr(  # noqa: B010
        command, "__signature__", signature.replace(parameters=[*signature.parameters.values(), *added])
    )
    return command


def _flag(name: str, short: str, text: str) -> inspect.Parameter:
    kind = Annotated[bool, typer.Option(f"--{name}", short, help=text)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=kind)
