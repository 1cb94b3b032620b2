"""The bench of drawing tells agreement and speed, and what `bench check` asks on a GPU is asked here of the C path."""

import json

from alewm.kernels.raster import CRenderer
from alewm_lab.benchmarks.drawing import (
    MOST_FROM_A_CARD,
    MOST_FROM_MESA,
    _different_sizes,
    bench_drawing,
    compare_renderers,
)


def test_the_check_of_a_gpu_passes_on_the_c_path_and_catches_another_picture():
    found = compare_renderers("reacher", 4, lambda scene: CRenderer(scene).draw, MOST_FROM_MESA["reacher"])
    assert len(found) == 3
    assert all(value <= allowed for value, allowed in found.values()), found
    wrong = compare_renderers(
        "reacher", 2, lambda scene: lambda poses: CRenderer(scene).draw(poses) // 2, MOST_FROM_A_CARD["reacher"]
    )
    mean, share, _ = wrong.values()
    assert mean[0] > mean[1]
    assert share[0] > share[1]


def test_the_bench_prints_every_path_that_works_here(capsys, tmp_path):
    bench_drawing(
        **{"task_name": "reacher", "frames": 2, "repeats": 1, "threads": (1, 2), "shadow_size": 0, "device": "cpu"},
        **{
            "blocks": (64,),
            "edges": (0.05,),
            "tiles": (32,),
            "casting": (32,),
            "batches": (2,),
            "picture": tmp_path / "sheet.png",
        },
    )
    assert (tmp_path / "sheet.png").stat().st_size > 1000
    rows = json.loads(capsys.readouterr().out.splitlines()[-1])["rows"]
    assert [row["name"] for row in rows][1:4] == ["MuJoCo", "C, 1 thread", "C, 2 threads"]
    assert all(row["frames_per_second"] > 0 for row in rows)


def test_a_row_is_named_after_the_triangles_that_a_program_took():
    sizes = _different_sizes(blocks=(32, 128), edges=(0.05,), tiles=(32,), casting=(32, 64))
    assert sizes == [(32, 0.05, 32, 32), (128, 0.05, 32, 32), (128, 0.05, 32, 64)]
