"""The order people expect of names with numbers in them."""

import re


def natural_order(name: str) -> list[tuple[int, str]]:
    """A key for sorting names, numbers in them by value: frame 10 comes after frame 9."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name) if part]
