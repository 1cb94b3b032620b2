"""Push-T's picture against pygame's own fills, drawn from the description of the published one."""

import math
import os

import cv2
import numpy as np
import pytest

os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
os.environ.setdefault("SDL_VIDEODRIVER", "dummy")

import pygame
import pymunk

from alewm.envs.push_t import render
from alewm.envs.push_t.env import sample_state
from alewm.envs.push_t.physics import AT_REST, PushTWorld
from alewm.envs.push_t.render import PushTRenderer

REST = np.array(AT_REST)


def fat_segment(surface, colour, first, second):
    pygame.draw.lines(surface, colour, False, [first, second], 4)
    way = abs(second[0] - first[0]), abs(second[1] - first[1])
    x, y = (round(2 * part / math.hypot(*way)) for part in reversed(way))
    ends = [(first[0] - x, first[1] - y), (first[0] + x, first[1] + y)]
    ends += [(second[0] + x, second[1] + y), (second[0] - x, second[1] - y)]
    pygame.draw.polygon(surface, colour, ends)
    for point in (first, second):
        pygame.draw.circle(surface, colour, point, 2)


def outline(points):
    return zip(points, points[1:] + points[:1], strict=True)


def drawn_by_pygame(state, contacts) -> np.ndarray:
    """The canvas of 512 pixels."""

    def rectangles(x, y, angle):
        cosine, sine = math.cos(angle), math.sin(angle)
        for corners in (((-60, 0), (60, 0), (60, 30), (-60, 30)), ((-15, 30), (15, 30), (15, 120), (-15, 120))):
            yield [(round(x + cosine * u - sine * v), round(y + sine * u + cosine * v)) for u, v in corners]

    surface = pygame.Surface((512, 512))
    surface.fill((255, 255, 255))
    for points in rectangles(256, 256, math.pi / 4):
        pygame.draw.polygon(surface, (144, 238, 144), points)
    for points in rectangles(*state[2:5]):
        pygame.draw.polygon(surface, (143, 163, 184), points)
        for first, second in outline(points):
            fat_segment(surface, (119, 136, 153), first, second)
    place = round(state[0]), round(state[1])
    pygame.draw.circle(surface, (65, 105, 225), place, 15)
    pygame.draw.circle(surface, (78, 126, 255), place, 11)
    for first, second in outline([(5, 5), (506, 5), (506, 506), (5, 506)]):
        fat_segment(surface, (211, 211, 211), first, second)
    for contact in contacts:
        reach = 2 * np.array(contact.normal)
        ends = np.array(contact.first) - reach, np.array(contact.second) + reach
        pygame.draw.aalines(surface, (231, 76, 60), False, [(round(x), round(y)) for x, y in ends])
    return pygame.surfarray.array3d(surface).swapaxes(0, 1)


def touched_worlds(num: int) -> list[PushTWorld]:
    """Worlds of all kinds, many with contacts."""
    generator = np.random.default_rng(0)
    worlds = []
    for _ in range(num):
        state = sample_state(generator)
        state[:2] = state[2:4] + generator.uniform(-80, 80, 2)
        worlds.append(PushTWorld(state))
        for _ in range(2):
            worlds[-1].step(*generator.uniform(-0.3, 0.3, 2))
    return worlds


def test_the_picture_is_pygames_within_half_a_level():
    draw, errors = PushTRenderer(), []
    worlds = touched_worlds(60)
    assert sum(bool(world.contacts()) for world in worlds) > 15
    for world in worlds:
        expected = cv2.resize(drawn_by_pygame(world.state(), world.contacts()), (224, 224))
        errors.append(np.abs(draw(world.state(), world.contacts()).astype(int) - expected).mean())
    assert max(errors) < 0.5
    assert np.mean(errors) < 0.15


def test_drawing_only_what_changes_is_drawing_everything():
    draw = PushTRenderer()
    near_the_edge = [
        np.array([x, y, 256.0, 256.0, 1.0, 0, 0]) for x, y in ((3, 9), (505, 200), (-300, 256), (520, 530))
    ]
    near_the_edge += [np.array([256.0, 256.0, x, y, 2.0, 0, 0]) for x, y in ((20, 300), (480, 30), (-400, 0))]
    seen = [(state, []) for state in near_the_edge]
    seen += [(world.state(), world.contacts()) for world in touched_worlds(20)]
    for state, contacts in seen:
        image, fresh = draw(state, contacts), PushTRenderer().canvas(state, contacts)
        np.testing.assert_array_equal(image, cv2.resize(fresh, (224, 224)))


