"""Downloads: one process fetches, the others wait and find the files there.

dataset = MNIST(root, download=True)    ->  with accelerator.main_process_first():
                                                dataset = MNIST(root, download=True)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis.syntax import call_keyword, is_constant
from accelify.edits import Indent
from accelify.transforms.base import Change, Context, Rule

DOWNLOAD = Rule(
    "ACC205", "download", "Every process would download the same files into the same place.", effort=3
)
_FETCHING = frozenset(
    {
        "nltk.download", "gdown.download", "urllib.request.urlretrieve", "wget.download", "tarfile.TarFile.extractall",
        "torch.hub.download_url_to_file", "torchvision.datasets.utils.download_url", "kagglehub.dataset_download",
        "torchvision.datasets.utils.download_and_extract_archive", "datasets.load_dataset",
    }
)  # fmt: skip


_OPENING = frozenset(
    {"requests.get", "urllib.request.urlopen", "tarfile.open", "zipfile.ZipFile", "tarfile.TarFile.open"}
)


def transform(context: Context) -> Iterator[Change]:
    """Yield main_process_first around statements that download, neighbours under one."""
    tree = context.tree
    wanted: dict[ast.stmt, ast.Call] = {}
    for call in context.script.calls():
        if not (
            is_constant(call_keyword(call, "download"), True)
            or context.script.qualname(call.func) in _FETCHING
        ):
            continue
        stmt = tree.statement(call)
        if isinstance(stmt, (ast.Assign, ast.Expr, ast.AnnAssign, ast.Return)) and not context.is_claimed(
            stmt
        ):
            if call_keyword(call, "download") is not None or isinstance(stmt, (ast.Assign, ast.Expr)):
                wanted.setdefault(stmt, call)
    for block_statement in tree.nodes(ast.With):
        call = block_statement.items[0].context_expr
        if isinstance(call, ast.Call) and context.script.qualname(call.func) in _OPENING:
            wanted.setdefault(block_statement, call)
    done: set[ast.stmt] = set()
    for stmt, call in sorted(wanted.items(), key=lambda pair: tree.start(pair[0])):
        if stmt in done:
            continue
        accelerator = context.accelerator(stmt)
        if accelerator is None:
            yield context.change(
                DOWNLOAD, call, "every process would download this; fetch it before launching"
            )
            continue
        block = tree.block_of(stmt)[2]
        last = stmt
        done.add(stmt)
        for following in block[block.index(stmt) + 1 :]:
            if following not in wanted:
                break
            done.add(following)
            last = following
        yield context.change(
            DOWNLOAD, call, "every process would download this at the same time",
            [Indent(stmt, last, f"with {accelerator}.main_process_first():")],
        )  # fmt: skip
