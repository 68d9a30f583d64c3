"""Every rule, with the text of its page: collected from the transforms, so that a new rule needs no list."""

from __future__ import annotations

import importlib
import pkgutil
import textwrap
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from itertools import groupby
from typing import Any, NamedTuple

import accelify.transforms
from accelify.findings import Safety, Severity
from accelify.notebook import CODE as NOTEBOOK_LAUNCHER
from accelify.notebook import UNREAD as UNREAD_CELL
from accelify.other_callers import OTHER_CALLERS
from accelify.proving.rules import IN_PART
from accelify.proving.rules import RULES as PROOF_RULES
from accelify.rule_codes import PUBLIC
from accelify.selection import UNUSED_IGNORE
from accelify.transforms.base import Rule


class RuleEntry(NamedTuple):
    """A rule, and the text of the module that has it (a line of summary, then the rewrites or the reasons)."""

    rule: Rule
    text: str


# Reasons why a whole script cannot be converted are found before any transform runs.
LEFT_ALONE = {
    "ACC001": "The script is distributed already.",
    "ACC003": "No model that is trained here can be seen.",
    "ACC004": "The model or optimizer comes from a caller in another file.",
    "ACC005": "The model or optimizer is stored in no variable.",
    "ACC006": "There is no place for the Accelerator.",
    "ACC007": "The Accelerator cannot be passed to where it is needed.",
    "ACC008": "A core edit cannot be made.",
    "ACC009": "The training loop is in another file.",
    "ACC010": "Something is made only after the place for prepare.",
    "ACC011": "What the script does by hand is not understood.",
}
_BESIDE = (
    *(Rule(code, text, Severity.ERROR, Safety.MANUAL, effort=30) for code, text in LEFT_ALONE.items()),
    Rule(
        OTHER_CALLERS,
        "A function is called by a script that was not converted with it.",
        safety=Safety.MANUAL,
        effort=10,
    ),
    UNUSED_IGNORE,
    IN_PART,
    Rule(NOTEBOOK_LAUNCHER, "A notebook runs on one process.", Severity.INFO, Safety.MANUAL, effort=5),
    Rule(UNREAD_CELL, "A cell is not valid Python.", safety=Safety.MANUAL, effort=10),
)


@cache
def parts() -> dict[str, RuleEntry]:
    """What finds something, by the codes that were rules once, in their order."""
    proved = [rule._replace(summary=_pages()[rule.code]["summary"]) for rule in PROOF_RULES]
    found = {rule.code: RuleEntry(rule, "") for rule in (*_BESIDE, *proved)}
    for info in pkgutil.iter_modules(accelify.transforms.__path__):
        module = importlib.import_module(f"accelify.transforms.{info.name}")
        for value in vars(module).values():
            if isinstance(value, Rule) and value.code not in found:
                found[value.code] = _entry(value, (module.__doc__ or "").strip("\n"))
    return dict(sorted(found.items()))


def _entry(rule: Rule, text: str) -> RuleEntry:
    advice = _pages()[PUBLIC[rule.code]].get("advice", {}).get(rule.code)
    if advice is None:
        return RuleEntry(rule, text)
    return RuleEntry(rule._replace(safety=Safety.MANUAL), f"{rule.summary}\n\n{advice.strip()}")


@cache
def all_rules() -> dict[str, RuleEntry]:
    """The rules by code, in the order of their codes: of each the page, and how bad the worst of its parts is."""
    known = parts()
    found = {}
    for code, page in _pages().items():
        rules = [known[part].rule for part, rule in PUBLIC.items() if rule == code and part in known]
        severity = min((one.severity for one in rules), key=list(Severity).index)
        safety = min((one.safety for one in rules), key=list(Safety).index)
        effort = max(one.effort for one in rules)
        rule = Rule(code, page["summary"], severity, safety, effort=effort)
        found[code] = RuleEntry(rule, _page(code, page, [known[one.code] for one in rules]))
    return found


def rule_page(entry: RuleEntry) -> str:
    """The rule's page as Markdown."""
    rule = entry.rule
    return f"# {rule.code}: {rule.name}\n\n{rule.summary}\n\n{entry.text}\n"


