"""`accelify server`: a language server for editors, on standard input and output."""

from __future__ import annotations

import logging

from accelify.cli.terminal import fail
from accelify.installing import install_command


def server() -> None:
    """Serve an editor by the Language Server Protocol, on standard input and output.

    Shows what `accelify check` finds as one types, explains the rules, and offers ways out.
    """
    try:
        from accelify.server.language_server import make_server
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("pygls", "lsprotocol"):
            raise
        fail(f"the language server needs pygls: {install_command('server')}.")
    logging.getLogger("pygls").setLevel(logging.ERROR)
    make_server().start_io()
