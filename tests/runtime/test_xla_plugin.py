"""What is said about XLA devices, with or without torch_xla."""

import sys

import pytest

from accelify.runtime import Accelerator, XLAPlugin


def test_a_section_of_the_file():
    plugin = XLAPlugin.from_config({"spmd": "true", "num_devices": "4", "cache_dir": None})
    assert (plugin.spmd, plugin.num_devices, plugin.cache_dir) == (True, 4, None)
    assert XLAPlugin.from_config(None) == XLAPlugin()
    assert XLAPlugin(pad_lengths=[9, 3]).pad_lengths == [3, 9]


@pytest.mark.parametrize(
    ("section", "sentence"),
    [
        ({"smpd": True}, "xla_config has no key 'smpd': did you mean spmd?"),
        ({"spmd": "perhaps"}, "spmd in xla_config must be true or false, not 'perhaps'"),
        ({"num_devices": 0}, "num_devices in xla_config must be a whole number of at least 1, not 0"),
        ({"pad_lengths": 8}, "pad_lengths must be a list of whole numbers such as"),
        ({"pad_lengths": [8, -1]}, "pad_lengths must be a list of whole numbers such as"),
        ({"ignore_values": 3}, "ignore_values must name entries of a batch"),
        ({"shard_weights": True, "spmd": False}, "shard_weights spreads weights"),
    ],
)
def test_sections_that_cannot_be(section, sentence):
    with pytest.raises(ValueError, match="XLA|xla_config") as caught:
        XLAPlugin.from_config(section)
    assert sentence in str(caught.value)


@pytest.mark.parametrize("how", ["environment", "argument", "launcher"])
def test_a_missing_package_is_one_sentence(how, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch_xla", None)
    monkeypatch.delenv("PJRT_DEVICE", raising=False)
    plugin = None
    if how == "environment":
        monkeypatch.setenv("PJRT_DEVICE", "TPU")
    elif how == "launcher":
        monkeypatch.setenv("ACCELIFY_ENGINE", '{"xla": {}}')
    else:
        plugin = XLAPlugin()
    with pytest.raises(ImportError, match=r"torch_xla is not installed: `pip install '.*\[tpu\]'"):
        Accelerator(xla_plugin=plugin)


def test_the_cpu_and_xla_exclude_each_other(monkeypatch):
    monkeypatch.delenv("PJRT_DEVICE", raising=False)
    with pytest.raises(ValueError, match="both asked for: leave one out"):
        Accelerator(cpu=True, xla_plugin=XLAPlugin())
    monkeypatch.setenv("PJRT_DEVICE", "CPU")
    assert Accelerator(cpu=True).device.type == "cpu"