@cache
def _pages() -> dict[str, dict[str, Any]]:
    text = files("accelify").joinpath("rules.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def _page(code: str, page: Mapping[str, Any], found: Sequence[RuleEntry]) -> str:
    example = ""
    if "wrong" in page:
        example = f"```python\n{page['wrong']}```\n\nRight is:\n\n```python\n{page['right']}```"
    silence = (
        f"`# accelify: ignore[{code}]` on the line leaves a finding out, `ignore` or `per-file-ignores` in "
        "[tool.accelify] those of a project."
    )
    chapters = {
        "What it does": page["about"],
        "What one sees": page["seen"],
        "Example": example,
        "Fix": page["fix"],
        "Way out": f"{page['out']}\n{silence}",
    }
    text = [f"## {title}\n\n{body.strip()}" for title, body in chapters.items() if body]
    return "\n\n".join([*text, *_of_parts(code, found)])


def _of_parts(code: str, found: Sequence[RuleEntry]) -> Iterator[str]:
    """What finds it, how safe its edits are, and what they rewrite, each text once."""
    rules = [part.rule for part in found]
    safeties = sorted({one.safety for one in rules}, key=list(Safety).index)
    lines = "\n\n".join(f"**{one}**: {_SAFETY[one]}" for one in safeties)
    kinds = "Its kinds have codes that configuration and comments can name, too:"
    head = f"{kinds}\n\n| code | what is found | severity | safety | minutes by hand |\n|---|---|---|---|---|"
    rows = [f"| {one.code} | {one.summary} | {one.severity} | {one.safety} | {one.effort} |" for one in rules]
    yield "\n".join([f"## Safety\n\n{lines}\n\n{head}", *rows])
    texts = dict.fromkeys(part.text for part in found if part.text)
    if texts:
        yield "## What `convert` does"
    for text in texts:
        title, _, rest = text.partition("\n\n")
        page = _page_of(text)
        blocks = _blocks(rest) if page == code else [f"See [{page}]({page}.md)."]
        yield "\n\n".join([f"### {title.rstrip('.:')}", *blocks])


def _page_of(text: str) -> str:
    """The code of the page that a text of several parts stands on."""
    return next(PUBLIC[code] for code, part in parts().items() if part.text == text)


def rules_index() -> str:
    """A table of all rules as Markdown, linking to their pages."""
    rows = []
    for code, entry in all_rules().items():
        rule = entry.rule
        rows.append(
            f"| [{code}]({code}.md) | {rule.name} | {rule.severity} | {rule.safety} | {rule.summary} |"
        )
    head = ["# Rules", "", "Generated by `accelify rule --write docs/rules`.", ""]
    table = ["| code | name | severity | safety | |", "|---|---|---|---|---|"]
    older = [f"| {part} | [{code}]({code}.md) |" for part, code in sorted(PUBLIC.items()) if part != code]
    note = "Older codes go on working in configuration and comments; they select what they selected:"
    aliases = ["", note, "", "| older code | rule |", "|---|---|", *older]
    return "\n".join([*head, *table, *rows, *aliases]) + "\n"


_SAFETY = {
    Safety.SAFE: "`convert` makes the edit and the numbers stay.",
    Safety.REVIEW: "`convert` makes the edit; look at it, because it may mean something else here.",
    Safety.MANUAL: "`convert` has no edit for it and leaves it to a person.",
}


def _blocks(text: str) -> list[str]:
    """Paragraphs as they are; runs of anything else are rewrites and become one code block."""
    blocks: list[str] = []
    paragraphs = [block for block in text.split("\n\n") if block.strip()]
    for is_prose, run in groupby(paragraphs, _is_prose):
        if is_prose:
            blocks += run
        else:
            code = textwrap.dedent("\n\n".join(run))
            blocks.append(f"```python\n{code}\n```")
    return blocks


def _is_prose(block: str) -> bool:
    return (
        (block[0].isupper() or block[0] == "`")
        and block.rstrip().endswith((".", ":"))
        and " -> " not in block
    )
