"""The run folder: `config.json`, `provenance.json`, `metrics.jsonl`, `checkpoints/`, `result.json`.

Repeating a command with the same config continues in its folder; a different config is refused with the difference,
and nothing in the folder is touched.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from alewm.config import differences
from alewm.errors import InputError
from alewm.files import append_json_line, read_if_there, read_json, write_json
from alewm.runs.provenance import provenance


def require_run(folder: Path) -> None:
    """Refuses what is no run folder, saying what is there instead."""
    if (folder / "config.json").is_file():
        return
    if folder.is_dir():
        names = ", ".join(sorted(each.name for each in folder.iterdir()))
        found = f"expected config.json in it, found {names or 'nothing'}"
    else:
        found = "it is a file" if folder.exists() else "there is no such folder"
    raise InputError(f"{folder} is no run folder: {found}.")


class RunFolder:
    """Where everything about one run is kept."""

    def __init__(self, path: Path, defaults: Mapping[str, Any] | None = None) -> None:
        """`defaults` are those of fields that configs leave out, for what is said of another config."""
        self.path, self.defaults = path, defaults
        self.config_path = path / "config.json"
        self.provenance_path = path / "provenance.json"
        self.metrics_path = path / "metrics.jsonl"
        self.result_path = path / "result.json"
        self.checkpoints = path / "checkpoints"

    def check(self, config: Mapping[str, Any]) -> bool:
        """Whether a run of this very `config` is here already; anything else that is here is refused."""
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"{self.path} is a file; give a folder that is new or holds an earlier run.")
        if self.config_path.exists():
            found = read_json(self.config_path)
            changed = differences(config, found if isinstance(found, Mapping) else {"config": found}, self.defaults)
            if changed:
                lines = "\n  ".join(changed)
                raise InputError(
                    f"{self.path} holds a run with another configuration:\n  {lines}\n"
                    f"Give another folder, or the settings of the run that is there."
                )
            return True
        # Provenance alone was left by a command that was stopped before it wrote the config.
        begun = {self.provenance_path.name}
        if self.path.exists() and any(
            not path.name.startswith(".") and path.name not in begun for path in self.path.iterdir()
        ):
            raise InputError(
                f"{self.path} is not empty and holds no config.json: it is not a run folder. Give another."
            )
        return False

    def open(self, config: Mapping[str, Any], **made_from: Any) -> "RunFolder":
        """This folder, made for `config` or found to have been made for the same.

        `made_from` is what provenance.json says besides versions, hardware and command: the data, for instance.
        """
        if not self.check(config):
            self.path.mkdir(parents=True, exist_ok=True)
            write_json(self.provenance_path, {**provenance(), **made_from})
            write_json(self.config_path, config)  # last: from now on it is a run folder
        return self

    def log(self, **values: Any) -> None:
        """One line of `metrics.jsonl`."""
        append_json_line(self.metrics_path, values)

    def finish(self, result: Mapping[str, Any]) -> None:
        """Writes `result.json`."""
        write_json(self.result_path, result)

    def result(self) -> dict[str, Any]:
        """The content of `result.json`; empty before the run has finished."""
        return read_if_there(self.result_path)
