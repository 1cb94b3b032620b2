"""Recordings become episodes row by row, whatever they were recorded in, and bad ones are named."""

import json
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from alewm.data.conversion.convert import convert, open_source
from alewm.data.conversion.frames import FrameSize
from alewm.data.conversion.lerobot import LeRobotEpisodes
from alewm.data.conversion.recordings import Recordings
from alewm.data.store import EpisodeStore
from alewm.errors import InputError
from small_recordings import (
    CAMERA,
    SIZE,
    actions,
    frames,
    table_of,
    write_images,
    write_lerobot_v2,
    write_lerobot_v3,
    write_parquet,
    write_recordings,
    write_video,
)

LENGTHS = [5, 12, 7]


def converted(folder, out, **options):
    convert(open_source(folder), out, jobs=1, **options)
    return EpisodeStore.open(out)


def assert_holds_the_tapes(store, *, last_action_is_known):
    assert store.lengths.tolist() == LENGTHS
    for i, length in enumerate(LENGTHS):
        episode = store.episode(i)
        np.testing.assert_allclose(episode["pixels"].astype(int), frames(i, length), atol=8)  # videos lose a little
        expected = actions(i, length)
        if not last_action_is_known:
            expected[-1] = np.nan
        np.testing.assert_array_equal(episode["action"], expected)


@pytest.mark.parametrize("write", [write_lerobot_v2, write_lerobot_v3])
def test_a_lerobot_data_set_is_stored_row_by_row(tmp_path, write):
    with converted(write(tmp_path / "set", LENGTHS), tmp_path / "out.h5", task="grasp") as store:
        assert_holds_the_tapes(store, last_action_is_known=True)
        assert set(store.column_names) == {"pixels", "action", "observation.state", "timestamp", "next.done"}
        np.testing.assert_array_equal(store.episode(2)["observation.state"], actions(2, 7) / 2)
        assert store.attributes["fps"] == 10
        assert store.attributes["task"] == "grasp"
        assert store.attributes["source"]["camera"] == CAMERA


def test_images_inside_tables_are_stored_exactly(tmp_path):
    with converted(write_lerobot_v2(tmp_path / "set", LENGTHS, as_images=True), tmp_path / "out.h5") as store:
        assert (store.episode(1)["pixels"] == frames(1, 12)).all()


def test_videos_with_a_table_each_lack_the_last_action(tmp_path):
    with converted(write_recordings(tmp_path / "set", LENGTHS), tmp_path / "out.h5") as store:
        assert_holds_the_tapes(store, last_action_is_known=False)
        assert store.episode(1)["speed"][:-1].tolist() == [1.0] * 11
        assert store.attributes["fps"] == 10


def test_image_folders_with_one_table_for_all_are_stored_exactly_and_in_natural_order(tmp_path):
    lines = ["episode,frame,action_x,action_y,note"]
    for i, length in enumerate(LENGTHS):
        write_images(tmp_path / "set" / f"e{i}", frames(i, length))
        lines += [f"e{i},{t},{x:g},{y:g},fine" for t, (x, y) in enumerate(actions(i, length))]
    (tmp_path / "set/actions.csv").write_text("\n".join(lines))
    with converted(tmp_path / "set", tmp_path / "out.h5") as store:
        assert_holds_the_tapes(store, last_action_is_known=True)
        assert all((store.episode(i)["pixels"] == frames(i, n)).all() for i, n in enumerate(LENGTHS))
        assert store.column_names == ("action", "pixels"), "words cannot be stored"
        assert "fps" not in store.attributes


def test_a_column_without_a_name_is_no_column(tmp_path):
    write_images(tmp_path / "set/a", frames(0, 3))
    (tmp_path / "set/a.csv").write_text(",action_x,action_y,\n0,1,2,\n1,3,4,\n")  # a counter first, a comma too many
    with converted(tmp_path / "set", tmp_path / "out.h5") as store:
        assert store.column_names == ("action", "pixels")
        assert store.actions[:2].tolist() == [[1, 2], [3, 4]]


def test_a_parquet_table_may_hold_all_actions_in_one_column(tmp_path):
    write_images(tmp_path / "set/a", frames(0, 4))
    table = pa.table({"episode": ["a"] * 4, "action": actions(0, 4).tolist(), "reward": [1, 2, 3, 4]})
    write_parquet(tmp_path / "set/actions.parquet", table)
    (episode,) = Recordings(tmp_path / "set")(0, [0])
    np.testing.assert_array_equal(episode["action"], actions(0, 4))
    assert episode["reward"].tolist() == [1, 2, 3, 4]


