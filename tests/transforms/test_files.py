"""Files and directories."""

from __future__ import annotations

import pytest

from tests.transforms.support import check_noop, check_transformed

MORE = "import json, shutil\nimport numpy as np\nimport matplotlib.pyplot as plt"


@pytest.mark.parametrize(
    "snippet",
    [
        "with open('log.txt') as f:\n    text = f.read()",
        "with open('log.txt', mode='rb') as f:\n    text = f.read()",
        "path = os.path.join('out', 'x')",
        "exists = os.path.exists('out')",
        "a = np.load('a.npy')",
        "plt.plot([1])",
    ],
)
def test_what_does_not_write_stays(snippet: str) -> None:
    check_noop("end", snippet, "ACC203", imports=MORE)


@pytest.mark.parametrize(
    "snippet",
    [
        "os.makedirs('out')",
        "os.makedirs('out', exist_ok=True)  # é",
        "shutil.copy('a', 'b')",
        "np.save('a.npy', np.zeros(3))",
        "plt.savefig('a.png')",
        "with open('log.txt', 'a') as f:\n    f.write('x')",
        "with open('log.txt', mode='w') as f:\n    json.dump(1, f)",
    ],
)
def test_the_main_process_writes(snippet: str) -> None:
    inner = snippet.replace("\n", "\n    ")
    check_transformed("end", snippet, f"if accelerator.is_main_process:\n    {inner}", imports=MORE)


@pytest.mark.parametrize("body", ["\n    os.makedirs('out')", " os.makedirs('out')"])
def test_a_test_of_its_own_is_extended(body: str) -> None:
    check_transformed(
        "end",
        f"if not os.path.exists('out'):{body}",
        f"if accelerator.is_main_process and not os.path.exists('out'):{body}",
    )


def test_what_the_other_processes_need_is_not_guarded() -> None:
    snippet = "with open('log.txt', 'w') as f:\n    n = f.write('x')\nm = n + 1"
    mark = "# TODO(accelify ACC203): let one process write this file\n"
    check_transformed("end", snippet, mark + snippet)


def test_names_that_another_block_binds_anew_are_its_own() -> None:
    one = "with open('a.csv', 'w') as f:\n    f.write('x')"
    other = "with open('a.csv') as f:\n    print(f.read())"
    conversion = check_transformed(
        "end",
        f"{one}\nif i:\n    pass\n{other}",
        "if accelerator.is_main_process:\n    with open('a.csv', 'w') as f:\n        f.write('x')\nif i:\n    pass\n"
        "with open('a.csv') as f:\n    accelerator.print(f.read())",
    )
    assert "TODO" not in conversion.new_text
