"""The pages of the site that are made from the code: commands, configuration and the runtime's API.

A hook of mkdocs: the pages exist while the site is built, and nowhere else, so they cannot go stale.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]

# The runtime's modules by the page that describes them: a name's page goes by the first part of its module.
GROUPS = {
    "Accelerator": ("accelerator",),
    "Options and engines": ("plugins", "backends"),
    "Processes and state": ("state",),
    "Data": ("data",),
    "Collectives": ("collectives", "nested"),
    "Optimizers, schedulers, helpers": ("optimizer", "scheduler", "helpers"),
    "Weights and files": ("weights", "files"),
    "Logging and trackers": ("logging", "tracking"),
    "Start from a notebook": ("launch",),
    "Errors and observers": ("guard", "observers"),
}

# What a browser fetches to show a page: scripts, styles, fonts, pictures, frames. A link is fetched by a click alone.
LOADED_FROM_ELSEWHERE = re.compile(
    r"""<(?!a\b)[a-z]+\b[^>]*?\b(?:src|srcset|href|data|poster)=["']?\s*(?:https?:)?//[^>\s]*"""
    r"|url\(\s*[\"']?(?:https?:)?//[^)]*",
    re.IGNORECASE,
)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages of the runtime's API into the navigation."""
    sys.path.insert(0, str(ROOT))
    reference = next(entry["Reference"] for entry in config.nav if "Reference" in entry)
    pages = [{group: _file_of(group)} for group in GROUPS]
    reference[-1] = {"Runtime API": pages}
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made from the code."""
    pages = {
        "reference/commands.md": commands_page(),
        "reference/configuration.md": configuration_page(),
        **api_pages(),
    }
    for place, text in pages.items():
        files.append(File.generated(config, place, content=text))
    schema = ROOT / "accelify" / "tool-schema.json"
    files.append(File.generated(config, "reference/tool-schema.json", content=schema.read_text()))
    return files


def on_post_build(config: MkDocsConfig) -> None:
    """Take out the page for addresses that are not there: its links are absolute, and no server shows it."""
    Path(config.site_dir, "404.html").unlink(missing_ok=True)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Refuse a page that a browser would load a part of from another host."""
    if loaded := LOADED_FROM_ELSEWHERE.search(output):
        raise PluginError(f"{page.file.src_uri} loads something from another host: {loaded[0]}")
    return output


def commands_page() -> str:
    """Every command with its arguments and options, as the command line itself has them."""
    from typer.main import get_command

    from accelify.cli.main import COMMANDS, EPILOG, build_app

    parts = ["# Commands", f"`accelify COMMAND --help` prints the same. {EPILOG}"]
    for name, summary in COMMANDS.items():
        group: Any = get_command(build_app([name]))
        command = group.commands[name]
        context = group.context_class(command, info_name=f"accelify {name}")
        usage = " ".join(command.collect_usage_pieces(context))
        parts += [f"## accelify {name}", f"    accelify {name} {usage}"]
        parts.append(inspect.cleandoc(command.help or summary))
        rows = [row for one in command.params if (row := _parameter_row(one, context))]
        if rows:
            parts.append("\n".join(["| | | default |", "|---|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"


def _parameter_row(parameter: Any, context: Any) -> str:
    record = parameter.get_help_record(context)
    if record is None or "--help" in parameter.opts:
        return ""
    names, text = record
    names = " ".join(word for word in names.split() if not (word.startswith("<") and "--" not in names))
    default = re.search(r"\s*\[default: (.*?)\]$", text)
    text = text.replace(default[0] if default else "  [required]", "").replace("|", "\\|")
    shown = f"`{default[1]}`" if default else ""
    return f"| `{names}` | {text} | {shown} |"


def configuration_page() -> str:
    """The keys of [tool.accelify], from the schema that the reader of the configuration is tested against."""
    schema = json.loads((ROOT / "accelify" / "tool-schema.json").read_text())
    parts = [
        "# `[tool.accelify]`",
        schema["description"],
        "```toml\n[tool.accelify]\n"
        + "".join(f"{key} = {_toml(entry['examples'][0])}\n" for key, entry in schema["properties"].items())
        + "```",
    ]
    for key, entry in schema["properties"].items():
        default = f" Default: `{_toml(entry['default'])}`." if "default" in entry else ""
        parts += [f"## {key}", f"{entry['description']}{default}"]
    parts.append(
        "## For editors\n\n[tool-schema.json](tool-schema.json) is this page as a JSON schema, for what stands under "
        "`[tool.accelify]`. Editors that check `pyproject.toml` by schemas (taplo, Even Better TOML) take it as it is. "
        "An installed accelify has it as `accelify/tool-schema.json`."
    )
    return "\n\n".join(parts) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {_toml(item)}" for key, item in value.items()) + " }"
    return json.dumps(value)


def api_pages() -> dict[str, str]:
    """One page for each group of names of `accelify.runtime`, which mkdocstrings fills from the docstrings."""
    names = runtime_names()
    pages = {}
    for group, modules in GROUPS.items():
        text = f"# {group}\n\nImport these from `accelify.runtime`.\n"
        for name, module in names.items():
            if module.partition(".")[0] not in modules:
                continue
            text += f"\n::: accelify.runtime.{module}.{name}\n"
            if name == "Accelerator":
                text += "    options:\n      inherited_members: true\n"
        pages[_file_of(group)] = text
    left = {
        name
        for name, module in names.items()
        if not any(module.partition(".")[0] in m for m in GROUPS.values())
    }
    if left:
        raise ValueError(f"docs/site_pages.py: GROUPS has no page for {', '.join(sorted(left))}")
    return pages


def runtime_names() -> dict[str, str]:
    """The module of each name that `accelify.runtime` exports, read without importing it."""
    tree = ast.parse((ROOT / "accelify" / "runtime" / "__init__.py").read_text())
    return {
        alias.asname or alias.name: node.module or ""
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.level == 1
        for alias in node.names
        if alias.asname == alias.name
    }


def _file_of(group: str) -> str:
    return f"reference/api/{group.lower().replace(', ', '-').replace(' ', '-')}.md"
