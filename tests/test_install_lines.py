"""Messages about a missing package name a command that works however alewm was installed."""

import re
from importlib import metadata
from pathlib import Path

import pytest

from alewm.errors import install_line

ROOT = Path(__file__).parents[1]
EXTRAS = sorted(
    {match for line in metadata.requires("alewm") for match in re.findall(r"extra == ['\"](.*?)['\"]", line)}
)


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_is_named_by_its_packages(extra):
    said = install_line(extra)
    packages = re.fullmatch(r"Install it: pip install (.*) \(or pip install '\.\[.*\]' in a clone of alewm\)\.", said)
    assert packages, said
    assert ";" not in packages[1]


def test_only_what_this_python_needs_is_named(monkeypatch):
    listed = ["mujoco<4,>=3; extra == 'm'", "old>=1; python_version < '3.0' and extra == 'm'"]
    listed += ["new>=2; python_version >= '3.0' and extra == 'm'", "other; extra == 'mm'", "core>=1"]
    monkeypatch.setattr(metadata, "requires", lambda name: listed)
    assert (
        install_line("m")
        == "Install it: pip install 'mujoco<4,>=3' 'new>=2' (or pip install '.[m]' in a clone of alewm)."
    )


def test_without_metadata_the_clone_is_named(monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", missing)
    assert install_line("hub") == "Install it: pip install '.[hub]' in a clone of alewm."


def test_no_message_and_no_page_installs_a_package_that_is_not_published():
    pages = [*ROOT.glob("src/**/*.py"), *ROOT.glob("docs/**/*.md"), ROOT / "README.md"]
    assert [str(page) for page in pages if "pip install 'alewm[" in page.read_text()] == []
