"""The entry point `accelify`: says which commands there are and loads the one that is asked for, and no other."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NoReturn

import typer

import accelify
from accelify.cli.command import Command, Commands, with_amount
from accelify.cli.entry import guarded

# Name, and the line of the help page. The module accelify.cli.<name> (with _ for -) has a function of that name; it is
# imported only when the command runs, so that the help page costs what typer costs.
COMMANDS = {
    "convert": "Rewrite training scripts so that they run on any number of devices.",
    "check": "Lint training scripts: what goes wrong in them on several devices.",
    "verify": "Run a script before and after conversion, and compare losses, weights and more.",
    "launch": "Run a script in one process or several, on this machine or on several.",
    "config": "Make, change or show the configuration file that launch reads.",
    "test": "Start the configured processes, train a small network, and say what works.",
    "env": "Print versions, devices and settings, for an issue report.",
    "merge-weights": "Make one safetensors file of a sharded checkpoint.",
    "rule": "Explain a rule, such as ACC702.",
    "server": "Start the language server, which shows findings in an editor.",
    "docs": "Open the documentation in a browser; it needs no network.",
}
SHORT = (
    "convert",
    "check",
    "rule",
)  # convert and check turn the garbage collector on after their first script
_HELP = {"help_option_names": ["-h", "--help"]}
EPILOG = "Exit codes: 0 done or nothing to do, 1 something needs a person, 2 bad usage or bad input, 130 interrupted."


def build_app(argv: Sequence[str]) -> typer.Typer:
    """The application for the command line `argv`: the command that it names is imported, no other."""
    app = typer.Typer(
        name="accelify",
        cls=Commands,
        help="Make a training script written for one device run on any number of them, and prove that it stays right.",
        epilog=EPILOG,
        no_args_is_help=True,
        context_settings=_HELP,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    app.callback()(_top)
    asked = next((word for word in argv if not word.startswith("-")), None)
    for name, summary in COMMANDS.items():
        if name == asked:
            function = name.replace("-", "_")
            module = importlib.import_module(f"accelify.cli.{function}")
            if name not in SHORT:
                gc.enable()
            settings = {**_HELP, **getattr(module, "CONTEXT_SETTINGS", {})}
            kind = type("Command", (Command,), {"hint": getattr(module, "UNKNOWN_OPTION", "")})
            app.command(name, cls=kind, short_help=summary, context_settings=settings)(
                with_amount(name, getattr(module, function))
            )
        else:
            app.command(name, help=summary)(_known_by_name)
    return app


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run the command line `argv` (default: the process's) and exit with its code."""
    words = list(sys.argv[1:] if argv is None else argv)
    guarded(lambda: run(words), ends_here=argv is None)


def run(words: Sequence[str]) -> int:
    """Run a command line by typer; it may exit."""
    # A shell that completes a line passes it in a variable.
    line = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")
    app: Callable[..., Any] = build_app(line.split()[1:] if "_ACCELIFY_COMPLETE" in os.environ else words)
    app(list(words), prog_name="accelify")
    return 0


def _print_version(asked: bool) -> None:
    if asked:
        print(f"accelify {accelify.__version__}")
        raise typer.Exit


def _top(
    version: Annotated[
        bool,
        typer.Option(
            "--version", "-V", help="Print the version and exit.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    pass


def _known_by_name() -> None:
    raise AssertionError("only the command named on the command line is run, and that one is imported")
