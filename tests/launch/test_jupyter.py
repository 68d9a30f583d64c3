"""notebook_launcher in a real Jupyter kernel."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")

pytestmark = pytest.mark.distributed

TRAIN = """\
def train(rate):
    import torch
    from torch.utils.data import DataLoader, TensorDataset
    from accelify.runtime import Accelerator
    accelerator = Accelerator(cpu=True, split_batches=True)
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    data = TensorDataset(torch.eye(2).repeat(4, 1), torch.ones(8, 1))
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data, batch_size=4))
    for x, y in loader:
        loss = torch.nn.functional.mse_loss(model(x), y)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    total = accelerator.reduce(loss.detach(), reduction="mean")
    if accelerator.is_main_process:
        open("seen.txt", "w").write(f"{accelerator.num_processes} {float(total):.6f}")
"""


def run(folder: Path, *cells: str) -> list[str]:
    """Run the cells in a kernel of their own; what each printed."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    root = str(Path(__file__).parents[2])
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("ACCELIFY_", "ACCELERATE_"))}
    client = nbclient.NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    client.execute(env={**clean, "PYTHONPATH": root})
    return ["".join(output.get("text", "") for output in cell.outputs) for cell in notebook.cells]


def test_a_function_of_a_cell_trains_in_two_processes(tmp_path: Path) -> None:
    told = run(
        tmp_path,
        TRAIN,
        "from accelify.runtime import notebook_launcher\nnotebook_launcher(train, (0.1,), num_processes=1)\n"
        "alone = open('seen.txt').read(); print(alone)",
        "import accelify.runtime as runtime\n"
        "runtime.AcceleratorState._reset_state(True); runtime.GradientState._reset_state()\n"
        "notebook_launcher(train, (0.1,), num_processes=2)\nprint(open('seen.txt').read())",
    )
    (one, loss), (two, same) = told[1].split(), told[2].split()
    assert (one, two) == ("1", "2")
    assert float(loss) == pytest.approx(float(same), abs=1e-6)


def test_an_accelerator_outside_of_the_function_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(nbclient.exceptions.CellExecutionError) as failure:
        run(
            tmp_path,
            TRAIN,
            "from accelify.runtime import Accelerator, notebook_launcher\naccelerator = Accelerator(cpu=True)",
            "notebook_launcher(train, (0.1,), num_processes=2)",
        )
    assert failure.value.ename == "RuntimeError"
    assert "make it inside the function only, and restart the notebook's kernel" in failure.value.evalue
    assert not (tmp_path / "seen.txt").exists()


def test_cuda_in_use_is_a_clear_error(tmp_path: Path) -> None:
    # There is no device here: torch says that one is in use, and that is all that is asked of it.
    with pytest.raises(nbclient.exceptions.CellExecutionError) as failure:
        run(
            tmp_path,
            TRAIN,
            "import torch\ntorch.cuda.is_initialized = lambda: True",
            "from accelify.runtime import notebook_launcher\nnotebook_launcher(train, (0.1,), num_processes=2)",
        )
    assert "touch no CUDA device before notebook_launcher" in failure.value.evalue


def test_a_failing_process_shows_its_traceback(tmp_path: Path) -> None:
    with pytest.raises(nbclient.exceptions.CellExecutionError) as failure:
        run(
            tmp_path,
            "def fail():\n    import os\n    raise ValueError(f\"on purpose {os.environ['RANK']}\")",
            "from accelify.runtime import notebook_launcher\nnotebook_launcher(fail, num_processes=2)",
        )
    assert "the function failed on rank" in failure.value.evalue
    assert "ValueError: on purpose" in failure.value.evalue
