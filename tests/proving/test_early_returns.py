"""Meetings that some do not come to, as they have left before: the statement by which they leave is named."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import findings

TEXT = """
accelerator = Accelerator()
def main():
    if accelerator.is_main_process:
        {body}
        return
    accelerator.wait_for_everyone()
main()
"""


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (1, "reached by all ranks: only on the main process (line 10)"),
        (9, "reached by all ranks, as some leave by `return` (line 20): only on the main process (line 10)"),
    ],
)
def test_the_line_of_a_return_far_from_its_condition(lines, said, tmp_path):
    body = "\n        ".join(["number = 1"] * lines)
    (one,) = findings(TEXT.format(body=body), tmp_path, "accelerate")
    assert said in one.message
