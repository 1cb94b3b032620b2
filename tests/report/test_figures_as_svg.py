"""A figure is one small file that a light and a dark page show each in its colours."""

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alewm.theme import DARK, LIGHT, as_svg, new_axes, simplified


def drawing(theme):
    figure, axes = new_axes()
    for index in range(len(theme.palette)):
        axes.plot([0, 1, 2], [index, 0.123456789, index], "o-", color=theme.color(index), label=f"run {index}")
    axes.fill_between([0, 1], [1, 2], color=theme.muted, alpha=0.5)
    axes.set_ylabel("a < b")
    axes.legend()
    return figure


@pytest.fixture(scope="module")
def svg():
    return as_svg(drawing).decode()


def test_every_colour_of_a_light_page_has_its_dark_one(svg):
    """Class by class: on a dark page the same declarations hold with the dark theme's colours."""
    light_rules, dark_rules = re.search(
        r"\n(\.s0.*?)@media \(prefers-color-scheme: dark\) {(.*?)\n}\n", svg, re.S
    ).groups()
    light, dark = (dict(re.findall(r"\.(s\d+){(.*?)}", rules)) for rules in (light_rules, dark_rules))
    dark_colours = (DARK.text, DARK.muted, DARK.grid, *DARK.palette)
    twins = dict(zip((LIGHT.text, LIGHT.muted, LIGHT.grid, *LIGHT.palette), dark_colours, strict=True))
    used = set()
    for name, style in light.items():
        colours = re.findall(r"(fill|stroke): (#\w{6})", style)
        used |= {colour for _, colour in colours}
        assert re.findall(r"(fill|stroke): (#\w{6})", dark.get(name, "")) == [
            (k, twins[colour]) for k, colour in colours
        ]
    assert used == twins.keys()
    body = svg.partition("</style>")[2]
    assert "#" not in re.sub(r'(?:url\(#|href="#)', "", body), "every colour is in a class"


def test_it_is_a_drawing_with_its_text(svg):
    root = ElementTree.fromstring(svg)
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"a < b", "run 0", "run 5"} <= set(texts)
    referred = set(re.findall(r'(?:url\(#|href="#)([^")]+)', svg))
    assert referred == {element.get("id") for element in root.iter() if element.get("id")}
    for path in root.iter("{http://www.w3.org/2000/svg}path"):
        assert re.fullmatch(r"([MLQCz](-?\d+(\.\d+)?( |(?=[A-Za-z])|$))*)+", path.get("d")), path.get("d")
        assert not re.search(r"\.\d{3}", path.get("d"))


def test_equal_figures_are_equal_files(svg):
    assert as_svg(drawing).decode() == svg


CURVES = st.lists(st.floats(-1, 1), min_size=2, max_size=40)


@given(CURVES, st.sampled_from([0.0, 0.01, 0.3]))
def test_a_simplified_curve_stays_near_every_point(values, tolerance):
    steps = [float(50 * i) for i in range(len(values))]
    kept = dict(zip(*simplified((steps, values), tolerance), strict=True))
    assert {0.0, steps[-1]} <= kept.keys() <= set(steps)
    for step, value in zip(steps, values, strict=True):
        left, right = max(s for s in kept if s <= step), min(s for s in kept if s >= step)
        share = 0.0 if left == right else (step - left) / (right - left)
        assert abs(kept[left] + share * (kept[right] - kept[left]) - value) <= tolerance + 1e-9


def test_a_straight_line_keeps_its_ends():
    steps = [float(i) for i in range(100)]
    assert simplified((steps, [2 * step for step in steps]), 1e-9) == ([0.0, 99.0], [0.0, 198.0])
    assert simplified(([1.0], [2.0]), 0.1) == ([1.0], [2.0])
