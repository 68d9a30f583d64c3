"""Questions about a DeepSpeed configuration, under the names by which transformers asks."""

from __future__ import annotations

import base64
import copy
import json
import os
from typing import Any


class HfDeepSpeedConfig:
    """A DeepSpeed configuration whose values are read by their path, such as "zero_optimization.stage".

    Args:
        config_file_or_dict: a dict, a JSON file, or JSON as text, also in base64.

    Attributes:
        config: the configuration, a copy where it was a dict.

    Raises:
        ValueError: it is none of these.
    """

    def __init__(self, config_file_or_dict: Any) -> None:
        self.config: dict[str, Any] = _read(config_file_or_dict)
        self.set_stage_and_offload()

    def set_stage_and_offload(self) -> None:
        """Read the ZeRO stage and whether anything is offloaded; again after the configuration was changed."""
        self._stage = self.get_value("zero_optimization.stage", -1)
        devices = {
            self.get_value(f"zero_optimization.offload_{part}.device") for part in ("optimizer", "param")
        }
        self._offload = self._stage in (2, 3) and not devices.isdisjoint({"cpu", "nvme"})

    def find_config_node(self, ds_key_long: str) -> tuple[dict[str, Any] | None, str]:
        """The section that a path leads to, None where it is not there, and the path's last part."""
        *nodes, last = ds_key_long.split(".")
        config: dict[str, Any] | None = self.config
        for node in nodes:
            config = config.get(node) if config is not None else None
        return config, last

    def get_value(self, ds_key_long: str, default: Any = None) -> Any:
        """The value at a path.

        Args:
            ds_key_long: the path.
            default: returned where nothing is there.
        """
        config, key = self.find_config_node(ds_key_long)
        return default if config is None else config.get(key, default)

    def del_config_sub_tree(self, ds_key_long: str, must_exist: bool = False) -> None:
        """Delete what a path leads to.

        Args:
            ds_key_long: the path.
            must_exist: nothing there is an error.

        Raises:
            ValueError: nothing is there, and has to be.
        """
        config, key = self.find_config_node(ds_key_long)
        if config is not None and key in config:
            del config[key]
        elif must_exist:
            raise ValueError(f"the DeepSpeed configuration has no {ds_key_long}: {self.config}")

    def is_true(self, ds_key_long: str) -> bool:
        """Whether a value is there and true."""
        return bool(self.get_value(ds_key_long))

    def is_false(self, ds_key_long: str) -> bool:
        """Whether a value is there and false."""
        value = self.get_value(ds_key_long)
        return value is not None and not value

    def is_zero2(self) -> bool:
        """Whether gradients are divided, and weights are not."""
        return bool(self._stage == 2)

    def is_zero3(self) -> bool:
        """Whether weights are divided."""
        return bool(self._stage == 3)

    def is_offload(self) -> bool:
        """Whether optimizer states or weights wait outside of the device."""
        return self._offload


def _read(given: Any) -> dict[str, Any]:
    if isinstance(given, dict):
        return copy.deepcopy(given)
    found: Any = None
    if isinstance(given, (str, os.PathLike)):
        if os.path.exists(given):
            with open(given, encoding="utf-8") as file:
                found = json.load(file)
        else:
            text = os.fspath(given)
            for decode in (str, lambda coded: base64.urlsafe_b64decode(coded).decode("utf-8")):
                try:
                    found = json.loads(decode(text))
                    break
                except ValueError:
                    continue
    if not isinstance(found, dict):
        raise ValueError(
            f"a DeepSpeed configuration is a dict, a JSON file, or JSON in base64, not {given!r}"
        )
    return found
