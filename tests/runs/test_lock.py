import os
import signal
import subprocess
import sys

import pytest

from alewm.errors import InputError
from alewm.runs.lock import only_writer

HOLD = "import sys, time; from pathlib import Path; from alewm.runs.lock import only_writer\n"
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
