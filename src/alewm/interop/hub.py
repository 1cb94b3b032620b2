"""Repositories of the Hugging Face Hub by their ids, OWNER/NAME: fetched where a folder could stand, and sent.

Needs the extra `hub`, and only where an id is given. `HF_ENDPOINT`, `HF_TOKEN` and `HF_HOME` mean what they mean to the
Hub's own client.
"""

import re
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from alewm.errors import InputError, install_line

CARD = "README.md"
_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*")
_LICENCE_ID = r"[\w.+-]+"


def is_hub_id(path: str | Path) -> bool:
    """Whether `path` can only be the id of a repository.

    Where its first part is a folder here, it is probably a mistyped path; asking the Hub for it would take half a
    minute.
    """
    return _ID.fullmatch(str(path)) is not None and not Path(path).exists() and not Path(path).parent.exists()


def here_or_fetched(
    path: str | Path, kind: Literal["model", "dataset"] = "model", patterns: Sequence[str] | None = None
) -> Path:
    """`path`; of an id, the folder in the Hub's cache that holds the repository's files, or those of `patterns`.

    The name of that folder is the revision. Its files are links, and nothing is written there.
    """
    return _fetched(str(path), repo_type=kind, allow_patterns=patterns) if is_hub_id(path) else Path(path)


def run_here_or_fetched(path: str | Path) -> Path:
    """`path`; of an id, a copy of the repository in runs/OWNER/NAME, where results can be written beside it."""
    if not is_hub_id(path):
        return Path(path)
    copy = Path("runs", path)
    if copy.exists() and not (copy / ".cache" / "huggingface").is_dir():
        raise InputError(f"{copy} exists already and was not fetched from the Hub. Name that folder, or move it away.")
    _fetched(str(path), local_dir=copy)
    return copy


def _fetched(name: str, **options: Any) -> Path:
    try:
        return Path(_client().snapshot_download(name, **options))
    except InputError as error:
        raise InputError(f"{name} is no folder here, and could not be fetched from the Hub. {error}") from error
    except Exception as error:  # the client has no common class for what it and its HTTP library raise
        raise InputError(f"{name} is no folder here, and could not be fetched from the Hub. {_said(error)}") from error


def push_to_hub(folder: Path, name: str, *, private: bool = False) -> str:
    """Sends a folder of `save_pretrained` or `alewm share` to the repository `name`; the address of the commit."""
    check_hub_name(name)
    api = _client().HfApi()
    try:
        api.create_repo(name, private=private, exist_ok=True)
        return str(api.upload_folder(repo_id=name, folder_path=folder, ignore_patterns=["evaluations/*", ".cache/*"]))
    except Exception as error:
        raise InputError(f"{folder} could not be sent to {name} on the Hub. {_said(error)}") from error


def check_hub_name(name: str) -> None:
    """Refuse what is no id with its owner."""
    if _ID.fullmatch(name) is None:
        raise InputError(f"A repository of the Hub is named OWNER/NAME, got {name!r}.")


def licence_in_card(folder: Path) -> str | None:
    """The licence that the card in `folder` states for the Hub; None where there is no card or it states none."""
    if not (folder / CARD).is_file():
        return None
    front_matter = re.match(r"---\s*\n(.*?)\n---", (folder / CARD).read_text("utf-8", errors="replace"), re.DOTALL)
    if front_matter is None:
        return None
    stated = re.search(rf"""^license:[ \t]*["']?({_LICENCE_ID})["']?[ \t]*$""", front_matter[1], re.MULTILINE)
    return stated[1] if stated else None


def check_licence_id(licence: str) -> None:
    """Refuse what the Hub could not read as the identifier of a licence."""
    if re.fullmatch(_LICENCE_ID, licence) is None:
        raise InputError(
            f"A licence is given by its identifier, for example apache-2.0, mit or other; got {licence!r}."
        )


def _client() -> Any:
    try:
        import huggingface_hub
    except ModuleNotFoundError as error:
        raise InputError(
            f"The Hub needs the package {error.name!r}, which is not installed. {install_line('hub')}"
        ) from error
    return huggingface_hub


def _said(error: Exception) -> str:
    """What went wrong in the client, and what to do, in plain words."""
    import huggingface_hub

    if isinstance(error, huggingface_hub.errors.RepositoryNotFoundError):
        return "The Hub has no repository of this name, or a private one. `hf auth login` opens your private ones."
    chain: list[BaseException] = [error]
    while following := chain[-1].__cause__ or chain[-1].__context__:
        chain.append(following)
    if any(isinstance(each, (ConnectionError, TimeoutError, socket.gaierror)) for each in chain):
        endpoint = huggingface_hub.constants.ENDPOINT
        return f"There is no connection to {endpoint}. Check the network, and HF_ENDPOINT if you set it, and try again."
    return (str(error) or type(error).__name__).splitlines()[0]
