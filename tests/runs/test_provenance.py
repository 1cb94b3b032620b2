"""Which commit a run names: that of the code that ran."""

import subprocess

import pytest

from alewm.runs.folder import clean_commit, code_commit


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A repository with one file of code, and a function that runs git in it."""
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "somebody")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "somebody@example.org")

    def git(*arguments):
        done = subprocess.run(["git", *arguments], cwd=tmp_path, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    (tmp_path / "src").mkdir()
    (tmp_path / "src/code.py").write_text("1")
    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "first")
    return tmp_path, git


def test_only_changes_of_code_are_changes(checkout):
    root, git = checkout
    head = git("rev-parse", "HEAD")
    assert code_commit(root) == head
    (root / "notes.md").write_text("beside it")
    assert code_commit(root) == head
    assert clean_commit({"commit": head}) == head
    for change in ("src/code.py", "src/new.py"):
        (root / change).write_text("2")
        assert code_commit(root) == f"{head}+changes"
        git("stash", "-qu")
    assert clean_commit({"commit": f"{head}+changes"}) is None


def test_a_copy_without_history_has_the_commit_it_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("ALEWM_COMMIT", "a" * 40)
    assert code_commit(tmp_path) == "a" * 40
    monkeypatch.setenv("ALEWM_COMMIT", "some words")
    assert code_commit(tmp_path) is None
    monkeypatch.delenv("ALEWM_COMMIT")
    assert code_commit(tmp_path) is None
    assert clean_commit({"commit": None}) is None
