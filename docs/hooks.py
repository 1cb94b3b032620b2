"""What `make docs` generates: references of command line and Python, the notebook, pages of results and environments.

A page in docs/ links to what a generated page is made from, so that the link also works where docs/ is read as files.
On the site it leads to the generated page. Other links that leave docs/ become text with the
path in the repository.
"""

import json
import os
import posixpath
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import alewm
from alewm.cli.main import VERBS
from alewm.envs.registry import OUR_TASKS, get_task
from alewm.theme import as_svg
from alewm_lab.publishing.environment_pages import page as environment_page
from alewm_lab.publishing.results_page import FIGURES, results_page

_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((\.\./[^)\s]*)(?: \"[^\"]*\")?\)")
NOTEBOOK = "notebooks/quickstart.ipynb"
MADE_FROM = {
    NOTEBOOK: "notebook.md",
    "results/README.md": "results.md",
    **{
        f"src/{(get_task(name).env_home or '').partition(':')[0].replace('.', '/')}.py": f"environments/{name}.md"
        for name in OUR_TASKS
    },
}
"""The generated page of a file of the repository."""
_ROOM = {"planning": "Planning", "training": "Training", "data": "Data", "model": "Model", "evaluation": "Evaluation"}


def on_files(files, config):
    """Adds the generated pages."""
    from mkdocs.structure.files import File

    docs = Path(config.docs_dir)
    results, figures = results_page(docs.parent / "results", docs / "results.md")
    made: dict[str, str | bytes] = {
        "reference/command-line.md": command_line(),
        "reference/python.md": python(),
        "notebook.md": notebook(docs.parent / NOTEBOOK),
        "results.md": results,
        **{(FIGURES / f"{figure.name}.svg").as_posix(): as_svg(figure.draw) for figure in figures},
        **{f"environments/{name}.md": environment_page(get_task(name)) for name in OUR_TASKS},
    }
    for path, content in made.items():
        if (earlier := files.get_file_from_path(path)) is not None:
            files.remove(earlier)
        files.append(File.generated(config, path, content=content))
    return files


def notebook(path: Path) -> str:
    """The cells of a notebook as Markdown; what they print and draw is seen when it is run."""
    parts = []
    for cell in json.loads(path.read_text())["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
    title, *others = parts
    where = f"This page is `notebooks/{path.name}` of the repository; open it there to run it. A test runs it as it is."
    return "\n\n".join([title.replace("# Quickstart", "# Quickstart as a notebook"), where, *others])


def on_page_markdown(markdown, page, config, files):
    """Links to what a generated page is made from lead there; others that leave docs/ become text and their path."""

    def text_of(found: re.Match[str]) -> str:
        folder = posixpath.dirname(page.file.src_uri)
        path, sharp, heading = found[2].partition("#")
        target = posixpath.normpath(posixpath.join(folder, path))
        if not target.startswith(".."):
            return found[0]
        name = target.removeprefix("../")
        if name in MADE_FROM:
            return f"[{found[1]}]({posixpath.relpath(MADE_FROM[name], folder or '.')}{sharp}{heading})"
        is_named = name.endswith(found[1].strip("`/")) or ("`" in found[1] and found[1].strip("`") in name)
        return found[1] if is_named else f"{found[1]} (`{name}`)"

    return _LINK.sub(text_of, markdown)


_RARELY_MEANT = "---\nsearch:\n  boost: 0.2\n---\n"
"""Head of a page of reference: a search lists pages that explain before it."""


def command_line() -> str:
    """Every verb's help, as the parser prints it."""
    parts = [
        _RARELY_MEANT,
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
    # The parser leaves the paragraphs above its boxes to the terminal to wrap.
    lines = [textwrap.fill(line, 88) if len(line) > 88 else line for line in done.stdout.strip().splitlines()]
    return "\n".join(lines)


def python() -> str:
    """The public names of the package, by the room they live in."""
    rooms: dict[str, list[str]] = {}
    for name, home in alewm._HOME_OF.items():
        rooms.setdefault(home.split(".")[1], []).append(f"{home}.{name}")
    parts = [_RARELY_MEANT, "# Python", "", "All of these load from `alewm` itself: `from alewm import MixSIGReg`.", ""]
    for room, names in rooms.items():
        parts += [f"## {_ROOM.get(room, room.replace('_', ' ').capitalize())}", ""]
        for name in names:
            parts += [f"::: {name}", ""]
    return "\n".join(parts)