def test_every_shape_has_its_colour_and_its_place_in_the_order():
    draw = PushTRenderer()
    canvas = draw.canvas(np.array([256.0, 400.0, 120.0, 100.0, 0.0, 0, 0]))
    for (x, y), colour in {
        (400, 100): render.WHITE,
        (256, 280): render.ANCHOR,
        (120, 115): render.BLOCK_FILL,
        (120, 190): render.BLOCK_FILL,
        (60, 115): render.BLOCK_EDGE,
        (120, 220): render.BLOCK_EDGE,
        (256, 400): render.PUSHER_FILL,
        (256, 413): render.PUSHER_RIM,
        (300, 5): render.WALL,
        (505, 300): render.WALL,
    }.items():
        assert tuple(canvas[y, x]) == colour
    on_block = draw.canvas(np.array([120.0, 115.0, 120.0, 100.0, 0.0, 0, 0]))
    assert tuple(on_block[115, 120]) == render.PUSHER_FILL
    at_wall = draw.canvas(np.array([300.0, 5.0, 400.0, 8.0, 0.0, 0, 0]))
    assert tuple(at_wall[5, 300]) == tuple(at_wall[5, 400]) == render.WALL


@pytest.mark.parametrize("angle", [0.0, 1.0, 2.5, 4.0, 5.5])
def test_the_anchor_is_not_the_goal_and_never_moves(angle):
    canvas = PushTRenderer().canvas(np.array([450.0, 60.0, 420.0, 420.0, angle, 0, 0])).copy()
    expected = PushTRenderer().canvas(np.array([60.0, 60.0, 420.0, 420.0, 0.0, 0, 0]))
    np.testing.assert_array_equal(canvas[140:315, 140:315], expected[140:315, 140:315])


class ContactLines(pymunk.SpaceDebugDrawOptions):
    """The lines that pymunk's debug drawing makes of the contacts."""

    def __init__(self):
        super().__init__()
        self.flags = pymunk.SpaceDebugDrawOptions.DRAW_COLLISION_POINTS
        self.lines = []

    def draw_segment(self, a, b, color):
        self.lines.append((tuple(a), tuple(b)))


def test_contacts_are_marked_where_pymunk_marks_them():
    num_marked = 0
    for world in touched_worlds(80):
        drawn = ContactLines()
        world.space.debug_draw(drawn)
        expected = {tuple(sorted(np.round(line, 6).tolist())[0]) for line in drawn.lines}
        found = set()
        for contact in world.contacts():
            reach = render.CONTACT_REACH * np.array(contact.normal)
            line = np.array(contact.first) - reach, np.array(contact.second) + reach
            found.add(tuple(sorted(np.round(line, 6).tolist())[0]))
        assert found == expected
        num_marked += len(found)
    assert num_marked > 15


def test_a_contact_leaves_a_faint_red_speck():
    world = PushTWorld(np.array([256.0, 184.5, 256.0, 200.0, 0.0, 0, 100.0]))
    world.step(0.0, 0.1)
    contacts = world.contacts()
    assert len(contacts) == 1
    draw = PushTRenderer()
    with_mark, without = draw(world.state(), contacts).astype(int), draw(world.state()).astype(int)
    changed = (with_mark != without).any(-1)
    assert 1 <= changed.sum() <= 9
    assert (with_mark[changed] - without[changed])[:, 0].max() > 20
    whole = draw.canvas(world.state(), contacts)
    assert (whole == render.CONTACT).all(-1).sum() >= 2


def test_what_is_out_of_sight_is_not_drawn_and_does_no_harm():
    draw = PushTRenderer()
    empty = draw(np.array([-1e9, 1e30, 1e12, -1e12, 1.0, 0, 0]))
    assert not (empty == np.array(render.BLOCK_FILL)).all(-1).any()
    np.testing.assert_array_equal(draw(REST), PushTRenderer()(REST))
