"""Real training scripts, run before and after conversion: are the losses the same?

    python benchmarks/real_scripts/run_for_real.py CHECKOUTS [--only TEXT] [--new] [--keep FOLDER]
    python benchmarks/real_scripts/run_for_real.py --table

CHECKOUTS holds a clone of each repository as OWNER+NAME, at the commit that stands in `runs.tsv`:
`git clone https://github.com/OWNER/NAME OWNER+NAME` and `git -C OWNER+NAME checkout COMMIT` make one. Nothing is
written there.

`runs.tsv` names the runs: repository, commit, script, arguments, what is set, which data are made. Each run gets a copy
of its repository in a folder of its own, with small made-up data (`data.py`) and small modules in the place of
torchvision, gym and others (`stand_ins/`), and goes through `accelify verify`: the original on one process, a converted
copy on one and on two. What came out is written to `results.json`; `--table` prints it.

The scripts stay as they are, but for constants of theirs that a row sets (`NAME=VALUE`, such as fewer epochs). A
notebook is converted as a notebook; then the code of both is run as two scripts.
"""

from __future__ import annotations

import argparse
import ast
import csv
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE), str(ROOT)]

from data import make  # noqa: E402 - a module beside this file

from accelify.magics import Mask  # noqa: E402

RUNS, RESULTS = HERE / "runs.tsv", HERE / "results.json"
WHOLE = "equal, whole work"
FINE = ("equal", "equal to rounding")