def test_frames_are_averaged_whole_or_cut_to_the_middle():
    picture = np.zeros((4, 8, 3), np.uint8)
    picture[:, 2:6] = 200
    assert (FrameSize(2, "crop").apply(picture, "here") == 200).all()
    assert (FrameSize(2, "squash").apply(picture, "here") == 100).all()
    assert FrameSize(None).apply(picture, "here") is picture
    with pytest.raises(InputError, match=r"here: frames of 4 x 8 .* Choose --image-size from 1 to 4"):
        FrameSize(5).apply(picture, "here")


def test_an_interrupted_conversion_ends_in_the_same_bytes(tmp_path):
    source = write_recordings(tmp_path / "set", LENGTHS)
    whole, out = tmp_path / "whole.h5", source / "out.h5"  # even among what it is made from
    convert(open_source(source), whole, jobs=1)
    identity = open_source(source).identity()
    (source / "take2.csv").rename(source / "take3.csv")  # gone for a while, as on a disk that comes and goes

    class Unchanged(Recordings):
        def identity(self):
            return identity

    with pytest.raises(InputError, match="episode 'take2' has no actions"):
        convert(Unchanged(source), out, jobs=1)
    (source / "take3.csv").rename(source / "take2.csv")
    made, _ = convert(open_source(source), out, jobs=1)
    assert made.num_new_frames == LENGTHS[-1], "finished episodes are kept"
    assert out.read_bytes() == whole.read_bytes()
    again, _ = convert(open_source(source), out, jobs=1)
    assert again.num_new_frames == 0


def test_changed_recordings_and_other_settings_are_refused(tmp_path):
    source, out = write_recordings(tmp_path / "set", [4, 4, 4]), tmp_path / "out.h5"
    convert(open_source(source), out, jobs=1)
    with pytest.raises(InputError, match=r"exists already, with image_size None instead of 16"):
        convert(open_source(source, size=FrameSize(16)), out, jobs=1)
    write_video(source / "take1.mp4", frames(1, 9))
    with pytest.raises(InputError, match=r"exists already, with source"):
        convert(open_source(source), out, jobs=1)


def change(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def swap_rows(path):
    table = pq.read_table(path)
    pq.write_table(table.take([1, 0, 2, 3]), path)


def lose_an_action(path):
    table = pq.read_table(path)
    column = pa.array([[0.0, 1.0], [2.0, None], [0.0, 0.0], [0.0, 0.0]], pa.list_(pa.float32()))
    pq.write_table(table.set_column(table.column_names.index("action"), "action", column), path)


EPISODE_1 = "data/chunk-000/episode_000001.parquet"
VIDEO_1 = f"videos/chunk-000/{CAMERA}/episode_000001.mp4"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda s: (s / VIDEO_1).unlink(), r"episode_000001\.mp4 does not exist"),
        (lambda s: (s / VIDEO_1).write_bytes(b"no film"), r"episode_000001\.mp4: not a video"),
        (lambda s: write_video(s / VIDEO_1, frames(1, 3)), r"episode_000001\.mp4, episode 1: 3 frames for 4 rows"),
        (lambda s: (s / EPISODE_1).write_bytes(b"no table"), r"episode_000001\.parquet: not a Parquet file"),
        (lambda s: (s / EPISODE_1).unlink(), r"episode_000001\.parquet does not exist"),
        (lambda s: swap_rows(s / EPISODE_1), r"episode 1, row 0: frame_index 1 instead of 0"),
        (lambda s: lose_an_action(s / EPISODE_1), r"episode 1, row 1: the action is \[2.0, nan\]"),
        (lambda s: write_parquet(s / EPISODE_1, table_of(1, 6)), r"episode 1: 6 rows, but meta/ says 4"),
        (lambda s: change(s / "meta/info.json", "v2.1", "v1.6"), r"info\.json: version 'v1\.6'; 2\.x and 3\.x"),
        (lambda s: change(s / "meta/info.json", '"fps"', '"hz"'), r"info\.json lacks fps"),
        (lambda s: change(s / "meta/info.json", '"fps": 10', '"fps": 0'), r"info\.json: 'fps' is 0; a positive number"),
        (lambda s: change(s / "meta/info.json", '"dtype"', '"kind"'), r"'features' must name the dtype of every"),
        (lambda s: (s / "meta/episodes.jsonl").write_text(""), r"holds no episode: meta/episodes\.jsonl names none"),
        (lambda s: change(s / "meta/info.json", '"video"', '"sound"'), r"no feature is a video or an image"),
        (lambda s: (s / "meta/info.json").write_text("{"), r"info\.json is not JSON"),
        (lambda s: (s / "meta/episodes.jsonl").unlink(), r"episodes\.jsonl does not exist"),
        (lambda s: (s / "meta/episodes.jsonl").write_text('{"a": 1}\n'), r"episodes\.jsonl, line 1: an object with"),
        (lambda s: change(s / "meta/info.json", "{episode_chunk", "{chunk"), r"the path .* cannot be filled in"),
    ],
)
def test_a_damaged_data_set_is_named_by_file_episode_and_row(tmp_path, damage, message):
    source = write_lerobot_v2(tmp_path / "set", [4, 4])
    damage(source)
    with pytest.raises(InputError, match=message):
        list(LeRobotEpisodes(source)(0, [0, 1]))


