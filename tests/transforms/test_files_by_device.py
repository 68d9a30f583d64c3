"""Files that are named after the device."""

from __future__ import annotations

import pytest

from tests.transforms.support import codes, convert

CHOICE = 'device = torch.device("cuda:1" if torch.cuda.is_available() else "cpu")\n'


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ('"net_%d_%s.pt" % (epoch, device)', '"net_%d_%s.pt" % (epoch, device.type)'),
        ('"net_%s.pt" % device', '"net_%s.pt" % device.type'),
        ('"net_{}.pt".format(device)', '"net_{}.pt".format(device.type)'),
        ('"net_" + str(device)', '"net_" + str(device.type)'),
    ],
)
def test_the_kind_of_the_device_is_the_same_everywhere(text: str, after: str) -> None:
    conversion = convert(
        setup=CHOICE, end=f"path = {text}\nprint(path)\nif os.path.exists(path): os.remove(path)"
    )
    assert f"path = {after}\n" in conversion.new_text
    straight = convert(setup=CHOICE, end=f"torch.save(model.state_dict(), {text})")
    assert f", {after})" in straight.new_text
    loaded = convert(setup=CHOICE, end=f"model.load_state_dict(torch.load({text}))")
    assert f"torch.load({after}, map_location=accelerator.device)" in loaded.new_text


def test_a_formatted_string_has_the_kind_too() -> None:
    conversion = convert(setup=CHOICE, end='torch.save(model.state_dict(), f"net_{device}.pt")')
    assert 'f"net_{device.type}.pt"' in conversion.new_text


@pytest.mark.parametrize(
    "end",
    [
        'print("on %s" % device)',
        'torch.save(model.state_dict(), "net_%s.pt" % device.type)',
        "name = str(device)",
        "if os.path.exists('a.pt'):\n    state = torch.load('a.pt', map_location=str(device))",
        "if os.path.exists('a.pt'):\n    state = torch.load('a.pt', str(device))",
    ],
)
def test_what_names_no_file_after_a_device(end: str) -> None:
    assert "ACC213" not in codes(convert(setup=CHOICE, end=end))
