"""LeWM checkpoints that we write open in stable-worldmodel beside either generation of transformers."""

import pytest


@pytest.mark.parametrize(("overlay", "major"), [("", "5"), ("transformers-4", "4")])
def test_exports_load_strictly_and_compute_the_same(overlay, major, with_overlay, shipped, tmp_path, found):
    there = with_overlay(
        overlay, "exported_models.py", tmp_path, shipped["two-room-tiny-lewm"], shipped["two-room-tiny"]
    )
    assert there["transformers"].startswith(f"{major}.")
    versions = ("stable-worldmodel", f"transformers {there['transformers']}")
    for case in ("D = W", "D < W", "imported again"):
        largest = max(there[case].values())
        assert largest < 1e-5, (case, there[case])
        found(f"`export-lewm`, {case}, in `load_pretrained`", versions, f"relative difference {largest:.1e}")
    largest = max(there[case]["costs"] for case in ("ALeWM, modal", "ALeWM, 16"))
    assert largest < 1e-6, there
    assert there["action scaler"]
    outcome = f"costs to {largest:.1e}, with the modal and with an imposed capacity"
    found("`export-lewm --whole` in `load_pretrained`", versions, outcome)
