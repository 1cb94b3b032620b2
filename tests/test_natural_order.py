"""Names with numbers in them, sorted as people count."""

from alewm.files import natural_order


def test_numbers_are_ordered_by_value_wherever_they_stand():
    names = ["frame-10", "frame-9", "cem-100x30", "cem-100x4", "9", "a", "10"]
    expected = ["a", "cem-100x4", "cem-100x30", "frame-9", "frame-10", "9", "10"]
    assert sorted(names, key=natural_order) == expected


def test_a_character_that_only_looks_like_a_number_is_a_letter():
    assert sorted(["²", "1"], key=natural_order) == ["²", "1"]
