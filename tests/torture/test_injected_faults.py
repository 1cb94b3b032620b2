"""A sample of the campaign of `injected_faults.py`: each command killed at a step, or on a disk that is full."""

import random
import shutil
import sys

import pytest
from forked_commands import ForkServer
from injected_faults import Campaign
from verbs import ENTRIES, VERBS

SLOW = ("oscillator", "report")
"""Seconds each; the campaign has them."""


@pytest.mark.skipif(sys.platform != "linux" or shutil.which("cc") is None, reason="needs LD_PRELOAD and a C compiler")
def test_a_command_that_was_killed_or_met_a_full_disk_is_repeated_as_if_nothing_had_been(tmp_path):
    draw, wrong = random.Random(0), []
    with ForkServer(ENTRIES) as server:
        campaign = Campaign(server, tmp_path.resolve())
        for verb in VERBS:
            if verb.starts_processes or verb.name in SLOW:
                continue
            at, action = draw.randint(1, campaign.steps(verb)), draw.choice(("kill", "kill", "tear", "fill"))
            wrong += campaign.disturb(verb, at, action)
    assert not wrong
    rows = campaign.rows.values()
    assert sum(row.kills for row in rows) >= 8
    assert sum(row.full for row in rows) >= 2
