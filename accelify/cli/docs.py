"""`accelify docs`: the documentation, which comes with the package and needs no network."""

from __future__ import annotations

import functools
import http.server
import importlib.util
import os
import subprocess
import sys
import webbrowser
from pathlib import Path
from typing import Annotated, Any

import typer

from accelify.cli.terminal import fail, waiting
from accelify.installing import clone, install_command

SITE = Path(__file__).parents[1] / "site"
# The modules that mkdocs.yml asks for.
_NEEDED = ("mkdocs", "material", "mkdocstrings")


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

    The pages load nothing from the network. A wheel brings them; in an installation from a clone they are built at
    the first call, for which mkdocs has to be installed.
    """
    if not (SITE / "index.html").is_file():
        _build(clone())
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
    with server:
        address = f"http://127.0.0.1:{server.server_address[1]}/"
        print(f"{address} (Ctrl-C ends it)", flush=True)
        if not no_browser:
            webbrowser.open(address)
        server.serve_forever()


def _build(source: Path | None) -> None:
    """Build the pages from the folder that accelify was installed from, or end the command with how to get them."""
    if source is None or not (source / "mkdocs.yml").is_file():
        fail(
            "the pages are not in this copy of accelify, nor the folder that it was installed from: `accelify docs` "
            f"builds them where that is a clone (with {install_command('docs')})."
        )
    same = f"The same text is in {source / 'docs' / 'README.md'}."
    if not all(map(importlib.util.find_spec, _NEEDED)):
        fail(
            f"the pages are not built yet, and mkdocs is not here to do so: {install_command('docs')}. {same}"
        )
    with waiting("building the pages, which is done once and can take minutes"):
        done = subprocess.run(
            [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(SITE)],
            cwd=source,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        )
    if done.returncode or not (SITE / "index.html").is_file():
        last = (done.stderr.strip() or done.stdout.strip() or "it wrote no pages").splitlines()[-1]
        fail(f"the pages could not be built into {SITE}: {last}. {same}")


class _Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files and prints nothing about it."""

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""
