"""Files as older versions wrote them, made from new ones."""

from pathlib import Path

import h5py


def remove_checksums(path: Path) -> Path:
    """The file, now without checksums and version, as if another program had made it."""
    with h5py.File(path, "r+") as file:
        for dataset in file.values():
            dataset.attrs.pop("alewm_crc32", None)
        for name in ("alewm_texts_crc32", "alewm_file_version"):
            del file.attrs[name]
    return path


def as_older_version(path: Path, version: int) -> Path:
    """The file in the layout of version 1 or 2: checksums for frames only, in a column of their own."""
    with h5py.File(path, "r+") as file:
        file.create_dataset("pixels_crc32", data=file["pixels"].attrs["alewm_crc32"], maxshape=(None,), chunks=(1000,))
    remove_checksums(path)
    with h5py.File(path, "r+") as file:
        file.attrs["alewm_file_version"] = version
        for name in ("alewm_attributes", "alewm_encoder"):
            file.attrs[name] = file.attrs[name].decode()  # a text of variable length, as these versions had
    return path
