"""Small numbers are written by their power of ten, and mean what they meant."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alewm_lab.presentation import scientific


@pytest.mark.parametrize(
    ("value", "written"), [(5e-5, "5e-5"), (2e-4, "2e-4"), (1.5e-3, "1.5e-3"), (0.1, "1e-1"), (3.0, "3e0")]
)
def test_people_write_it_so(value, written):
    assert scientific(value) == written


@given(st.floats(1e-9, 1e3))
def test_reading_it_gives_the_number_to_six_digits(value):
    assert float(scientific(value)) == pytest.approx(value, rel=1e-5)
