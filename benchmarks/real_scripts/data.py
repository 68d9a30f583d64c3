"""Small made-up data files, the same ones in every run. A row of `runs.tsv` orders them: `MAKER PATH ARGUMENTS`."""

from __future__ import annotations

import io
import json
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image


def make(folder: Path, maker: str, path: str, *arguments: str) -> None:
    """Make one file, or one folder of files, below `folder`."""
    place = folder / path
    place.parent.mkdir(parents=True, exist_ok=True)
    MAKERS[maker](place, np.random.default_rng(zlib.crc32(path.encode())), *arguments)


def images(place: Path, rng: np.random.Generator, count: str, size: str, ending: str = "jpg") -> None:
    """A folder of images of one size."""
    place.mkdir(parents=True, exist_ok=True)
    for number in range(int(count)):
        blocks = rng.integers(0, 256, (int(size) // 4, int(size) // 4, 3)).repeat(4, 0).repeat(4, 1)
        Image.fromarray(blocks.astype(np.uint8)).save(place / f"{number:04}.{ending}")


def text(place: Path, rng: np.random.Generator, lines: str, words: str = "40", length: str = "12") -> None:
    """Lines of words from a small vocabulary."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    known = ["".join(letters[n] for n in rng.integers(0, 26, rng.integers(2, 8))) for _ in range(int(words))]
    with place.open("w") as file:
        for _ in range(int(lines)):
            chosen = rng.integers(0, len(known), rng.integers(3, int(length) + 1))
            file.write(" ".join(known[n] for n in chosen) + "\n")


def table(place: Path, rng: np.random.Generator, rows: str, columns: str, labels: str = "2") -> None:
    """Numbers with a label at the end of each row, between commas."""
    numbers = rng.normal(size=(int(rows), int(columns))).round(4)
    with place.open("w") as file:
        for row in numbers:
            file.write(",".join(map(str, row)) + f",{rng.integers(int(labels))}\n")


def array(place: Path, rng: np.random.Generator, shape: str, highest: str = "", kind: str = "int64") -> None:
    """An array in a file of NumPy's or of torch's: normal numbers, or whole ones below `highest`."""
    sizes = tuple(map(int, shape.split("x")))
    numbers = rng.integers(0, int(highest), sizes, kind) if highest else rng.normal(size=sizes)
    if place.suffix == ".npy":
        np.save(place, numbers)
    elif place.suffix == ".bin":
        numbers.astype(np.uint16).tofile(place)
    else:
        import torch

        torch.save(numbers, place)


def graph(place: Path, rng: np.random.Generator, nodes: str, features: str, classes: str) -> None:
    """An archive with the two files of the Cora graph: papers with their words, and who cites whom."""
    number = int(nodes)
    words = rng.integers(0, 2, (number, int(features)))
    papers = "".join(
        f"{k}\t" + "\t".join(map(str, row)) + f"\tc{k % int(classes)}\n" for k, row in enumerate(words)
    )
    cites = "".join(f"{a}\t{b}\n" for a, b in rng.integers(0, number, (3 * number, 2)))
    with tarfile.open(place, "w:gz") as archive:
        for name, content in (("cora/cora.content", papers), ("cora/cora.cites", cites)):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content.encode()))


def captions(place: Path, rng: np.random.Generator, name: str, count: str, size: str) -> None:
    """Images in colours with five captions each, as `create_input_files.py` of an image captioner writes them."""
    place.mkdir(exist_ok=True)
    words = ["<pad>", *(f"w{k}" for k in range(30)), "<unk>", "<start>", "<end>"]
    (place / f"WORDMAP_{name}.json").write_text(json.dumps({word: k for k, word in enumerate(words)}))
    for part in ("TRAIN", "VAL", "TEST"):
        pictures = rng.integers(0, 256, (int(count), 3, int(size), int(size)), np.uint8)
        with (place / f"{part}_IMAGES_{name}.hdf5").open("wb") as file:
            np.savez(file, images=pictures, attrs_captions_per_image=5)
        lengths = rng.integers(4, 9, 5 * int(count)).tolist()
        texts = [[32, *rng.integers(1, 31, n - 2).tolist(), 33] + [0] * (10 - n) for n in lengths]
        (place / f"{part}_CAPTIONS_{name}.json").write_text(json.dumps(texts))
        (place / f"{part}_CAPLENS_{name}.json").write_text(json.dumps(lengths))


def shapes(place: Path, rng: np.random.Generator, each: str, points: str) -> None:
    """Point clouds with normals in the folders of ModelNet's ten kinds."""
    names = [f"kind{k}" for k in range(10)]
    place.mkdir(parents=True, exist_ok=True)
    (place / "modelnet10_shape_names.txt").write_text("\n".join(names))
    for part, offset in (("train", 1), ("test", 1 + int(each))):
        made = [f"{name}_{offset + k:04}" for name in names for k in range(int(each))]
        (place / f"modelnet10_{part}.txt").write_text("\n".join(made))
        for shape in made:
            folder = place / shape.rpartition("_")[0]
            folder.mkdir(exist_ok=True)
            np.savetxt(folder / f"{shape}.txt", rng.normal(size=(int(points), 6)), "%.4f", ",")


def settings(place: Path, _: np.random.Generator, content: str) -> None:
    """JSON as the order has it."""
    place.write_text(json.dumps(json.loads(content)))


MAKERS: dict[str, Callable[..., None]] = {
    function.__name__: function
    for function in (images, text, table, array, graph, captions, shapes, settings)
}
