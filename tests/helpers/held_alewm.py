"""`alewm` whose training waits or is interrupted at a chosen update, so that no signal comes too late.

Before the checkpoint of update $HELD_AT it waits. At update $INTERRUPTED_AT the process of rank $INTERRUPTED_RANK sends
itself $SIGNAL. Processes that it spawns import this file too, and are held alike.
"""

import os
import signal
import time

from alewm.cli.main import main
from alewm.training import trainer
from alewm.training.checkpoint import save_checkpoint


def save_what_comes_before(folder, description, *state):
    if description.step >= int(os.environ.get("HELD_AT", 1 << 30)):
        time.sleep(600)
    return save_checkpoint(folder, description, *state)


class Interrupted(trainer.Trainer):
    def _gather(self, result):
        is_here = os.environ.get("RANK", "0") == os.environ.get("INTERRUPTED_RANK", "0")
        if is_here and self.step == int(os.environ.get("INTERRUPTED_AT", -1)):
            signal.raise_signal(int(os.environ["SIGNAL"]))
        super()._gather(result)


trainer.save_checkpoint = save_what_comes_before  # type: ignore[attr-defined]

if __name__ == "__main__":
    from alewm.training import train_run

    train_run.Trainer = Interrupted  # type: ignore[attr-defined]
    main()
