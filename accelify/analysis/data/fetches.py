"""Calls that fetch data into a folder: data sets, word vectors, repositories, the content of archives."""

from __future__ import annotations

import ast
import re

from accelify.analysis.devices.argument_returning import is_super
from accelify.analysis.files.renderings import fetches_repository
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import call_argument, call_keyword, is_constant
from accelify.analysis.values import Class

_FETCHING = frozenset(
    """nltk.download gdown.download gdown.download_folder git.Repo.clone_from
    urllib.request.urlretrieve wget.download tarfile.TarFile.extractall shutil.unpack_archive
    torch.hub.download_url_to_file torchvision.datasets.utils.download_url kagglehub.dataset_download
    torchvision.datasets.utils.download_and_extract_archive datasets.load_dataset gensim.downloader.load
    torchtext.vocab.GloVe torchtext.vocab.FastText torchtext.vocab.CharNGram""".split()
)
# What fetches a data set only where the argument at this place and with this name is absent.
_FETCHING_UNLESS_GIVEN = {"d4rl.qlearning_dataset": (1, "dataset")}
# Data sets whose fifth argument is `download`.
_TAKES_DOWNLOAD = re.compile(r"torchvision\.datasets\.(\w+\.)*(\w*MNIST|CIFAR10|CIFAR100)(\.__init__)?$")
# Data sets that are fetched, and made ready in a folder, by who makes them.
_FETCHES_ITSELF = re.compile(
    r"(torch_geometric\.datasets\.(\w+\.)*[A-Z]\w*|ogb\.\w+\.\w*Dataset\w*|dgl\.data\.(\w+\.)*[A-Z]\w*Dataset|"
    r"torchtext\.(\w+\.)?datasets\.(\w+\.)*[A-Z]\w*(\.splits|\.iters)?|sklearn\.datasets\.fetch_\w+|"
    r"seaborn\.load_dataset)$"
)
# Their base classes: what a class makes ready in its `process`, its constructor writes where it is not there yet.
_READY_BASES = re.compile(r"torch_geometric\.data\.(\w+\.)*(InMemoryDataset|Dataset)$")
_VECTORS = ("glove", "fasttext", "charngram")


def is_download(call: ast.Call, name: str | None) -> bool:
    """Whether a call fetches data into a folder, by an argument or by what it is."""
    if (
        _unpacks(call.func)
        or name in _FETCHING
        or fetches_repository(call, name)
        or (name and _FETCHES_ITSELF.match(name))
    ):
        return True
    if name in _FETCHING_UNLESS_GIVEN:
        given = call_argument(call, *_FETCHING_UNLESS_GIVEN[name])
        return given is None or is_constant(given, None)
    if isinstance(call.func, ast.Attribute) and call.func.attr == "build_vocab":
        vectors = call_keyword(call, "vectors")
        return isinstance(vectors, ast.Constant) and str(vectors.value).startswith(_VECTORS)
    if isinstance(call.func, ast.Attribute) and call.func.attr == "load_vectors":
        vectors = call_argument(call, 0, "vectors")
        return not isinstance(vectors, ast.Constant) or str(vectors.value).startswith(_VECTORS)
    return asked_to_download(call, name) is not None


def makes_ready(script: ScriptModel, call: ast.Call) -> bool:
    """Whether a call makes a data set of a class of the program whose base has it write what it processes."""
    return any(
        isinstance(made, Class)
        and made.method("process") is not None
        and any(map(_READY_BASES.match, made.external_bases()))
        for made in script.values(call.func)
    )


def _unpacks(func: ast.expr) -> bool:
    """`archive.extractall(folder)`; `column.str.extractall(pattern)` looks through a table."""
    if not isinstance(func, ast.Attribute) or func.attr != "extractall":
        return False
    return not (isinstance(func.value, ast.Attribute) and func.value.attr == "str")


def asked_to_download(call: ast.Call, name: str | None) -> ast.expr | None:
    """The argument of a library's data set, or its base class, that asks for a download; None where there is none."""
    func = call.func
    base = isinstance(func, ast.Attribute) and func.attr == "__init__" and is_super(func.value)
    if not name and not base:
        return None
    given = call_keyword(call, "download")
    if given is None and name and _TAKES_DOWNLOAD.match(name):
        given = call_argument(call, 4, "download")
    return None if given is None or is_constant(given, False) else given
