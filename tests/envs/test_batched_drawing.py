"""Frames drawn in batches are MuJoCo's but for a few pixels; what cannot be drawn is refused; files say who drew."""

import numpy as np
import pytest

from alewm.data.action_statistics import ActionStatistics
from alewm.data.collect import collect_command, recipe_of
from alewm.data.store import EpisodeStore
from alewm.envs import cube
from alewm.envs.batched_drawing import BatchedPainter, CannotDrawError, poses_of, triangle_scene
from alewm.envs.collect_task import collect_task
from alewm.envs.cube import CubeSimulator
from alewm.envs.offscreen import OffscreenCamera, mujoco
from alewm.envs.reacher import WRIST_LIMIT, ReacherSimulator
from alewm.envs.registry import get_task
from alewm.envs.simulated import Drawing
from alewm.errors import InputError
from alewm.evaluation.held_out import drawing_of
from alewm.evaluation.settings import EvaluationSettings
from alewm.kernels.raster import CRenderer
from alewm.training.checkpoint import DataSet

BATCHED = Drawing("batched")


def difference(frames, others):
    """Mean difference in grey levels, and the share of pixels with a channel off by more than 8."""
    error = np.abs(np.asarray(frames, np.int64) - np.asarray(others, np.int64))
    return error.mean(), (error.max(-1) > 8).mean()


def reacher_worlds(generator, count):
    for _ in range(count):
        world = ReacherSimulator()
        angles = (generator.uniform(-np.pi, np.pi), generator.uniform(-WRIST_LIMIT, WRIST_LIMIT))
        world.load({"qpos": np.array(angles), "qvel": np.zeros(2)})
        yield world


def cube_worlds(generator, count):
    for _ in range(count):
        world = CubeSimulator()
        row = cube.sample_start(generator)
        row["qpos"][:6] += generator.normal(0, 0.15, 6)
        world.load(row)
        for _ in range(3):
            world.advance(generator.uniform(-1, 1, 5), None)
        yield world


@pytest.mark.parametrize(
    ("simulator", "worlds", "count", "most_mean", "most_share"),
    [
        (ReacherSimulator, reacher_worlds, 6, 0.005, 2e-4),
        (CubeSimulator, cube_worlds, 3, 0.03, 5e-4),
    ],
)
def test_frames_are_those_of_mujoco(simulator, worlds, count, most_mean, most_share):
    painter = simulator.painter(BATCHED)
    assert isinstance(painter, BatchedPainter), "C or Triton must work where tests run"
    own, looks = [], []
    for world in worlds(np.random.default_rng(0), count):
        own.append(world.draw())
        looks.append(painter.look(world))
    mean, share = difference(painter.paint(looks), own)
    assert mean < most_mean
    assert share < most_share
    without = difference(np.broadcast_to(painter.scene.lit[::-1], np.shape(own)), own)
    assert without[0] > 50 * mean, "most of what moves is drawn"


SCENE = """
<mujoco>
  <visual><headlight ambient=".2 .2 .2" diffuse=".4 .4 .4" specular=".3 .3 .3"/>{visual}</visual>
  <asset>
    <texture name="grid" type="2d" builtin="checker" rgb1=".2 .3 .4" rgb2=".3 .4 .5" width="64" height="64"/>
    <material name="floor" texture="grid" texrepeat="4 4" reflectance="{reflectance}"/>
    <material name="shiny" specular=".9" shininess=".9" rgba=".8 .3 .2 1"/>
    <mesh name="wedge" vertex="0 0 0  .2 0 0  0 .2 0  0 0 .2  .1 .1 .15"/>
    {assets}
  </asset>
  <worldbody>
    <light pos="0 .2 2" dir="0 -.1 -1" cutoff="40" exponent="3" castshadow="true"/>
    <light directional="true" dir=".3 .3 -1" diffuse=".2 .2 .2" castshadow="false"/>
    {lights}
    <camera name="eye" pos="0 -1.2 1.1" xyaxes="1 0 0 0 .7 1" fovy="45" {camera}/>
    <geom name="floor" type="plane" size="1 1 .1" material="floor"/>
    <geom name="post" type="cylinder" size=".05 .2" pos="-.3 .3 .2" rgba=".2 .7 .3 1"/>
    <body pos="0 0 .3">
      <freejoint/>
      <geom name="ball" type="sphere" size=".1" material="shiny"/>
      <geom name="egg" type="ellipsoid" size=".1 .05 .07" pos=".25 0 0" euler="20 30 40" rgba=".9 .9 .2 1"/>
      <geom name="rod" type="capsule" size=".04 .15" pos="-.25 0 0" euler="70 0 20" material="shiny"/>
      <geom name="die" type="box" size=".06 .08 .05" pos="0 .25 0" euler="10 20 30" rgba=".3 .3 .9 1"/>
      <geom name="wedge" type="mesh" mesh="wedge" pos="0 -.25 0" rgba=".7 .7 .7 1"/>
      {geoms}
    </body>
    {bodies}
  </worldbody>
</mujoco>
"""


