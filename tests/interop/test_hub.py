"""What counts as the id of a repository, and what its card states. Sending and fetching: `tests/interop_real`."""

import pytest

from alewm.errors import InputError
from alewm.interop.hub import check_hub_name, is_hub_id, licence_in_card, push_to_hub, run_here_or_fetched


def test_an_id_is_what_no_folder_here_can_mean(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert is_hub_id("someone/two-room")
    (tmp_path / "runs").mkdir()
    for path in ("runs/mistyped", "two-room", "a/b/c", "../b", tmp_path / "b", "someone/", "someone/.hidden"):
        assert not is_hub_id(path), path
    with pytest.raises(InputError, match="OWNER/NAME, got 'two-room'"):
        check_hub_name("two-room")


@pytest.mark.parametrize(
    ("card", "stated"),
    [
        ("---\nlicense: mit\n---\n# A model", "mit"),
        ("---\ntags:\n- a\nlicense: 'cc-by-nc-4.0'\nother: 1\n---\n", "cc-by-nc-4.0"),
        ("---\ntags: [a]\n---\nlicense: mit\n", None),
        ("# A model\n\nlicense: mit\n", None),
        ("---\nlicense:\n- mit\n- apache-2.0\n---\n", None),
    ],
)
def test_the_licence_is_read_from_the_front_matter_alone(card, stated, tmp_path):
    (tmp_path / "README.md").write_text(card)
    assert licence_in_card(tmp_path) == stated


def test_without_a_card_no_licence_is_stated(tmp_path):
    assert licence_in_card(tmp_path) is None


def test_a_run_of_ones_own_is_never_fetched_over(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs/someone/two-room").mkdir(parents=True)
    with pytest.raises(InputError, match="was not fetched from the Hub"):
        run_here_or_fetched("someone/two-room")


def test_without_a_connection_it_is_said_where_to_and_what_to_do(tmp_path, monkeypatch):
    """Port 9 of this machine refuses, at once."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    expected = r"There is no connection to http://127.0.0.1:9. Check the network.* try again\.$"
    with pytest.raises(InputError, match="someone/model is no folder here.*" + expected):
        run_here_or_fetched("someone/model")
    with pytest.raises(InputError, match="could not be sent to someone/model on the Hub. " + expected):
        push_to_hub(tmp_path, "someone/model")