class RunError(Exception):
    """A run that cannot be made, and why, in one sentence."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkouts", type=Path, nargs="?", help="folder of clones named OWNER+NAME")
    parser.add_argument("--only", default="", help="runs whose repository and script have this text in them")
    parser.add_argument("--new", action="store_true", help="runs without a result only")
    parser.add_argument("--keep", type=Path, help="make the runs' folders here and leave them")
    parser.add_argument("--timeout", type=int, default=150, help="seconds for each process's run")
    parser.add_argument("--table", action="store_true", help="print the results and run nothing")
    options = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    known = {(row["repository"], row["script"], row["note"]): row for row in results}
    if options.table:
        print(table(results))
        return 0
    if options.checkouts is None:
        parser.error("name the folder of the checkouts")
    with RUNS.open(newline="") as file:
        runs = [dict(row) for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)]
    failed = 0
    for row in runs:
        key = (row["repository"], row["script"], row["note"])
        if options.only not in " ".join(key) or (options.new and key in known):
            continue
        with tempfile.TemporaryDirectory(dir=options.keep) as folder:
            try:
                known[key] = result = run(row, options.checkouts.resolve(), Path(folder), options.timeout)
            except RunError as error:
                failed += 1
                print(f"{' '.join(key).strip()}: {error}", flush=True)
                if options.keep:
                    subprocess.run(["cp", "-r", folder, f"{folder}-kept"], check=True)
                continue
        print(f"{' '.join(key).strip()}: {result['one']} | {result['two']}", flush=True)
        order = {(r["repository"], r["script"], r["note"]): number for number, r in enumerate(runs)}
        kept = [known[key] for key in sorted(known.keys() & order.keys(), key=order.__getitem__)]
        RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
    return int(failed > 0)


def run(row: dict[str, str], checkouts: Path, folder: Path, timeout: int) -> dict[str, Any]:
    """One row's result.

    Raises:
        RunError: the checkout, the constant to set or the script's end was not as expected.
    """
    tree = folder / row["repository"].rpartition("/")[2]
    take(checkouts / row["repository"].replace("/", "+"), row["commit"], tree)
    script = tree / row["script"]
    working = tree / row["folder"] if row["folder"] else script.parent
    for order in filter(None, row["data"].split("; ")):
        make(working, *shlex.split(order))
    for order in filter(None, row["set"].split("; ")):
        set_constant(script, order)
    paths, environment, steps = [HERE / "stand_ins", ROOT], dict(os.environ), "20"
    for name, _, value in (option.partition("=") for option in row["options"].split()):
        if name == "steps":
            steps = value
        elif name == "OLD_NAMES":
            paths.insert(0, HERE / "stand_ins" / "old_names")
        else:
            environment[name] = value
    environment["PYTHONPATH"] = os.pathsep.join(map(str, paths))
    environment["PATH"] = os.pathsep.join([str(HERE / "stand_ins" / "bin"), environment["PATH"]])
    command = [sys.executable, "-P", "-m", "accelify"]
    against: list[str] = []
    if script.suffix == ".ipynb":
        script, converted = as_scripts(script, [*command, "convert", "--batch-size", "total"], environment)
        against = ["--against", str(converted)]
    limit = ["--steps", steps, "--timeout", str(timeout), "--json", *against]
    done = subprocess.run(
        [*command, "verify", str(script), *limit, "--", *shlex.split(row["arguments"])],
        cwd=working, env=environment, capture_output=True, text=True, check=False, timeout=12 * timeout,
    )  # fmt: skip
    if not done.stdout.startswith("{"):
        raise RunError(" ".join((done.stderr or done.stdout).replace(str(tree), "").split())[-500:])
    return summarise(row, json.loads(done.stdout))


def take(checkout: Path, commit: str, tree: Path) -> None:
    """A copy of a clone that stands at a commit, without its history, yet marked as the root of a project."""
    asked = ["git", "-C", str(checkout), "rev-parse", "HEAD"]
    head = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    if not head.startswith(commit):
        raise RunError(
            f"{checkout} does not stand at {commit}: clone it there, or `git checkout {commit}` in it"
        )
    shutil.copytree(checkout, tree, ignore=shutil.ignore_patterns(".git"), symlinks=True)
    (tree / ".git").mkdir()


def set_constant(script: Path, order: str) -> None:
    """Write another value where the script binds a constant: `NAME=VALUE`, or `FILE:NAME=VALUE` for a file beside it.

    Where nothing is assigned to the name, keyword arguments of that name get the value. `NAME@2=VALUE` means the second
    place only (in a notebook, of each cell).
    """
    name, _, value = order.partition("=")
    if ":" in name:
        beside, _, name = name.partition(":")
        script = script.parent / beside
    if script.suffix == ".ipynb":
        book = json.loads(script.read_text())
        done = 0
        for cell in book["cells"]:
            if cell["cell_type"] == "code" and name.partition("@")[0] in (text := "".join(cell["source"])):
                hidden, shown = without_magics(text), text.splitlines(keepends=True)
                changed, times = replaced(hidden, name, value)
                if times:
                    before, after = hidden.splitlines(keepends=True), changed.splitlines(keepends=True)
                    cell["source"] = (
                        [s if a == b else a for s, a, b in zip(shown, after, before, strict=True)]
                        if len(after) == len(shown)
                        else [changed]
                    )
                done += times
        script.write_text(json.dumps(book))
    else:
        text, done = replaced(script.read_text(), name, value)
        script.write_text(text)
    if not done:
        raise RunError(f"{script.name} binds no {name}")


def replaced(text: str, name: str, value: str) -> tuple[str, int]:
    """`text` with another value for a name, and how often it stood there; lines keep their number where they can."""
    name, _, place = name.partition("@")
    tree = ast.parse(text)
    found = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and any(ast.unparse(target) == name for target in node.targets)
    ]
    found = found or [
        word.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for word in node.keywords
        if word.arg == name
    ]
    found.sort(key=lambda node: (node.lineno, node.col_offset))
    if place:
        found = found[int(place) - 1 : int(place)]
    lines = text.encode().splitlines(keepends=True)
    for node in reversed(found):
        assert node.end_lineno is not None
        first, last = node.lineno - 1, node.end_lineno - 1
        after = lines[last][node.end_col_offset :]
        lines[first : last + 1] = [lines[first][: node.col_offset] + value.encode() + after]
    return b"".join(lines).decode(), len(found)


def without_magics(code: str) -> str:
    """A cell's code with IPython's own lines made into comments, and a cell of another language too."""
    return Mask([code]).hide_magics(code)


def as_scripts(notebook: Path, convert: list[str], environment: dict[str, str]) -> tuple[Path, Path]:
    """The code of a notebook as a script, and that of the converted notebook."""
    script = notebook.with_name("notebook_as_script.py")
    script.write_text(code_of(notebook))
    done = subprocess.run(
        [*convert, str(notebook), "--json"], cwd=notebook.parent, env=environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    others = [
        f["file"] for f in json.loads(done.stdout)["files"] if f["changed"] and f["file"] != str(notebook)
    ]
    if others:
        raise RunError(f"the notebook is converted together with {', '.join(others)}, which is not run here")
    converted = notebook.with_name("notebook_converted.py")
    converted.write_text(code_of(notebook))
    return script, converted


def code_of(notebook: Path) -> str:
    """All code cells, one after the other."""
    cells = json.loads(notebook.read_text())["cells"]
    code = [without_magics("".join(cell["source"])) for cell in cells if cell["cell_type"] == "code"]
    return "\n\n".join(text.rstrip() for text in code) + "\n"


def summarise(row: dict[str, str], report: dict[str, Any]) -> dict[str, Any]:
    """What is kept of a verification."""
    # The commit that says what the converter, the runtime and verify were.
    asked = ["git", "-C", str(ROOT), "log", "-1", "--format=%h", "--abbrev=7", "--", "accelify"]
    result: dict[str, Any] = {name: row[name] for name in ("repository", "commit", "script", "note", "kind")}
    result["accelify"] = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    words = report["refused"] or report["unchanged"]
    for name, number in (("one", 1), ("two", 2)):
        runs = [r for r in report["runs"] if r["processes"] == number]
        result[name] = verdict(runs[0]) if runs else f"not converted: {words}"
        result[f"{name}_told"] = told_of(runs[0]) if runs else ""
    on_gpu = report["on_simulated_gpu"]
    result["gpu"] = verdict(on_gpu) if on_gpu else ""
    result["gpu_told"] = told_of(on_gpu) if on_gpu else ""
    original = report["original"]
    result["backward_calls"] = len(original["losses"]) if original else 0
    result["within_first_epoch"] = report["within_first_epoch"]
    result["left_for_a_person"] = len(report["remaining"])
    return result


def verdict(run: dict[str, Any]) -> str:
    """A run's verdict in the words of the table."""
    if run["verdict"] == "not divided":
        return WHOLE
    return str(run["verdict"])