def camera_of(**parts):
    blank = dict.fromkeys(("visual", "assets", "lights", "camera", "geoms", "bodies"), "") | {"reflectance": "0"}
    return OffscreenCamera(mujoco.MjModel.from_xml_string(SCENE.format(**(blank | parts))), "eye", 96)


@pytest.mark.parametrize("reflectance", ["0", "0.3"])
def test_a_scene_of_all_shapes_is_drawn_as_by_mujoco(reflectance):
    camera = camera_of(reflectance=reflectance)
    scene, geoms = triangle_scene(camera)
    data, generator = mujoco.MjData(camera.model), np.random.default_rng(1)
    own, poses = [], []
    for _ in range(4):
        data.qpos[:3] = generator.uniform((-0.2, -0.2, 0.25), (0.2, 0.3, 0.5))
        data.qpos[3:] = generator.normal(size=4)
        mujoco.mj_forward(camera.model, data)
        own.append(camera(data))
        poses.append(poses_of(data, geoms))
    camera.close()
    mean, share = difference(CRenderer(scene).draw(np.stack(poses)), own)
    assert mean < 0.2
    assert share < 0.01


@pytest.mark.parametrize(
    ("parts", "named"),
    [
        ({"geoms": '<geom name="glass" type="sphere" size=".1" rgba="1 1 1 .5"/>'}, "'glass', which is transparent"),
        (
            {
                "assets": '<material name="tiled" texture="grid"/>',
                "geoms": '<geom name="tile" type="box" size=".1 .1 .1" material="tiled"/>',
            },
            "'tile', which has a texture",
        ),
        ({"lights": '<light name="sun" pos="0 0 2" castshadow="true"/>'}, "2 lights that cast shadows"),
        ({"geoms": '<site name="mark" size=".1"/>'}, "the site 'mark'"),
        ({"visual": '<quality offsamples="0"/>'}, "0 samples per pixel"),
        (
            {"bodies": '<body mocap="true"><geom name="lid" type="plane" size="1 1 1" pos="0 0 -.1"/></body>'},
            "'lid', which moves",
        ),
        ({"bodies": '<geom name="roof" type="plane" size="1 1 1" pos="0 0 3"/>'}, "'roof', which is seen from behind"),
        ({"camera": 'mode="targetbody" target="world"'}, "a camera that moves"),
        ({"camera": 'projection="orthographic"'}, "an orthographic camera"),
        (
            {
                "assets": '<material name="lamp" emission=".5"/>',
                "geoms": '<geom name="bulb" size=".1" material="lamp"/>',
            },
            "'bulb', which glows",
        ),
        (
            {
                "assets": '<material name="chrome" reflectance=".5"/>',
                "geoms": '<geom name="dish" type="box" size=".1 .1 .1" material="chrome"/>',
            },
            "'dish', which mirrors",
        ),
    ],
)
def test_a_feature_that_cannot_be_drawn_is_refused_by_its_name(parts, named):
    with pytest.raises(CannotDrawError, match=named):
        triangle_scene(camera_of(**parts))


def test_fog_is_refused():
    camera = camera_of()
    camera.scene.flags[mujoco.mjtRndFlag.mjRND_FOG.value] = 1
    with pytest.raises(CannotDrawError, match="fog"):
        triangle_scene(camera)


def test_building_a_scene_leaves_the_model_as_it_was():
    model = ReacherSimulator.camera(0).model
    before = model.geom_group.copy(), model.light_active.copy(), model.vis.quality.shadowsize
    triangle_scene(ReacherSimulator.camera(0))
    assert (before[0] == model.geom_group).all()
    assert (before[1] == model.light_active).all()
    assert before[2] == model.vis.quality.shadowsize


def recorded(path, **options):
    collect_task("reacher", path, num_episodes=1, seed=3, max_steps=3, image_size=56, jobs=1, **options)
    with EpisodeStore.open(path) as store:
        return store.attributes, store.frames(np.arange(store.num_rows)), store.column("qpos")[:]