def test_a_gap_in_a_video_of_several_episodes_is_found(tmp_path):
    source = write_lerobot_v3(tmp_path / "set", [4, 4])
    write_video(source / f"videos/{CAMERA}/chunk-000/file-000.mp4", frames(0, 4), fps=5)
    with pytest.raises(InputError, match=r"frame 1 of the episode was expected at 0\.100 s \(10 fps\), .* at 0\.200 s"):
        list(LeRobotEpisodes(source)(0, [0]))


def test_a_camera_must_be_chosen_among_several(tmp_path):
    source = write_lerobot_v2(tmp_path / "set", [4])
    info = json.loads((source / "meta/info.json").read_text())
    info["features"]["observation.images.hand"] = info["features"][CAMERA]
    (source / "meta/info.json").write_text(json.dumps(info))
    with pytest.raises(InputError, match=rf"several cameras; choose one with --camera: {CAMERA}, observation"):
        open_source(source).num_episodes  # noqa: B018
    with pytest.raises(InputError, match=r"Did you mean 'observation.images.hand'"):
        open_source(source, camera="observation.image.hand").num_episodes  # noqa: B018
    assert open_source(source, camera=CAMERA).num_episodes == 1


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda s: (s / "take1.csv").unlink(), r"episode 'take1' has no actions. Expected take1\.csv"),
        (
            lambda s: change(s / "take1.csv", "101,", "fast,"),
            r"take1\.csv, line 3, column 'action_x': a number .* 'fast'",
        ),
        (
            lambda s: change(s / "take1.csv", "101,", "nan,"),
            r"take1\.csv, line 3, episode 'take1': the action is \[nan",
        ),
        (lambda s: change(s / "take1.csv", "101,", "101,7,"), r"take1\.csv, line 3: 4 values under 3 names"),
        (lambda s: change(s / "take1.csv", "speed", "action_x"), r"a header with distinct names"),
        (lambda s: change(s / "take1.csv", "speed", "frame"), r"take1\.csv, line 2, column 'frame': 1 instead of 0"),
        (
            lambda s: write_video(s / "take1.mp4", frames(1, 9)),
            r"episode 'take1': 3 rows, but .*take1.mp4 has 9 frames",
        ),
        (
            lambda s: write_images(s / "take1", frames(1, 2)),
            r"'take1' is there twice",
        ),
        (lambda s: (s / "take1.csv").write_bytes(b"\xff\xfe\x00"), r"take1\.csv is not text"),
    ],
)
def test_damaged_recordings_are_named_by_file_episode_and_row(tmp_path, damage, message):
    source = write_recordings(tmp_path / "set", [4, 4])
    damage(source)
    with pytest.raises(InputError, match=message):
        list(Recordings(source)(0, [0, 1]))


