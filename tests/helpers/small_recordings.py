"""Small recordings in the formats that `alewm convert` reads: every frame shows its own brightness."""

import io
import json
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

SIZE = (32, 48)  # Y, X
FPS = 10
CAMERA = "observation.images.top"


def brightness(episode: int, row: int) -> int:
    return 20 + 6 * episode + 18 * row


def frames(episode: int, length: int) -> np.ndarray:
    """Grey frames, whose brightness tells episode and row apart; videos lose a little of it."""
    values = np.array([brightness(episode, row) for row in range(length)], np.uint8)
    return np.broadcast_to(values[:, None, None, None], (length, *SIZE, 3)).copy()


def actions(episode: int, length: int) -> np.ndarray:
    rows = np.arange(length, dtype=np.float32)
    return np.stack([rows + 100 * episode, -rows], axis=1)


def write_video(path: Path, pictures: np.ndarray, fps: int = FPS, gop: int = 4) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=Fraction(fps), options={"qscale": "1"})
        stream.height, stream.width, stream.pix_fmt, stream.gop_size = *pictures.shape[1:3], "yuv420p", gop
        for picture in pictures:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())


def write_images(folder: Path, pictures: np.ndarray) -> None:
    folder.mkdir(parents=True)
    for number, picture in enumerate(pictures):
        Image.fromarray(picture).save(folder / f"frame{number}.png")  # 10 comes after 9, not after 1


def table_of(episode: int, length: int, **others) -> pa.Table:
    return pa.table(
        {
            "action": pa.array(actions(episode, length).tolist(), pa.list_(pa.float32(), 2)),
            "observation.state": pa.array((actions(episode, length) / 2).tolist(), pa.list_(pa.float32())),
            "timestamp": pa.array(np.arange(length, dtype=np.float32) / FPS),
            "frame_index": pa.array(range(length)),
            "episode_index": pa.array([episode] * length),
            "next.done": pa.array([row == length - 1 for row in range(length)]),
            **others,
        }
    )


def write_parquet(path: Path, table: pa.Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)


def _write_info(folder: Path, version: str, data_path: str, video_path: str | None, dtype: str = "video") -> None:
    features = {
        "action": {"dtype": "float32", "shape": [2]},
        CAMERA: {"dtype": dtype, "shape": [*SIZE, 3]},
    }
    info = {"codebase_version": version, "fps": FPS, "chunks_size": 2, "features": features, "data_path": data_path}
    (folder / "meta").mkdir(parents=True)
    (folder / "meta/info.json").write_text(json.dumps(info | {"video_path": video_path}))


def write_lerobot_v2(folder: Path, lengths: list[int], *, as_images: bool = False) -> Path:
    """A data set of version 2.1: one table and one video per episode, two episodes per chunk."""
    table = "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet"
    video = "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4"
    _write_info(folder, "v2.1", table, None if as_images else video, "image" if as_images else "video")
    lines = [json.dumps({"episode_index": i, "tasks": ["go"], "length": n}) for i, n in enumerate(lengths)]
    (folder / "meta/episodes.jsonl").write_text("\n".join(lines) + "\n")
    for i, length in enumerate(lengths):
        names = {"episode_chunk": i // 2, "episode_index": i, "video_key": CAMERA}
        others = {CAMERA: pa.array([_png(picture) for picture in frames(i, length)])} if as_images else {}
        write_parquet(folder / table.format(**names), table_of(i, length, **others))
        if not as_images:
            write_video(folder / video.format(**names), frames(i, length))
    return folder


def _png(picture: np.ndarray) -> dict:
    content = io.BytesIO()
    Image.fromarray(picture).save(content, "png")
    return {"bytes": content.getvalue(), "path": None}


def write_lerobot_v3(folder: Path, lengths: list[int]) -> Path:
    """A data set of version 3.0: all episodes in one table and one video."""
    _write_info(
        folder,
        "v3.0",
        "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
    )
    starts = np.cumsum([0, *lengths[:-1]]) / FPS
    count = len(lengths)
    episodes = {
        "episode_index": list(range(count)),
        "length": lengths,
        "data/chunk_index": [0] * count,
        "data/file_index": [0] * count,
        f"videos/{CAMERA}/chunk_index": [0] * count,
        f"videos/{CAMERA}/file_index": [0] * count,
        f"videos/{CAMERA}/from_timestamp": starts.tolist(),
    }
    write_parquet(folder / "meta/episodes/chunk-000/file-000.parquet", pa.table(episodes))
    everything = pa.concat_tables([table_of(i, n) for i, n in enumerate(lengths)])
    write_parquet(folder / "data/chunk-000/file-000.parquet", everything)
    pictures = np.concatenate([frames(i, n) for i, n in enumerate(lengths)])
    write_video(folder / f"videos/{CAMERA}/chunk-000/file-000.mp4", pictures)
    return folder


def write_recordings(folder: Path, lengths: list[int]) -> Path:
    """Videos with a CSV table each: a row for every frame but the last."""
    for i, length in enumerate(lengths):
        write_video(folder / f"take{i}.mp4", frames(i, length))
        rows = [f"{x:g},{y:g},{i}" for x, y in actions(i, length)[:-1]]
        (folder / f"take{i}.csv").write_text("\n".join(["action_x,action_y,speed", *rows]) + "\n")
    return folder
