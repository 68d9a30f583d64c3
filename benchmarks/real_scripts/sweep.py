"""The command line over many real scripts: does it convert them, and does what it promises hold for each?

    python benchmarks/real_scripts/sweep.py CHECKOUTS SCRIPTS.tsv OUT.jsonl [--workers 2]

CHECKOUTS holds a clone of each repository as OWNER+NAME. SCRIPTS.tsv has a line `owner/name<TAB>path` for each script;
lines that begin with `#` are left out. Each script is converted in a fresh copy of its repository, by processes of
their own. The output has to parse and compile, the cells of a notebook that hold no code have to be the same, a second
conversion has to change nothing, and `check --select ACC1` to find nothing. OUT.jsonl gets a line for each script, the
folder OUT.diffs the changes; the counts are printed as a row of a table.

"With its entry" counts scripts that are left alone, because a caller hands them the model, but converted with a script
that imports them. The share is (converted + with its entry) of (those + left).
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
LIMIT = 300
"""Seconds for one command."""
ENTRIES = 4
"""Scripts that import a module, at most, of which it is tried whether they convert it."""
# What a script is when it was not converted, by the code of the first thing said about it.
KINDS = {"ACC001": "distributed already", "ACC002": "no loop", "ACC003": "no model is trained"}
COLUMNS = (
    "converted", "with its entry", "left", "no model is trained", "distributed already", "does not parse", "no loop",
    "crash", "with a problem",
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkouts", type=Path)
    parser.add_argument("scripts", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    lines = options.scripts.read_text().splitlines()
    jobs = [line.split("\t")[:2] for line in lines if line.strip() and not line.startswith("#")]
    diffs = options.out.with_suffix(".diffs")
    diffs.mkdir(parents=True, exist_ok=True)
    rows = []
    with concurrent.futures.ThreadPoolExecutor(options.workers) as pool, options.out.open("w") as out:
        for row in pool.map(lambda job: one(options.checkouts.resolve(), diffs, *job), jobs):
            out.write(json.dumps(row) + "\n")
            out.flush()
            rows.append(row)
    print(counts(rows))
    for row in rows:
        for problem in row["problems"]:
            print(f"- {row['repo']}, {row['path']}: {problem}")
    return int(any(row["problems"] for row in rows))


def one(checkouts: Path, diffs: Path, repository: str, path: str) -> dict[str, Any]:
    """What becomes of one script."""
    row: dict[str, Any] = {"repo": repository, "path": path, "kind": "crash", "reason": "", "problems": []}
    original = checkouts / repository.replace("/", "+")
    try:
        with copied(original) as tree:
            convert(row, original, tree, diffs)
        if row["kind"] == "left":
            for entry in importers(original, path):
                with copied(original) as tree:
                    report = said(command(tree, "convert", str(entry), "--json"))
                if any(f["changed"] and same(tree, f["file"], path) for f in report.get("files", [])):
                    row["kind"], row["entry"] = "with its entry", str(entry)
                    break
    except subprocess.TimeoutExpired as error:
        row["problems"].append(f"no end after {LIMIT} s: {' '.join(error.cmd[2:])}")
    return row


def convert(row: dict[str, Any], original: Path, tree: Path, diffs: Path) -> None:
    """Convert the script in `tree`, which is a copy of `original`, and look at what was written."""
    path, problems = row["path"], row["problems"]
    done = command(tree, "convert", path, "--json")
    report = said(done)
    if not report:
        row["reason"] = " ".join((done.stderr or done.stdout).split())[-400:]
        if done.returncode == 2 and "Traceback" not in done.stderr:
            row["kind"] = "does not parse"
        else:
            problems.append(row["reason"])
        return
    own = next(f for f in report["files"] if same(tree, f["file"], path))
    row["reason"] = own.get("reason") or ""
    codes = [found.get("part", found["code"]) for found in own["remaining"]]
    row["findings"] = [[found["code"], found["line"], found["message"]] for found in own["remaining"]]
    if own["status"] == "failed" or "Traceback" in done.stderr:
        problems.append(row["reason"] or done.stderr[-400:])
        return
    if own["status"] == "converted":
        row["kind"] = "converted"
    elif own["status"] == "unchanged":
        row["kind"] = "no loop"
    else:
        row["kind"] = next((KINDS[code] for code in codes if code in KINDS), "left")
    changed = [
        os.path.relpath(os.path.realpath(tree / f["file"]), tree) for f in report["files"] if f["changed"]
    ]
    row["changed"] = changed
    (diffs / f"{row['repo']}__{path}.diff".replace("/", "+")).write_text(difference(original, tree, changed))
    written = {name: (tree / name).read_bytes() for name in changed}
    problems += [found for name in changed if (found := broken(original / name, tree / name))]
    if not changed:
        return
    again = command(tree, "convert", path, *[name for name in changed if name != path], "--json")
    if not said(again):
        problems.append("second conversion: " + " ".join(again.stderr.split())[-300:])
    problems += [
        f"a second conversion changes {name}"
        for name in changed
        if (tree / name).read_bytes() != written[name]
    ]
    check = command(tree, "check", "--select", "ACC1", "--output-format", "json", *changed)
    if check.returncode:
        problems.append("check: " + " ".join((check.stdout or check.stderr).split())[:300])


def broken(original: Path, written: Path) -> str:
    """Why a written file is not what it should be, in one sentence; empty when it is."""
    if written.suffix != ".ipynb":
        try:
            compile(written.read_bytes(), written.name, "exec", dont_inherit=True)
        except SyntaxError as error:
            return f"{written.name} does not compile: {error}"
        return ""
    before, after = (json.loads(path.read_text(encoding="utf-8")) for path in (original, written))
    if [c["cell_type"] for c in before["cells"]] != [c["cell_type"] for c in after["cells"]]:
        return f"{written.name} has other cells"
    if any(a != b for a, b in zip(before["cells"], after["cells"], strict=True) if a["cell_type"] != "code"):
        return f"{written.name}: a cell without code has changed"
    return ""


class copied:  # noqa: N801 - reads as `with copied(tree)`
    """A copy of a folder by hard links, which is enough: files are written under another name and renamed."""

    def __init__(self, original: Path) -> None:
        self.original = original
        self.home = Path(os.path.realpath(tempfile.mkdtemp(prefix="sweep-")))

    def __enter__(self) -> Path:
        tree = self.home / self.original.name
        try:
            shutil.copytree(
                self.original, tree, copy_function=link, ignore=shutil.ignore_patterns(".git"), symlinks=True
            )
        except OSError:
            shutil.rmtree(self.home)
            raise
        (tree / ".git").mkdir()
        return tree

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.home, ignore_errors=True)


def link(source: str, target: str) -> str:
    """A hard link, or a copy where the places lie on two file systems."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
    return target


