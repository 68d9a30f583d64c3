"""`convert` as a command of libcst's: `libcst.tool codemod -x accelify.codemod.ConvertCommand`.

One file at a time, as libcst runs its commands. A script that has to be converted together with modules of its project
is left alone here, and a warning names it; `accelify convert` does them all.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import libcst as cst
from libcst.codemod import CodemodCommand, CodemodContext

from accelify.conversion import CONVERTED, UNCHANGED, Conversion, ConvertOptions
from accelify.convert import convert_project
from accelify.findings import Finding
from accelify.proving import prove
from accelify.rule_codes import published
from accelify.source import Source, SourceError


class ConvertCommand(CodemodCommand):
    """Rewrite one training script so that it runs on any number of devices.

    Args:
        context: libcst's; the file's name in it says where modules of the project are found.
        batch_size: `per-process` or `total`.
        runtime: `accelify` or `accelerate`.
        replace_ddp: also convert scripts that use DistributedDataParallel by hand.
    """

    DESCRIPTION = "Make a PyTorch training script written for one device run on any number of them."

    def __init__(
        self,
        context: CodemodContext,
        batch_size: str = "per-process",
        runtime: str = "accelify",
        replace_ddp: bool = False,
    ) -> None:
        super().__init__(context)
        self.options = ConvertOptions(batch_size, runtime, replace_ddp)

    @staticmethod
    def add_args(arg_parser: argparse.ArgumentParser) -> None:
        """Add the options of `accelify convert` that choose what is written."""
        arg_parser.add_argument(
            "--batch-size",
            choices=["per-process", "total"],
            default="per-process",
            help="Each process takes the script's batch size, or all of them share it.",
        )
        arg_parser.add_argument(
            "--runtime",
            choices=["accelify", "accelerate"],
            default="accelify",
            help="Write for accelify's runtime or for Hugging Face Accelerate.",
        )
        arg_parser.add_argument(
            "--replace-ddp",
            action="store_true",
            help="Also convert scripts that use DistributedDataParallel by hand.",
        )

    def transform_module_impl(self, tree: cst.Module) -> cst.Module:
        """The converted script; the same tree where it is left alone. Findings become libcst's warnings."""
        name = self.context.filename
        source = Source(Path(name) if name else None, tree.code, tree.encoding)
        try:
            conversions = convert_project(source, self.options)
            if conversions[0].status == CONVERTED:
                prove(conversions, conversions[0])
        except SourceError as error:
            self.warn(str(error))
            return tree
        script, *others = conversions
        for finding in map(published, script.remaining):
            self.warn(_sentence(finding))
        changed = [str(other.source.path) for other in others if other.changed]
        if script.status == CONVERTED and changed:
            self.warn(
                f"left alone: it has to be converted together with {', '.join(changed)}, for which "
                "`accelify convert` is there"
            )
            return tree
        if script.status != CONVERTED or not script.changed:
            self._say_why(script)
            return tree
        return cst.parse_module(script.new_text, tree.config_for_parsing)

    def _say_why(self, script: Conversion) -> None:
        if script.status != UNCHANGED:
            self.warn(f"left alone: {script.reason}")


def _sentence(finding: Finding) -> str:
    return f"{finding.place}: {finding.code} {finding.message}"
