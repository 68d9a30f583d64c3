"""A script on disk: its bytes, encoding and line ends, found in folders and written back whole or not at all."""

from __future__ import annotations

import ast
import codecs
import contextlib
import os
import re
import stat
import tokenize
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from accelify import files_read
from accelify.obsolete_keywords import parse_old

if TYPE_CHECKING:
    from accelify.conversion import Conversion
    from accelify.findings import Finding

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_LINE_BYTES = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_NEWLINE = re.compile(r"\r\n|\r|\n")
_WIDE_MARKS = (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
# What a file that is started has and a module does not: a block for it, a call at its top, or what a command calls.
_STARTED = re.compile(
    rb"__main__|^(?:[A-Za-z_][\w.]*\(|(?:for|while|with) |(?:async )?def main\()", re.MULTILINE
)
_INSTALLED = {"site-packages", "dist-packages"}
_SKIPPED_FOLDERS = {*_INSTALLED, "__pycache__", "node_modules", "__pypackages__"}

# What the parser of Python 3 says of Python 2, and the forms it has only a general complaint for.
_PYTHON_2_MESSAGE = re.compile(
    r"Missing parentheses in call to '(?:print|exec)'|multiple exception types must be parenthesized"
    r"|leading zeros in decimal integer literals|inconsistent use of tabs"
)
_PYTHON_2_LINE = re.compile(
    r"^\s*(?:print\s*(?:[\"'\w%]|>>)|exec\s+[\"'\w]|raise\s+[\w.]+\s*,|except\b[^:(]*,\s*\w+\s*:)"
    r"|<>|\bur[\"']|\b\d+[lL]\b|`[^`]+`|\blambda\s*\("
)
_ASYNC_NAME = re.compile(r"\basync\s*=|[(,]\s*async\s*[,)]|\.async\b")


class SourceError(Exception):
    """Input that cannot be worked on; its text is one sentence that names the file and the remedy.

    `path` is the file it is about and `line` counts from 1, where there is one.
    """

    def __init__(self, sentence: str, path: Path | None = None, line: int | None = None) -> None:
        super().__init__(sentence)
        self.path = path
        self.line = line


class ConfigurationError(SourceError):
    """Settings that make no sense: of a file, or of the command line."""


@dataclass(frozen=True)
class Source:
    """One script, decoded without changing a character of it.

    `text` keeps its line ends as they are (`\\r\\n` and lone `\\r` too) and has no byte-order mark; `bom` says that
    the file starts with one. `encoding` is the file's by PEP 263. `newline` is the line end that most lines have.
    `path` is None for text that did not come from a file. The bytes come back from `encode()` exactly.
    """

    path: Path | None
    text: str
    encoding: str = "utf-8"
    bom: bool = False

    @classmethod
    def read(cls, path: Path | str) -> Source:
        """Read the script at `path`.

        Raises SourceError where there is no such file, it cannot be read, or its bytes are not text in its encoding.
        """
        path = Path(path)
        return cls.from_bytes(read_bytes(path), path)

    @classmethod
    def from_bytes(cls, data: bytes, path: Path | None = None) -> Source:
        """Decode `data` as Python itself would. Raises SourceError where Python would not accept the bytes."""
        if (path is None and data[:4].lstrip(b"\xef\xbb\xbf \r\n\t").startswith(b"{")) or (
            path is not None and path.suffix == ".ipynb"
        ):
            from accelify.notebook import NotebookSource, is_notebook

            if is_notebook(data, path):
                return NotebookSource.from_notebook(data, path)
        name = _label(path)
        if data.startswith(_WIDE_MARKS):
            raise SourceError(
                f"{name} is UTF-16 or UTF-32, which Python does not run: save it as UTF-8.", path
            )
        if (nul := data.find(b"\0")) >= 0:
            line = _line_at(data, nul)
            raise SourceError(
                f"{name}, line {line}: a null byte, so this is not a Python script.", path, line
            )
        bom = data.startswith(codecs.BOM_UTF8)
        body = data[len(codecs.BOM_UTF8) :] if bom else data
        encoding = _declared_encoding(body, bom, path)
        try:
            text = body.decode(encoding)
        except UnicodeDecodeError as error:
            line = _line_at(body, error.start)
            remedy = "save it as UTF-8, or declare its encoding in the first line, as in `# -*- coding: latin-1 -*-`"
            if encoding != "utf-8":
                remedy = "fix the bytes or the declaration in its first lines"
            raise SourceError(f"{name}, line {line}: not valid {encoding}: {remedy}.", path, line) from None
        # Some encodings write one character in several ways, and untouched lines must come back as they were.
        if encoding != "utf-8" and text.encode(encoding) != body:
            raise SourceError(
                f"{name} does not come back byte for byte from {encoding}: save it as UTF-8.", path
            )
        return cls(path, text, encoding, bom)

    @classmethod
    def from_text(cls, text: str, path: Path | str | None = None) -> Source:
        """Take `text` as it is, as UTF-8; a leading byte-order mark is stored separately as for a file."""
        bom = text.startswith("\ufeff")
        return cls(Path(path) if path is not None else None, text[1:] if bom else text, "utf-8", bom)

    @cached_property
    def lines(self) -> list[str]:
        """The lines as Python counts them, each with its line end (form feeds and the like do not end a line)."""
        return split_lines(self.text)

    @cached_property
    def newline(self) -> str:
        """The line end that most lines have; `\\n` where there is none."""
        counts: dict[str, int] = {}
        for end in _NEWLINE.findall(self.text):
            counts[end] = counts.get(end, 0) + 1
        return max(counts, key=lambda end: counts[end]) if counts else "\n"

    @cached_property
    def tree(self) -> ast.Module:
        """The script's syntax tree, parsed once.

        Raises SourceError, with the line, for what this Python does not parse: Python 2, obsolete keywords, or
        something that is not Python.
        """
        return parse(self.text, self.path)

    def encode(self, text: str | None = None) -> bytes:
        """`text` (default: the script's) as this file's bytes: same encoding, same byte-order mark.

        Raises SourceError where the encoding cannot hold a character of it.
        """
        text = self.text if text is None else text
        try:
            data = text.encode(self.encoding)
        except UnicodeEncodeError as error:
            line = text.count("\n", 0, error.start) + 1
            sentence = (
                f"{_label(self.path)}, line {line}: {text[error.start]!r} does not exist in {self.encoding}: "
            )
            raise SourceError(sentence + "save the script as UTF-8.", self.path, line) from None
        return codecs.BOM_UTF8 + data if self.bom else data

    def parts(self, text: str) -> list[tuple[str, str, str]]:
        """Name, old and new text of what differs in `text`: the script, or the cells of a notebook."""
        name = self.path.as_posix() if self.path is not None else "stdin"
        return [(name, self.text, text)] if text != self.text else []

    def place(self, finding: Finding) -> Finding:
        """A finding at the place that a reader of the file knows; the same one except in a notebook."""
        return finding

    def finished(self, conversion: Conversion, runtime: str) -> Conversion:
        """What became of this file, with what its kind of file adds; the same except for a notebook."""
        return conversion


def read_bytes(path: Path) -> bytes:
    """The bytes of the file at `path`. Raises SourceError where it cannot be read."""
    try:
        return files_read.read(path) or b""
    except FileNotFoundError:
        raise SourceError(f"{path} does not exist: check the path.", path) from None
    except IsADirectoryError:
        raise SourceError(f"{path} is a folder, not a script: name a file in it.", path) from None
    except PermissionError:
        raise SourceError(
            f"{path} cannot be read: give yourself the permission (`chmod u+r {path}`).", path
        ) from None
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror or error}.", path) from None