def told_of(run: dict[str, Any]) -> str:
    """The reason of a verdict, and what came out with chance taken out of both runs."""
    wrong = [
        f"{check['aspect']} {check['verdict']}: {check['sentence']}"
        for check in run["checks"]
        if check["sentence"]
    ]
    words = "" if run["verdict"] in FINE else "; ".join(wrong[:3])
    if run["without_chance"]:
        words += f"; with that taken out of both runs: {run['without_chance']['verdict']}"
    return str(words)


def table(results: list[dict[str, Any]]) -> str:
    """The results in Markdown, the counts, and the runs that need an explanation."""
    lines = [
        "| script | kind | commit | 1 process | 2 processes | 1 simulated GPU |",
        "|---|---|---|---|---|---|",
    ]
    odd = []
    for row in results:
        name = f"{row['repository']} {row['script']}" + (f" ({row['note']})" if row["note"] else "")
        # Results of before there was a simulated GPU have none.
        shown = {n: (row.get(n, ""), row.get(f"{n}_told", "")) for n in ("one", "two", "gpu")}
        cells = [f"{found}: {words}" if words else found for found, words in shown.values()]
        lines.append(f"| {name} | {row['kind']} | {row['accelify']} | {' | '.join(cells)} |")
        fine = row["two"] in (*FINE, WHOLE, "not comparable") and row.get("gpu", "") in ("", "equal")
        if row["one"] != "equal" or not fine:
            odd.append(f"- {name}: {' | '.join(filter(None, cells))} ({row['accelify']})")
    scripts = len({(row["repository"], row["script"]) for row in results})
    counts = Counter(
        "fine" if row["two"] in (*FINE, WHOLE) else "chance" if row["two"] == "not comparable" else "odd"
        for row in results
    )
    same = sum(row["one"] == "equal" for row in results)
    lines += [
        "",
        f"{len(results)} runs of {scripts} scripts: on 1 process equal to the bit in {same}; on 2 processes equal or "
        f"equal to rounding in {counts['fine']}, not comparable in {counts['chance']}, anything else in "
        f"{counts['odd']}.",
        "",
        *odd,
    ]
    return "\n".join(lines).rstrip()


if __name__ == "__main__":
    sys.exit(main())
