"""An evaluation done again beside the published one."""

from dataclasses import replace

from alewm.evaluation.evaluate_run import agreement
from alewm.evaluation.success import EpisodeRecord

RECORD = EpisodeRecord(
    episode=3,
    start_step=1,
    goal_step=26,
    seed=42,
    capacity=8,
    q=(0.5, 0.5),
    success=True,
    presolved=False,
    steps=20,
    predicted_costs=(0.1,),
    distances=(1.0,) * 21,
    random_success=False,
    zero_success=False,
)


def test_episodes_agree_in_success_and_capacity_and_are_known_by_episode_and_start():
    published = [replace(RECORD, episode=episode) for episode in range(5)]
    again = [
        replace(RECORD, episode=0, steps=21, predicted_costs=(0.2,)),
        replace(RECORD, episode=1, success=False),
        replace(RECORD, episode=2, capacity=16),
        replace(RECORD, episode=3, start_step=2),  # another pair
        replace(RECORD, episode=9),
    ]
    found = agreement(again, published)
    assert (found.episodes, found.same_outcome) == (3, 1)
    assert str(found) == "1 of 3 episodes ended as published."
