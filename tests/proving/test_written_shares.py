"""Files with what each process has of the items that the processes share out among them."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import findings, named

SHARES = """
import json
from accelerate import PartialState
state = PartialState()
with state.split_between_processes(list("abcdef")) as part:
    for number, item in enumerate(part):
        with open({name}, "w") as file:
            json.dump({{"item": item}}, file)
"""


@pytest.mark.parametrize("name", ['f"out/{state.process_index}_{number}.json"', 'f"out/{item}.json"'])
def test_each_process_under_names_of_its_own_items(name, tmp_path):
    assert named(SHARES.format(name=name), tmp_path, "accelerate") == []


def test_all_processes_under_the_same_names(tmp_path):
    found = findings(SHARES.format(name='f"out/{number}.json"'), tmp_path, "accelerate")
    assert [one.code for one in found] == ["ACC702"]
    assert "put the rank into its name" in found[0].message


PREDICTED = """
import nibabel
import pictures

class Scans(torch.utils.data.Dataset):
    def __getitem__(self, i):
        return {{"image": torch.ones(4), "name": f"scan{{i}}.nii"}}

    def __len__(self):
        return 64


accelerator = Accelerator()
model, loader = accelerator.prepare(torch.nn.Linear(4, 4), DataLoader(Scans(), batch_size=4))
with torch.no_grad():
    for batch in loader:
        for name, image in zip(batch["name"], model(batch["image"]).cpu().numpy()):
            {save}
"""
SAVED = [
    'nibabel.save(nibabel.Nifti1Image(image, None), os.path.join("out", {name}))',
    'pictures.save(image, os.path.join("out", {name}))',
    'pictures.write(f"out/{{{name}}}", image)',
]


@pytest.mark.parametrize("save", SAVED)
def test_each_process_under_the_names_of_its_samples(save, tmp_path):
    """With a library of which accelify knows the functions, and with one that nobody knows."""
    text = "import os\n" + PREDICTED
    assert named(text.format(save=save.format(name="name")), tmp_path, "accelerate") == []
    alike = named(text.format(save=save.format(name="str(4)")), tmp_path, "accelerate")
    assert [code for code, _ in alike] == ["ACC702"]
