"""`accelify docs`: opens the pages that were built, or says how to build them."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from accelify.installing import clone, install_command
from tests.cli.conftest import Run


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "index.html").write_text("<h1>accelify</h1>")
    monkeypatch.setattr("accelify.cli.docs.SITE", tmp_path)
    return tmp_path


def test_without_the_pages_and_mkdocs_it_says_what_to_install_and_where_the_text_is(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("accelify.cli.docs.SITE", tmp_path)
    monkeypatch.setattr("accelify.cli.docs._NEEDED", ("no_such_module",))
    outcome = run("docs", "--no-browser")
    assert outcome.code == 2
    assert install_command("docs") in outcome.err
    assert f"{clone()}/docs/README.md" in outcome.err


@pytest.mark.parametrize(("program", "code"), [("open(page, 'w').write('x')", 0), ("sys.exit('no room')", 2)])
def test_in_a_clone_the_pages_are_built_at_the_first_call(
    program: str, code: int, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, tools = tmp_path / "site", tmp_path / "tools"
    site.mkdir()
    tools.mkdir()
    (tools / "mkdocs.py").write_text(f"import sys\npage = sys.argv[-1] + '/index.html'\n{program}\n")
    monkeypatch.setattr("accelify.cli.docs.SITE", site)
    monkeypatch.setattr("accelify.cli.docs._NEEDED", ())
    monkeypatch.setenv("PYTHONPATH", str(tools))
    outcome = run("docs", "--no-browser")
    assert outcome.code == code
    assert outcome.out == ("" if code else f"{(site / 'index.html').as_uri()}\n")
    assert ("no room" in outcome.err) == bool(code)


def test_it_opens_a_file_and_prints_its_address(
    run: Run, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    assert run("docs").out == f"{(site / 'index.html').as_uri()}\n"
    assert opened == [(site / "index.html").as_uri()]
    assert run("docs", "--no-browser").code == 0
    assert len(opened) == 1


def test_it_serves_the_pages_at_a_port(site: Path) -> None:
    program = (
        "import pathlib, accelify.cli.docs as docs; from accelify.cli.main import main\n"
        f"docs.SITE = pathlib.Path({str(site)!r})\n"
        "main(['docs', '--port', '0', '--no-browser'])"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = server.stdout.readline().split()[0]
        try:
            with urllib.request.urlopen(address, timeout=60) as page:
                assert page.read() == b"<h1>accelify</h1>"
        finally:
            server.terminate()


def test_a_port_in_use_is_said(run: Run, site: Path) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        outcome = run("docs", "--no-browser", "--port", str(taken.getsockname()[1]))
    assert outcome.code == 2
    assert "cannot be used" in outcome.err
