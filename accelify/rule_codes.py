"""The codes of rules: each is a sink and a demand, for `check` and `convert` alike.

Parts of the converter that find the same have codes by themselves, which were rules once and are aliases now: they go
on working in configuration and comments, where they select what they selected.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from accelify.findings import Finding

# Rule, name, and the codes of its parts besides itself.
_TABLE = """\
ACC001 distributed-already
ACC003 left-alone 004 005 006 007 008 009 010 011
ACC012 unused-ignore
ACC102 accelerator 101 105 410 415
ACC106 prepare
ACC122 old-python 123 124
ACC212 random-numbers 215 423
ACC402 unshared-data 115 303
ACC404 fixed-batch-size 125 413
ACC409 other-callers 427
ACC501 notebook-launcher
ACC502 unread-cell
ACC601 accelerate-loader 602 609 610
ACC606 accelerate-model 607 608 611 612 613
ACC701 unproved-figure 301 302 304 306 307
ACC702 effect-by-all 201 202 203 204 205 206 209 210 214
ACC703 parted-path 211 213
ACC704 parted-processes 403 405 414
ACC705 parted-gradients 406 416 417 418 420 603 605
ACC706 counted-rounds 401 412 604
ACC707 written-with-wrapper
ACC708 never-released
ACC709 unordered-files
ACC710 two-devices 114 120 121
ACC711 misplaced-prepare
ACC712 beside-accelerator 107 108 109 110 111 112 116 117
ACC713 counted-twice
ACC714 one-device-for-all 103 104 113 118 126 207
ACC715 attribute-of-wrapper 208
ACC716 same-order-each-epoch
ACC717 unfit-for-tpu
"""
_ROWS = [line.split() for line in _TABLE.splitlines()]
# The names of the rules by their codes.
NAMES = {code: name for code, name, *_ in _ROWS}
# The codes of what finds something, of rules as of their parts, with the codes of the rules.
PUBLIC = {part: code for code, _, *numbers in _ROWS for part in (code, *(f"ACC{one}" for one in numbers))}


def name_of(code: str) -> str:
    """The name of the rule that a code stands for."""
    return NAMES.get(PUBLIC.get(code, code), code)


def published(finding: Finding) -> Finding:
    """A finding of a part as one of its rule, which is what users see."""
    code = PUBLIC.get(finding.code, finding.code)
    return replace(finding, code=code, name=NAMES.get(code, finding.name), part=finding.code)


def published_all(findings: Iterable[Finding]) -> list[Finding]:
    """Findings of parts as those of their rules, each place and message once."""
    return list({(one, one.cell, one.message): one for one in map(published, findings)}.values())
