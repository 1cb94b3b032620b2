import os
import signal
import subprocess
import sys

import pytest

from alewm.errors import InputError
from alewm.runs.folder import new_folder, only_writer

HOLD = "import sys, time; from pathlib import Path; from alewm.runs.folder import only_writer\n"
HOLD += "with only_writer(Path(sys.argv[1])): print('in', flush=True); time.sleep(60)"


def test_a_second_writer_is_refused_until_the_first_has_died(tmp_path):
    first = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert first.stdout.readline() == "in\n"
    with pytest.raises(InputError, match="Another process is writing to"), only_writer(tmp_path):
        pass
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    first.stdout.close()
    with only_writer(tmp_path):
        pass
    with only_writer(tmp_path):
        pass


def test_a_new_folder_appears_whole_and_never_takes_the_place_of_a_living_one(tmp_path):
    out = tmp_path / "out"
    abandoned = tmp_path / ".out.partial" / "checkpoints"
    abandoned.mkdir(parents=True)
    with new_folder(out) as partial:
        assert [path.name for path in partial.iterdir()] == [".lock"]
        with pytest.raises(InputError, match="Another process is writing to"), new_folder(out):
            pass
        (partial / "weights").write_text("all of them")
        assert not out.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert [path.name for path in out.iterdir()] == ["weights"]
    with pytest.raises(InputError, match="not empty"), new_folder(out):
        pass


def test_a_new_folder_that_failed_leaves_nothing(tmp_path):
    with pytest.raises(IsADirectoryError), new_folder(tmp_path / "out") as partial:
        partial.write_text("no file")
    assert list(tmp_path.iterdir()) == []