def test_a_file_says_who_drew_it_and_a_model_follows(tmp_path):
    attributes, frames, states = recorded(tmp_path / "b.h5", drawing="batched")
    assert (attributes["drawing"], attributes["shadow_size"]) == ("batched", 2048)
    assert "--drawing batched --shadow-size 2048" in collect_command(attributes, "b.h5")
    others, by_mujoco, same_states = recorded(tmp_path / "m.h5", drawing="mujoco")
    assert others["drawing"] == "mujoco"
    assert "shadow_size" not in others
    np.testing.assert_array_equal(states, same_states)
    mean, _ = difference(frames, by_mujoco)
    assert mean < 0.01
    assert Drawing.of(attributes) == Drawing("batched", 2048)
    assert Drawing.of({}) == Drawing("mujoco", 0), "files from before mean MuJoCo"
    envs = get_task("reacher").make_vector_env(1, image_size=56, drawing=Drawing.of(attributes))
    rows = {"qpos": states[:1], "qvel": np.zeros((1, 2))}
    envs.reset_to(rows, rows)
    np.testing.assert_array_equal(envs.render()[0], frames[0])


def learned(data):
    return DataSet("reacher", ActionStatistics((0.0, 0.0), (1.0, 1.0)), data, "splits.json")


def test_evaluation_draws_as_the_model_was_trained(tmp_path):
    recorded(tmp_path / "b.h5", drawing="batched")
    with EpisodeStore.open(tmp_path / "b.h5") as store:
        of_checkpoint = recipe_of(store)
    task, usual = get_task("reacher"), EvaluationSettings()
    assert drawing_of(task, learned(of_checkpoint), usual) == Drawing("batched", 2048)
    assert drawing_of(task, learned({"fingerprint": "old"}), usual) == Drawing("mujoco", 0)
    assert drawing_of(task, learned(of_checkpoint), EvaluationSettings(drawing="mujoco")) == Drawing("mujoco", 0)
    assert drawing_of(get_task("two-room"), learned({}), usual) is None
    with pytest.raises(InputError, match="one way to draw"):
        drawing_of(get_task("two-room"), learned({}), EvaluationSettings(drawing="batched"))
    assert "drawing" not in usual.identity(), "results from before keep their settings"


def test_auto_goes_on_as_a_file_was_begun(tmp_path):
    _, first, _ = recorded(tmp_path / "m.h5", drawing="mujoco")
    attributes, again, _ = recorded(tmp_path / "m.h5", drawing="auto")
    assert attributes["drawing"] == "mujoco"
    np.testing.assert_array_equal(first, again)
    with pytest.raises(InputError, match="drawing 'mujoco' instead of 'batched'"):
        recorded(tmp_path / "m.h5", drawing="batched")


def test_a_smaller_shadow_map_is_drawn_by_both(tmp_path):
    attributes, frames, _ = recorded(tmp_path / "b.h5", drawing="batched", shadow_size=128)
    others, by_mujoco, _ = recorded(tmp_path / "m.h5", drawing="mujoco", shadow_size=128)
    assert attributes["shadow_size"] == others["shadow_size"] == 128
    mean, _ = difference(frames, by_mujoco)
    assert mean < 0.02
    _, fine, _ = recorded(tmp_path / "f.h5", drawing="mujoco")
    assert difference(fine, by_mujoco)[0] > 2 * mean, "the size matters, and both follow it"


@pytest.mark.parametrize(
    ("task", "options", "words"),
    [
        ("two-room", {"drawing": "batched"}, "one way to draw"),
        ("two-room", {"shadow_size": 64}, "one way to draw"),
        ("reacher", {"shadow_size": 5}, "from 16 to"),
    ],
)
def test_choices_that_mean_nothing_are_refused(task, options, words, tmp_path):
    with pytest.raises(InputError, match=words):
        collect_task(task, tmp_path / "x.h5", num_episodes=1, seed=0, **options)


@pytest.mark.parametrize("attributes", [{"drawing": "by hand"}, {"shadow_size": -1}, {"shadow_size": "large"}])
def test_nonsense_in_a_file_is_refused(attributes):
    with pytest.raises(InputError, match="Frames are drawn by"):
        Drawing.of(attributes)


def test_mujoco_draws_where_batches_cannot(monkeypatch, capsys):
    monkeypatch.setattr("alewm.envs.batched_drawing.raster.why_no_c_renderer", lambda: "no C compiler was found")
    painter = ReacherSimulator.painter(Drawing("batched", 2048))
    world = ReacherSimulator()
    np.testing.assert_array_equal(painter.paint([painter.look(world)])[0], world.draw())
    assert "no C compiler was found" in capsys.readouterr().err
    with pytest.raises(InputError, match="no C compiler was found"):
        get_task("reacher").resolve_drawing("batched")
    assert get_task("reacher").resolve_drawing("auto") == Drawing("mujoco", 0)
