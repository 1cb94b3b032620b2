"""What a run says, without the folders and the name of the machine it ran on."""

import platform
import re
from collections.abc import Mapping
from typing import Any

_ABSOLUTE = re.compile(r"(?P<before>^|[\s='\"(])(?:~|file:/)?/(?:[^\s'\"()]*/)?(?P<last>[^\s'\"()/]+)/?(?=$|[\s'\")])")


def portable(value: Any) -> Any:
    """The JSON value `value` with absolute paths cut to their last part and this machine's name left out."""
    if isinstance(value, Mapping):
        return {name: portable(content) for name, content in value.items()}
    if isinstance(value, list):
        return [portable(content) for content in value]
    return _portable_text(value) if isinstance(value, str) else value


def _portable_text(text: str) -> str:
    text = _ABSOLUTE.sub(r"\g<before>\g<last>", text)
    host = platform.node()
    # A name as short as "pc" may be part of any word; nobody is identified by it.
    return re.sub(rf"\b{re.escape(host)}\b", "host", text) if len(host) > 3 and host != "localhost" else text
