"""Modules that stay as they are but for a copy to the host, where a converted script hands them what is on the device.

`batch[0].numpy()` of a helper becomes `batch[0].cpu().numpy()`, which is right for who calls it from elsewhere, too.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path

from accelify import edits as verbs
from accelify.analysis.program import Module
from accelify.edits import Edit
from accelify.findings import Finding
from accelify.source import Source
from accelify.transforms.base import Context
from accelify.transforms.host import HOST_COPY


def mended_helpers(context: Context, source: Source) -> Iterator[tuple[Source, str, list[Finding]]]:
    """Such modules with their new text and what was mended in them.

    Args:
        context: what the transforms have found in the script.
        source: the script, after which the files are named.
    """
    read: dict[Module, dict[ast.expr, None]] = {}
    for one in context.mended_elsewhere:
        read.setdefault(one.module, {})[one.tensor] = None
    for module, tensors in read.items():
        assert module.path is not None
        assert source.path is not None
        folder = Path(source.path).resolve().parent
        shown = Path(os.path.normpath(Path(source.path).parent / os.path.relpath(module.path, folder)))
        helper, tree = Source.read(shown), module.tree
        edits: list[Edit] = []
        findings = []
        for tensor in tensors:
            asked = tree.parent(tensor)
            assert asked is not None
            dot = tree.data.rindex(b".", tree.end(tensor), tree.end(asked))
            edits.append(verbs.insert(tree, dot, ".cpu()"))
            findings.append(
                Finding(
                    str(shown), tensor.lineno, tensor.col_offset + 1, HOST_COPY.code, HOST_COPY.name,
                    "NumPy cannot read a tensor that lies on the device",
                    tensor.end_lineno or tensor.lineno, (tensor.end_col_offset or 0) + 1,
                    HOST_COPY.severity, HOST_COPY.safety, HOST_COPY.effort, (), fixable=True,
                )
            )  # fmt: skip
        yield helper, verbs.apply(tree, edits).decode("utf-8"), sorted(findings)
