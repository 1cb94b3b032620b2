"""`python -m alewm.follower MODULE ...`: as `python -m MODULE ...`, but it ends when the process that started it does.

For processes that are started with a command, as `torchrun` starts its ranks; `alewm.workers.follow_parent` is for
those of `multiprocessing`. A killed parent says no goodbye, and a rank that went on would keep its run folder locked.
"""

import os
import runpy
import sys
import threading
import time

LOOK_EVERY_SECONDS = 0.2

FOLLOWED = "ALEWM_FOLLOWED"
"""The variable that says which process to follow: one that dies while its follower starts is no longer its parent."""


def main() -> None:
    """Runs the module named by the first argument."""
    parent = os.getppid()
    if sys.platform != "win32":  # there, a launcher stands between the two
        parent = int(os.environ.get(FOLLOWED, parent))
    os.environ[FOLLOWED] = str(os.getpid())  # for followers that this one starts

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(LOOK_EVERY_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
