"""`accelify rule`: explain one rule, or list them all; with --models, what is known of functions of libraries."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from accelify.cli.terminal import coloured, fail, print_rows

if TYPE_CHECKING:
    from accelify.rules import RuleEntry


def rule(
    code: Annotated[
        str | None,
        typer.Argument(
            metavar="[CODE]",
            help="As in ACC702; without it all are listed. With --models a function, as in torch.relu.",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
    write: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write every rule's page and an index there.")
    ] = None,
    models: Annotated[
        bool,
        typer.Option(
            "--models",
            help="Check the rows about functions of libraries, or show what is known of the function that is named.",
        ),
    ] = False,
) -> None:
    """Explain a rule: what goes wrong without it, what is rewritten, how safe that is."""
    if models:
        from accelify.cli.models import show_models

        show_models(code, json)
        return
    from accelify.obsolete_codes import REPLACED
    from accelify.rule_codes import PUBLIC
    from accelify.rules import all_rules

    rules = all_rules()
    if write is not None:
        _write(write)
        return
    wanted = PUBLIC.get(code.upper(), code.upper()) if code is not None else ""
    if code is not None and wanted not in rules:
        known = "`accelify rule` lists them"
        if f"ACC{code}" in rules:
            known = f"its code is ACC{code}"
        if code.upper() in REPLACED:
            later = REPLACED[code.upper()]
            known = f"{later} says it now" if later else "what it said is a note of the report now"
        fail(f"there is no rule {code}: {known}.")
    chosen = {wanted: rules[wanted]} if code is not None else rules
    if json:
        _print_json(chosen)
    elif code is not None:
        _print_page(wanted)
    else:
        print_rows([(known, entry.rule.name, entry.rule.summary) for known, entry in rules.items()])


def _write(folder: Path) -> None:
    from accelify.rules import all_rules, rule_page, rules_index
    from accelify.source import SourceError, make_folder, write_all

    try:
        make_folder(folder)
        pages = [(folder / f"{code}.md", rule_page(entry).encode()) for code, entry in all_rules().items()]
        write_all([*pages, (folder / "README.md", rules_index().encode())])
    except SourceError as error:
        fail(str(error))


def _print_json(rules: dict[str, RuleEntry]) -> None:
    import json

    fields = ("code", "name", "summary", "severity", "safety", "effort")
    entries = [
        {name: getattr(entry.rule, name) for name in fields} | {"text": entry.text}
        for entry in rules.values()
    ]
    print(json.dumps(entries, indent=2))


def _print_page(code: str) -> None:
    import sys

    from accelify.rules import all_rules, rule_page

    page = rule_page(all_rules()[code])
    if not coloured(sys.stdout):
        print(page, end="")
        return
    from rich.console import Console
    from rich.markdown import Markdown

    Console().print(Markdown(page))
