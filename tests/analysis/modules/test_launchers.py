"""By which engine a project trains a script."""

from __future__ import annotations

import pytest

from accelify import files_read
from accelify.analysis.modules.launchers import engines_of

DEEPSPEED, FSDP = (
    "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\n",
    "distributed_type: 'FSDP'\n",
)


@pytest.mark.parametrize(
    ("files", "engines"),
    [
        ({}, set()),
        ({"config.yaml": DEEPSPEED}, {"DEEPSPEED"}),
        ({"configs/fsdp.yml": FSDP, "data/other.yaml": DEEPSPEED}, {"FSDP"}),
        ({"config.yaml": DEEPSPEED, "gpus.yaml": "distributed_type: MULTI_GPU"}, {"DEEPSPEED", "MULTI_GPU"}),
        ({"config.yaml": "distributed_type: NO"}, set()),
        ({"../other.yaml": DEEPSPEED}, set()),
        (
            {"README.md": "Run\n```\naccelerate launch --use_deepspeed \\\n  src/train.py --lr 1\n```"},
            {"DEEPSPEED"},
        ),
        ({"README.md": "accelerate launch --use-fsdp -m src.train"}, {"FSDP"}),
        ({"README.md": "accelerate launch --use_deepspeed other_train.py"}, set()),
        (
            {
                "run.sh": "accelerate launch --config_file cfg/zero2.yaml src/train.py",
                "zero2.yaml": DEEPSPEED,
            },
            {"DEEPSPEED"},
        ),
        ({"run.sh": "accelerate launch --multi_gpu src/train.py", "zero2.yaml": DEEPSPEED}, {"MULTI_GPU"}),
        ({"run.sh": "accelerate launch src/train.py", "zero2.yaml": DEEPSPEED}, {"DEEPSPEED"}),
        (
            {"a.sh": "accelerate launch train.py --use_fsdp\naccelerate launch --multi_gpu train.py"},
            {"FSDP", "MULTI_GPU"},
        ),
    ],
)
def test_engines_of_a_project(files, engines, tmp_path):
    (tmp_path / "pyproject.toml").touch()
    for name, text in {"src/train.py": "", **files}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    files_read.forget()
    with files_read.looking() as looks:
        assert engines_of(tmp_path / "src" / "train.py") == engines
    marks = looks.marks()
    assert files_read.is_as_before(marks, {})
    (tmp_path / "more.yaml").write_text(FSDP)
    assert not files_read.is_as_before(marks, {})
