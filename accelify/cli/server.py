"""`accelify server`: a language server for editors, on standard input and output."""

from __future__ import annotations

import logging

from accelify.cli.terminal import fail
from accelify.installing import install_command


def server() -> None:
    """Start the language server for an editor, on standard input and output.

    While you type it shows what `accelify check` finds, explains the rules, and offers fixes.
    """
    try:
        from accelify.server.language_server import make_server
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("pygls", "lsprotocol"):
            raise
        fail(f"the language server needs pygls: {install_command('server')}.")
    logging.getLogger("pygls").setLevel(logging.ERROR)
    make_server().start_io()