def split_lines(text: str) -> list[str]:
    """Split `text` into lines as Python counts them, with their line ends; `"".join` gives `text` back."""
    return _LINE.findall(text)


def parse(text: str, path: Path | None = None) -> ast.Module:
    """Parse `text` quietly (no warnings about escapes), with torch's old `async=` understood.

    Raises SourceError, with the line, where it does not parse.
    """
    name = _label(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return parse_old(text)
    except SyntaxError as error:
        raise _syntax_complaint(error, text, path) from None
    except (RecursionError, MemoryError):
        raise SourceError(f"{name} is nested too deeply for Python's own parser.", path) from None
    except ValueError as error:
        raise SourceError(f"{name} is not a Python script: {error}.", path) from None


def _syntax_complaint(error: SyntaxError, text: str, path: Path | None) -> SourceError:
    line = error.lineno or 1
    lines = split_lines(text)
    shown = lines[line - 1] if line <= len(lines) else ""
    where = f"{_label(path)}, line {line}"
    if _ASYNC_NAME.search(shown):
        more = sum(bool(_ASYNC_NAME.search(one.partition("#")[0])) for one in lines) - 1
        there = f", here and in {more} more line{'s' if more > 1 else ''}" if more > 0 else ""
        sentence = f"{where}: `async` is a keyword since Python 3.7: give it another name{there}."
    elif isinstance(error, TabError) and not _is_indented(text):
        sentence = f"{where}: its indentation mixes tabs and spaces: indent it by spaces alone, in line with the rest."
    elif _PYTHON_2_MESSAGE.search(error.msg) or _PYTHON_2_LINE.search(shown):
        sentence = f"{where}: this is Python 2: port it to Python 3 first."
    else:
        code = f": `{shown.strip()[:80]}`" if shown.strip() else ""
        sentence = f"{where}: not valid Python ({error.msg}){code}: accelify needs a script that this Python can run."
    return SourceError(sentence, path, line)


def _is_indented(text: str) -> bool:
    """Whether blocks of a script are right where a tab goes to the next eighth column, as for Python 2."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            parse_old(text.expandtabs(8))
    except IndentationError:
        return False
    except (SyntaxError, ValueError):
        return True
    return True


def _declared_encoding(body: bytes, bom: bool, path: Path | None) -> str:
    head = [match.group() for match in islice(_LINE_BYTES.finditer(body), 2)]
    # tokenize knows only "\n", Python itself every line end.
    ended = iter([line.rstrip(b"\r\n") + b"\n" for line in head])
    if not any(b"coding" in line for line in head):
        return "utf-8"
    try:
        encoding, _ = tokenize.detect_encoding(lambda: next(ended, b""))
        "".encode(encoding)
        b"".decode(encoding)
    except UnicodeDecodeError:
        return "utf-8"
    except (SyntaxError, LookupError) as error:
        # detect_encoding also complains of first lines that are not UTF-8; the decoding below names the line.
        if "invalid or missing encoding" in str(error):
            return "utf-8"
        raise SourceError(
            f"{_label(path)} declares an encoding that Python does not know ({error}).", path
        ) from None
    if bom and encoding != "utf-8":
        raise SourceError(
            f"{_label(path)} has a UTF-8 byte-order mark but declares {encoding}: remove one of the two.",
            path,
        )
    return encoding


def _label(path: Path | None) -> str:
    return str(path) if path is not None else "<stdin>"


def _line_at(data: bytes, offset: int) -> int:
    return len(re.findall(rb"\r\n|\r|\n", data[:offset])) + 1


def looks_like_training(data: bytes) -> bool:
    """Whether a file's bytes can hold a training loop at all; quick, so that a folder's other files are not parsed."""
    if b"torch" not in data:
        return False
    # The second kind is an entry point whose training loop may be in another module.
    return b".backward(" in data or (b"optim" in data and b"__main__" in data)


def is_installed(path: Path) -> bool:
    """Whether a file or folder is one of an installed package."""
    return not _INSTALLED.isdisjoint(path.resolve().parts)


def may_be_started(data: bytes) -> bool:
    """Whether a file does something by itself, as a script does and a module does not."""
    return _STARTED.search(data) is not None


@dataclass(frozen=True)
class Found:
    """What `find_scripts` saw: the `scripts` that can hold a training loop, how many Python files it looked at,
    those that do something when they are started, and what could not be read, files and folders, with the reason."""

    scripts: list[Path]
    looked_at: int
    started: list[Path] = field(default_factory=list)
    unread: list[tuple[Path, str]] = field(default_factory=list)


def find_scripts(folder: Path) -> Found:
    """Search `folder` and below for scripts with a training loop.

    Hidden folders, virtual environments, installed packages and links that lead out of `folder` are passed over.
    """
    scripts: list[Path] = []
    started: list[Path] = []
    number = 0
    # Nobody starts a file of what is installed.
    installed = is_installed(folder)
    unread: list[tuple[Path, str]] = []
    for path in python_files(folder, (".py", ".ipynb"), unread):
        number += 1
        try:
            data = files_read.read(path) or b""
        except OSError as error:
            unread.append((path, error.strerror or str(error)))
            continue
        if looks_like_training(data):
            scripts.append(path)
        if not installed and may_be_started(data):
            started.append(path)
    return Found(scripts, number, started, unread)


def python_files(
    folder: Path, endings: tuple[str, ...] = (".py",), unread: list[tuple[Path, str]] | None = None
) -> Iterator[Path]:
    """The files below `folder` with one of the `endings`, sorted, without what `find_scripts` passes over.

    Args:
        folder: where to look.
        endings: of the files' names.
        unread: takes folders that cannot be listed, with the reason.
    """
    root = folder.resolve()
    places = [folder]
    while places:
        place = places.pop()
        try:
            folders, files = files_read.names_in(place)
        except OSError as error:
            if unread is not None:
                unread.append((place, error.strerror or str(error)))
            continue
        for name in files:
            if name.endswith(endings) and not name.startswith("."):
                path = place / name
                if not os.path.islink(path) or _inside(path, root):
                    yield path
        inner = (place / name for name in reversed(folders) if not _is_passed_over(name))
        places += [one for one in inner if not files_read.exists(one / "pyvenv.cfg")]


def _is_passed_over(name: str) -> bool:
    return name.startswith(".") or name in _SKIPPED_FOLDERS


def _inside(path: Path, root: Path) -> bool:
    try:
        return path.is_file() and path.resolve().is_relative_to(root)
    except (OSError, RuntimeError):  # a link to itself
        return False


def write_all(files: Sequence[tuple[Path, bytes]]) -> None:
    """Write several files, all or none: each is written to a temporary file first, and only then are all put in place.

    Permissions stay, and a link stays a link. A device or a pipe (`/dev/null`, `/dev/stdout`) is written to as it is.

    Raises SourceError, with every file as it was, where one of them cannot be written.
    """
    streams = [(path, data) for path, data in files if _is_stream(path)]
    files = [(path, data) for path, data in files if not _is_stream(path)]
    staged: list[tuple[Path, Path]] = []
    done: list[tuple[Path, bytes | None]] = []
    path = Path()
    try:
        for path, data in files:
            staged.append((target := Path(os.path.realpath(path)), _stage(target, data, path)))
        for target, temporary in staged:
            path = target
            before = target.read_bytes() if target.exists() else None
            os.replace(temporary, target)
            done.append((target, before))
        for path, data in streams:
            with path.open("wb") as stream:
                stream.write(data)
    except OSError as error:
        for target, before in reversed(done):
            _put_back(target, before)
        raise SourceError(f"{path} cannot be written: {error.strerror or error}.", path) from None
    finally:
        for _, temporary in staged:
            temporary.unlink(missing_ok=True)


def make_folder(folder: Path) -> None:
    """Make `folder` and those above it where they are missing. Raises SourceError where that cannot be done."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SourceError(f"{folder} cannot be made: {error.strerror or error}.", folder) from None


def _permission_bits(target: Path, path: Path) -> int | None:
    """The mode of an existing file, None for a new one. Raises SourceError where it may not be written."""
    if not target.parent.is_dir():
        raise SourceError(f"{path} cannot be written: the folder {target.parent} does not exist.", path)
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise SourceError(f"{path} cannot be written: the folder {target.parent} is read-only.", path)
    if not target.exists():
        return None
    if target.is_dir():
        raise SourceError(f"{path} cannot be written: it is a folder.", path)
    mode = stat.S_IMODE(target.stat().st_mode)
    # Root may write everything, but a file without any write bit was set so by somebody on purpose.
    if not os.access(target, os.W_OK) or not mode & 0o222:
        raise SourceError(f"{path} is read-only: allow writing (`chmod u+w {path}`) or use --output.", path)
    return mode


def _stage(target: Path, data: bytes, path: Path) -> Path:
    mode = _permission_bits(target, path)
    import tempfile

    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if mode is None:
            umask = os.umask(0)
            os.umask(umask)
            mode = 0o666 & ~umask
        else:
            owner = target.stat()
            if (owner.st_uid, owner.st_gid) != (os.geteuid(), os.getegid()):
                with contextlib.suppress(PermissionError):
                    os.chown(temporary, owner.st_uid, owner.st_gid)
        temporary.chmod(mode)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def _is_stream(path: Path) -> bool:
    return path.exists() and not path.is_file() and not path.is_dir()


def _put_back(target: Path, before: bytes | None) -> None:
    with contextlib.suppress(OSError, SourceError):
        if before is None:
            target.unlink(missing_ok=True)
        else:
            os.replace(_stage(target, before, target), target)