def test_a_common_table_must_name_every_episode_in_one_run(tmp_path):
    for name in "ab":
        write_images(tmp_path / "set" / name, frames(0, 2))
    table = tmp_path / "set/actions.csv"
    for rows, message in (
        ("episode,action\na,1\na,1\n", r"actions\.csv has no rows for episode 'b'"),
        ("episode,action\na,1\nb,1\na,1\nb,1\n", r"actions\.csv, line 3: episode 'a' is interrupted"),
        ("name,action\na,1\n", r"expected a column 'episode' with the names, found name, action"),
    ):
        table.write_text(rows)
        with pytest.raises(InputError, match=message):
            list(Recordings(tmp_path / "set")(0, [0, 1]))


def test_frames_of_several_sizes_need_one(tmp_path):
    write_images(tmp_path / "set/a", frames(0, 3))
    Image.new("RGB", (20, 40)).save(tmp_path / "set/a/frame1.png")
    (tmp_path / "set/a.csv").write_text("action\n1\n2\n")
    with pytest.raises(InputError, match=r"set/a: frame 1 has 40 x 20 pixels, the first 32 x 48. Give --image-size"):
        list(Recordings(tmp_path / "set")(0, [0]))
    (episode,) = Recordings(tmp_path / "set", FrameSize(8))(0, [0])
    assert episode["pixels"].shape == (3, 8, 8, 3)


def test_an_unreadable_image_is_named(tmp_path):
    write_images(tmp_path / "set/a", frames(0, 3))
    (tmp_path / "set/a/frame1.png").write_bytes(b"")
    (tmp_path / "set/a.csv").write_text("action\n1\n2\n")
    with pytest.raises(InputError, match=r"frame1\.png: not an image that can be read \(no known format\)\. Replace"):
        list(Recordings(tmp_path / "set")(0, [0]))


@pytest.mark.parametrize("dtype", [np.uint16, np.int32, np.float32])
def test_an_image_of_more_than_eight_bits_is_refused_and_not_made_white(tmp_path, dtype):
    write_images(tmp_path / "set/a", frames(0, 3))
    Image.fromarray(np.full(SIZE, 1000, dtype)).save(tmp_path / "set/a/frame1.png", "tiff")  # whatever its name says
    (tmp_path / "set/a.csv").write_text("action\n1\n2\n")
    with pytest.raises(InputError, match=r"frame1\.png: one channel of more than 8 bits .* Scale all images to 8 bits"):
        list(Recordings(tmp_path / "set")(0, [0]))


@pytest.mark.parametrize("bad", ["a", "b"])
def test_a_replaced_image_is_converted_by_doing_what_was_said(tmp_path, bad):
    for name in "ab":
        write_images(tmp_path / "set" / name, frames(0, 3))
        (tmp_path / f"set/{name}.csv").write_text("action\n1\n2\n")
    image, journal = tmp_path / "set" / bad / "frame1.png", tmp_path / "out.h5.journal"
    whole = image.read_bytes()
    image.write_bytes(b"no picture")
    with pytest.raises(InputError, match=r"Replace it and repeat the command") as refused:
        convert(open_source(tmp_path / "set"), tmp_path / "out.h5", jobs=1)
    image.write_bytes(whole)
    if bad == "b":  # an episode of the recordings as they were is finished
        kept = f"are kept in {journal} and the .partial file beside it. If you change the recordings or a setting"
        assert f"{kept}, delete both" in str(refused.value)
        journal.unlink()
        (tmp_path / "out.h5.partial").unlink()
    with converted(tmp_path / "set", tmp_path / "out.h5") as store:
        assert store.lengths.tolist() == [3, 3]


def test_folders_without_episodes_and_missing_packages_are_named(tmp_path, monkeypatch):
    (tmp_path / "notes.txt").touch()
    with pytest.raises(InputError, match=r"holds no episode: expected videos .* found notes\.txt"):
        convert(open_source(tmp_path), tmp_path / "out.h5")
    with pytest.raises(InputError, match="is no folder"):
        open_source(tmp_path / "absent")
    with pytest.raises(InputError, match="--camera chooses among the cameras of a data set"):
        open_source(tmp_path, camera="top")
    write_video(tmp_path / "a.mp4", frames(0, 2))
    monkeypatch.setitem(sys.modules, "av", None)  # as if it were not installed
    with pytest.raises(InputError, match=r"needs the package 'av'.*Install it: pip install 'av>=13'"):
        list(Recordings(tmp_path)(0, [0]))
    assert not (tmp_path / "out.h5.journal").exists()
