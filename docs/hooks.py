"""What `make docs` generates: the reference of the command line and of Python, and links that leave docs/ as text."""

import os
import posixpath
import re
import subprocess
import sys

import alewm
from alewm.cli.main import VERBS

_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((\.\./[^)\s]*)(?: \"[^\"]*\")?\)")
_ROOM = {"planning": "Planning", "training": "Training", "data": "Data", "model": "Model", "evaluation": "Evaluation"}


def on_files(files, config):
    """Adds the generated pages."""
    from mkdocs.structure.files import File

    for path, text in (("reference/command-line.md", command_line()), ("reference/python.md", python())):
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown, page, config, files):
    """Links to code, records and other files outside docs/ become their text: the site does not hold those files."""

    def text_of(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(page.file.src_uri), found[2].partition("#")[0]))
        if not target.startswith(".."):
            return found[0]
        name = target.removeprefix("../")
        return f"{found[1]} (`{name}`)" if name.endswith((".py", ".c")) and name not in found[1] else found[1]

    return _LINK.sub(text_of, markdown)


def command_line() -> str:
    """Every verb's help, as the parser prints it."""
    parts = [
        "# Command line",
        "",
        "```text",
        _help(),
        "```",
        "",
    ]
    for group, verbs in VERBS.items():
        parts += [f"## {group.capitalize()}", ""]
        for name in verbs:
            parts += [f"### alewm {name}", "", "```text", _help(name), "```", ""]
    return "\n".join(parts)


def _help(*verb: str) -> str:
    environment = {**os.environ, "COLUMNS": "88", "NO_COLOR": "1", "TERM": "dumb"}
    done = subprocess.run(
        [sys.executable, "-m", "alewm", *verb, "--help"], capture_output=True, text=True, check=True, env=environment
    )
    return done.stdout.strip()


def python() -> str:
    """The public names of the package, by the room they live in."""
    rooms: dict[str, list[str]] = {}
    for name, home in alewm._HOME_OF.items():
        rooms.setdefault(home.split(".")[1], []).append(f"{home}.{name}")
    parts = ["# Python", "", "All of these load from `alewm` itself: `from alewm import MixSIGReg`.", ""]
    for room, names in rooms.items():
        parts += [f"## {_ROOM.get(room, room.replace('_', ' ').capitalize())}", ""]
        for name in names:
            parts += [f"::: {name}", ""]
    return "\n".join(parts)