def command(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command line, run in a folder."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-P", "-m", "accelify", *arguments],
        cwd=tree, env=environment, capture_output=True, text=True, check=False, timeout=LIMIT,
    )  # fmt: skip


def said(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The report that was printed; empty where there is none."""
    try:
        report: dict[str, Any] = json.loads(done.stdout)
    except json.JSONDecodeError:
        return {}
    return report


def same(tree: Path, name: str, path: str) -> bool:
    """Whether a report's file is that path of the tree."""
    return os.path.realpath(tree / name) == os.path.realpath(tree / path)


def difference(original: Path, tree: Path, changed: list[str]) -> str:
    """What was changed, as git shows it."""
    text = ""
    for name in changed:
        files = [str(original / name), str(tree / name)]
        done = subprocess.run(["git", "diff", "--no-index", "-U6", *files], capture_output=True, check=False)
        text += done.stdout.decode(errors="replace")
    return text


def importers(original: Path, path: str) -> Iterator[Path]:
    """Scripts of the repository that import the module at `path`, nearest first."""
    name = re.escape(Path(path).stem)
    pattern = re.compile(
        rf"^\s*(?:from\s+[\w.]*\b{name}\s+import|import\s+[\w., ]*\b{name}\b|from\s+\S+\s+import\s.*\b{name}\b)",
        re.M,
    )
    folder, found = Path(path).parent, 0
    for script in sorted(original.rglob("*.py"), key=lambda p: (p.parent != original / folder, str(p))):
        if script == original / path or not pattern.search(script.read_text(errors="replace")):
            continue
        yield script.relative_to(original)
        found += 1
        if found == ENTRIES:
            return


def counts(rows: list[dict[str, Any]]) -> str:
    """The table's row."""
    asked = ["git", "-C", str(ROOT), "log", "-1", "--format=%h", "--abbrev=7", "--", "accelify"]
    commit = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    number = Counter(row["kind"] for row in rows)
    number["with a problem"] = sum(bool(row["problems"]) and row["kind"] != "crash" for row in rows)
    notebooks = sum(row["path"].endswith(".ipynb") for row in rows)
    good = number["converted"] + number["with its entry"]
    share = f"{good / (good + number['left']):.0%}" if good else "none"
    repositories = len({row["repo"] for row in rows})
    head = ["commit", "repositories", "scripts (notebooks)", *COLUMNS, "share"]
    cells = [commit, repositories, f"{len(rows)} ({notebooks})", *(number[name] for name in COLUMNS), share]
    table = [head, ["---"] * len(head), cells]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in table)


if __name__ == "__main__":
    sys.exit(main())
