"""What the Accelerator's arguments read has the value there that the script's line reads."""

from __future__ import annotations

import pytest

from accelify.convert import convert_source
from accelify.source import Source

SCRIPT = """\
import argparse
import torch
from torch import nn


def override(options, given):
    options["device"] = given.device


def look(options):
    print(options["device"])


def main():
    args = argparse.ArgumentParser().parse_args()
    cfg = {{"seed": 1}}
    {between}
    device = torch.device(cfg.get("device", "cuda"))
    {after}
    model = nn.Linear(4, 2).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in data:
        loss = model(x.to(device)).sum()
        loss.backward()
        optimizer.step()


main()
"""


def converted(between: str = "", after: str = "") -> str:
    found = convert_source(Source.from_text(SCRIPT.format(between=between, after=after)))
    assert found.status == "converted", found.reason
    return found.new_text


@pytest.mark.parametrize(
    "between",
    [
        'if args.device is not None: cfg["device"] = args.device',
        'cfg.update({"seed": 2, "device": args.device})',
        "cfg.update(vars(args))",
        'cfg.setdefault("device", args.device)',
        "override(cfg, args)",
        "for key, value in vars(args).items(): cfg[key] = value",
        'if args.device is None: del cfg["device"]',
        'cfg |= {"device": args.device}',
    ],
)
def test_it_is_made_after_what_writes_the_entry(between: str) -> None:
    text = converted(between)
    assert text.index(between) < text.index('Accelerator(cpu=str(cfg.get("device", "cuda")) == "cpu")')


@pytest.mark.parametrize(
    "between",
    [
        'cfg["rate"] = args.rate',
        "cfg.update(rate=args.rate)",
        "look(cfg)",
        "print(cfg.get('seed'))",
        "args.device = 1",
        "if not torch.cuda.is_available(): cfg['device'] = 'cpu'",
    ],
)
def test_it_is_made_before_what_leaves_the_entry(between: str) -> None:
    text = converted(f"{between}\n    print(args)").partition("def main")[2]
    assert text.index("= Accelerator(") < text.index(between[:5])


def test_what_is_written_after_the_read_has_no_effect() -> None:
    text = converted(after='cfg["device"] = "none"')
    assert text.index("device = accelerator.device") < text.index('cfg["device"] = "none"')


@pytest.mark.parametrize(
    "between",
    ["vars(args)['device'] = 'cpu'", "args.__dict__.update(device='cpu')", "setattr(args, 'device', 'cpu')"],
)
def test_attributes_by_other_ways(between: str) -> None:
    script = SCRIPT.format(between=between, after="").replace('cfg.get("device", "cuda")', "args.device")
    text = convert_source(Source.from_text(script)).new_text
    assert text.index(between) < text.index('Accelerator(cpu=str(args.device) == "cpu")')
