"""`accelify docs`: the documentation, which comes with the package and needs no network."""

from __future__ import annotations

import contextlib
import functools
import http.server
import webbrowser
from pathlib import Path
from typing import Annotated, Any

import typer

from accelify.cli.terminal import fail

SITE = Path(__file__).parents[1] / "site"


def docs(
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            min=0,
            max=65535,
            help="Serve the pages at this port of this machine, until Ctrl-C; 0 for any free one.",
        ),
    ] = None,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Open no browser; only print where the pages are.")
    ] = False,
) -> None:
    """Open the documentation in a browser: quick start, guides, rules, reference.

    The pages come with the package and load nothing from the network.
    """
    if not (SITE / "index.html").is_file():
        fail(
            "the pages are not built in this copy of accelify: in a clone, run `pip install '.[docs]'`, "
            "`mkdocs build --strict`, and `pip install .` again. The folder docs/ has the same text."
        )
    if port is None:
        address = (SITE / "index.html").as_uri()
        print(address)
        if not no_browser:
            webbrowser.open(address)
        return
    pages = functools.partial(_Quiet, directory=str(SITE))
    try:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", port), pages)
    except OSError as error:
        fail(f"port {port} cannot be used: {error.strerror}. Give another, or --port 0 for any free one.")
    with server, contextlib.suppress(KeyboardInterrupt):
        address = f"http://127.0.0.1:{server.server_address[1]}/"
        print(f"{address} (Ctrl-C ends it)", flush=True)
        if not no_browser:
            webbrowser.open(address)
        server.serve_forever()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files and prints nothing about it."""

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""
