"""Models that a library spreads over the GPUs of the machine."""

from __future__ import annotations

import pytest

from tests.transforms.support import codes, convert

IMPORTS = "import argparse\nfrom transformers import AutoModel\nargs = argparse.ArgumentParser().parse_args()"
MODEL = (
    "model = AutoModel.from_pretrained('small'{})\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
)


@pytest.mark.parametrize("value", ["'auto'", "'balanced'", "{'': 0}", "args.map", "'cuda:0'"])
def test_each_process_takes_its_device(value: str) -> None:
    found = convert(imports=IMPORTS, build=MODEL.format(f", device_map={value}"))
    assert "AutoModel.from_pretrained('small', device_map=accelerator.device)\n" in found.new_text
    assert "ACC126" in codes(found)


@pytest.mark.parametrize(
    "rest",
    ["", ", device_map=None", ", device_map='cpu'", ", device_map={'': 'cpu'}", ", device_map=judge.device"],
)
def test_what_is_on_one_device_stays(rest: str) -> None:
    found = convert(imports=IMPORTS, build=MODEL.format(rest))
    assert f"from_pretrained('small'{rest})\n" in found.new_text
    assert "ACC126" not in codes(found)
