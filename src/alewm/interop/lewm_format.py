"""LeWM's checkpoint format: parameter names, constructor description and files, in both directions.

Names match one to one where the latent is as wide as the predictor. Released weights carry the encoder names of
transformers 4 or 5 according to their age; both are read. Shapes say nearly everything; only the numbers of heads and
the dropout rate come from config.json. Class paths in it are never followed, and nothing in a file is executed.
"""

import hashlib
import io
import pickle
import re
import tarfile
import warnings
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from alewm.errors import InputError
from alewm.files import read_object, write_bytes, write_json
from alewm.interop.hub import CARD, here_or_fetched
from alewm.model.predictor import PredictorConfig
from alewm.model.vit import ViTConfig
from alewm.model.world_model import WorldModelConfig
from alewm.runs.folder import new_folder
from alewm.shapes import Tensor

Generation = Literal[4, 5]
"""The major version of transformers whose names an encoder carries."""


class _Name(NamedTuple):
    """One module or parameter in three spellings; `#` stands for the number of a block."""

    ours: str
    generation_4: str
    generation_5: str


def _same(ours: str, lewm: str) -> _Name:
    return _Name(ours, lewm, lewm)


def _in_encoder_block(ours: str, generation_4: str, generation_5: str) -> _Name:
    return _Name(
        f"encoder.blocks.#.{ours}", f"encoder.encoder.layer.#.{generation_4}", f"encoder.layers.#.{generation_5}"
    )


def _in_predictor_block(ours: str, lewm: str) -> _Name:
    return _same(f"predictor.blocks.#.{ours}", f"predictor.transformer.layers.#.{lewm}")


_NAMES = (
    _same("encoder.cls_token", "encoder.embeddings.cls_token"),
    _same("encoder.position", "encoder.embeddings.position_embeddings"),
    _same("encoder.patch_map", "encoder.embeddings.patch_embeddings.projection"),
    _in_encoder_block("norm_attention", "layernorm_before", "layernorm_before"),
    _in_encoder_block("attention.query", "attention.attention.query", "attention.q_proj"),
    _in_encoder_block("attention.key", "attention.attention.key", "attention.k_proj"),
    _in_encoder_block("attention.value", "attention.attention.value", "attention.v_proj"),
    _in_encoder_block("attention.output", "attention.output.dense", "attention.o_proj"),
    _in_encoder_block("norm_mlp", "layernorm_after", "layernorm_after"),
    _in_encoder_block("mlp.widen", "intermediate.dense", "mlp.fc1"),
    _in_encoder_block("mlp.narrow", "output.dense", "mlp.fc2"),
    _same("encoder.norm", "encoder.layernorm"),
    _same("predictor.position", "predictor.pos_embedding"),
    _in_predictor_block("attention.norm", "attn.norm"),
    _in_predictor_block("attention.qkv", "attn.to_qkv"),
    _in_predictor_block("attention.output", "attn.to_out.0"),
    _in_predictor_block("mlp.norm", "mlp.net.0"),
    _in_predictor_block("mlp.widen", "mlp.net.1"),
    _in_predictor_block("mlp.narrow", "mlp.net.4"),
    _in_predictor_block("modulation", "adaLN_modulation.1"),
    _same("predictor.norm", "predictor.transformer.norm"),
    _same("action_encoder.compress", "action_encoder.patch_embed"),
    _same("action_encoder.widen", "action_encoder.embed.0"),
    _same("action_encoder.narrow", "action_encoder.embed.2"),
    _same("projector.widen", "projector.net.0"),
    _same("projector.norm", "projector.net.1"),
    _same("projector.narrow", "projector.net.3"),
    _same("prediction_projector.widen", "pred_proj.net.0"),
    _same("prediction_projector.norm", "pred_proj.net.1"),
    _same("prediction_projector.narrow", "pred_proj.net.3"),
)
_LEAF = r"(\.(?:weight|bias|running_mean|running_var|num_batches_tracked))?"
_ADDED_BY_COMPILING = "_orig_mod."


def our_name(lewm_name: str) -> str:
    """Our name of the parameter or buffer that LeWM calls `lewm_name`."""
    plain = lewm_name.replace(_ADDED_BY_COMPILING, "")
    for name in _NAMES:
        for spelling in {name.generation_4, name.generation_5}:
            if found := _respelled(plain, spelling, name.ours):
                return found
    raise InputError(f"{lewm_name!r} is not the name of a LeWM parameter; is this file a LeWM state dict?")


def lewm_name(our_name: str, generation: Generation) -> str | None:
    """LeWM's name of what we call `our_name`; None for what LeWM does not have (the selector, the input map)."""
    for name in _NAMES:
        spelling = name.generation_4 if generation == 4 else name.generation_5
        if found := _respelled(our_name, name.ours, spelling):
            return found
    return None


def _respelled(name: str, pattern: str, replacement: str) -> str | None:
    match = re.fullmatch(re.escape(pattern).replace(r"\#", r"(?P<block>\d+)") + _LEAF, name)
    if match is None:
        return None
    block = match.groupdict().get("block") or ""
    return replacement.replace("#", block) + (match[match.re.groups] or "")


def from_lewm(state: Mapping[str, Tensor], ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """LeWM's tensors under our names, in the shapes of `ours` (a state dict of the model they are meant for)."""
    renamed: dict[str, Tensor] = {}
    for name, tensor in state.items():
        if our_name(name) in renamed:
            raise InputError(f"The LeWM weights hold {our_name(name)} twice, once as {name}; which one is meant?")
        renamed[our_name(name)] = tensor
    if renamed.keys() != ours.keys():
        missing, extra = sorted(ours.keys() - renamed.keys()), sorted(renamed.keys() - ours.keys())
        raise InputError(f"The LeWM weights do not fit: missing {missing[:5]}, unexpected {extra[:5]}.")
    for name, tensor in renamed.items():
        needed = ours[name].shape
        renamed[name] = tensor.flatten(1) if tensor.ndim > len(needed) >= 2 else tensor
        if renamed[name].shape != needed:
            raise InputError(
                f"{name} has shape {list(tensor.shape)} in the LeWM weights, but the model needs {list(needed)}."
            )
    return renamed


def to_lewm(state: Mapping[str, Tensor], patch_size: int, generation: Generation) -> dict[str, Tensor]:
    """Our tensors under LeWM's names and in its shapes; what LeWM does not have is left out."""
    renamed = {}
    for name, tensor in state.items():
        if (there := lewm_name(name, generation)) is None:
            continue
        if name == "encoder.patch_map.weight":
            tensor = tensor.view(-1, 3, patch_size, patch_size)
        elif name == "action_encoder.compress.weight":
            tensor = tensor[..., None]
        renamed[there] = tensor.contiguous()
    return renamed


_SIZES = {192: "tiny", 384: "small", 768: "base"}
"""Names of the encoders that are known by a name, by their width; each has 12 blocks and heads of 64."""
_HEAD_DIM = 64
_BLOCKS_OF_A_NAMED_SIZE = 12
_MODULE = "stable_worldmodel.wm.lewm.module"


def configuration_of(state: Mapping[str, Tensor], config: Mapping[str, Any]) -> WorldModelConfig:
    """Our configuration of the LeWM whose tensors (under its own names) and config.json these are."""
    shapes = {our_name(name): tuple(tensor.shape) for name, tensor in state.items()}
    encoder_says, predictor_says = _part(config, "encoder"), _part(config, "predictor")
    num_patches, width = _shape(shapes, "encoder.position", 3)[1] - 1, shapes["encoder.position"][2]
    patch_size = _patch_size(_shape(shapes, "encoder.patch_map.weight"), encoder_says)
    side = round(num_patches**0.5)
    if side * side != num_patches:
        raise InputError(f"{num_patches} patches do not form a square; only square images are supported.")
    head_dim = int(predictor_says.get("dim_head", _HEAD_DIM))
    projected = _shape(shapes, "predictor.blocks.0.attention.qkv.weight", 2)[0]
    num_heads = int(predictor_says.get("heads", projected // (3 * head_dim)))
    if 3 * num_heads * head_dim != projected:
        described = f"{num_heads} heads of {head_dim}" if "heads" in predictor_says else f"heads of {head_dim}"
        raise InputError(
            f"config.json (without one, the usual setting) describes {described} in the predictor, but its maps have "
            f"{projected} rows, which is not three times as many. Put the config.json of these weights beside them."
        )
    latent_dim = _shape(shapes, "projector.narrow.weight", 2)[0]
    if latent_dim != width:
        raise InputError(
            f"The embedding has {latent_dim} coordinates and the encoder {width}; LeWM weights are supported where the "
            f"two are equal."
        )
    return WorldModelConfig(
        latent_dim=latent_dim,
        capacities=(latent_dim,),
        has_selector=False,
        action_dim=_shape(shapes, "action_encoder.compress.weight")[1],
        projector_dim=_shape(shapes, "projector.widen.weight", 2)[0],
        encoder=ViTConfig(
            image_size=side * patch_size,
            patch_size=patch_size,
            hidden_dim=width,
            num_blocks=_num_blocks(shapes, "encoder"),
            num_heads=int(encoder_says.get("num_attention_heads", max(1, width // _HEAD_DIM))),
            mlp_dim=_shape(shapes, "encoder.blocks.0.mlp.widen.weight", 2)[0],
        ),
        predictor=PredictorConfig(
            num_blocks=_num_blocks(shapes, "predictor"),
            num_heads=num_heads,
            head_dim=head_dim,
            mlp_dim=_shape(shapes, "predictor.blocks.0.mlp.widen.weight", 2)[0],
            dropout=float(predictor_says.get("dropout", PredictorConfig.dropout)),
            context_length=_shape(shapes, "predictor.position", 3)[1],
        ),
    )


def description_of(config: WorldModelConfig) -> dict[str, Any]:
    """The config.json of the LeWM with our model's encoder and predictor and an embedding of width W."""
    encoder, predictor = config.encoder, config.predictor
    width = encoder.hidden_dim
    usual = ViTConfig(
        encoder.image_size,
        encoder.patch_size,
        width,
        _BLOCKS_OF_A_NAMED_SIZE,
        max(1, width // _HEAD_DIM),
        4 * width,
    )
    described: dict[str, Any] = {
        "_target_": "stable_pretraining.backbone.utils.vit_hf",
        "size": _SIZES.get(width, "tiny"),
        "patch_size": encoder.patch_size,
        "image_size": encoder.image_size,
        "pretrained": False,
        "use_mask_token": False,
    }
    if width not in _SIZES or encoder != usual:
        # No size has these numbers: they are given beside it, as the encoder's own settings.
        described |= {
            "hidden_size": width,
            "num_hidden_layers": encoder.num_blocks,
            "num_attention_heads": encoder.num_heads,
            "intermediate_size": encoder.mlp_dim,
        }
    projector = {
        "_target_": f"{_MODULE}.MLP",
        "input_dim": width,
        "output_dim": width,
        "hidden_dim": config.projector_dim,
        "norm_fn": {"_target_": "torch.nn.BatchNorm1d", "_partial_": True},
    }
    return {
        "_target_": "stable_worldmodel.wm.lewm.LeWM",
        "encoder": described,
        "predictor": {
            "_target_": f"{_MODULE}.Predictor",
            "num_frames": predictor.context_length,
            "input_dim": width,
            "hidden_dim": width,
            "output_dim": width,
            "depth": predictor.num_blocks,
            "heads": predictor.num_heads,
            "mlp_dim": predictor.mlp_dim,
            "dim_head": predictor.head_dim,
            "dropout": predictor.dropout,
            "emb_dropout": 0.0,
        },
        "action_encoder": {"_target_": f"{_MODULE}.Embedder", "input_dim": config.action_dim, "emb_dim": width},
        "projector": projector,
        "pred_proj": dict(projector),
    }


def _part(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = config.get(name, {})
    if not isinstance(part, Mapping):
        raise InputError(f"config.json: {name!r} must be an object, found {type(part).__name__}.")
    return part


def _shape(shapes: Mapping[str, tuple[int, ...]], name: str, num_axes: int | None = None) -> tuple[int, ...]:
    if name not in shapes:
        raise InputError(f"The LeWM weights do not fit: missing {[name]}; is the file complete?")
    if len(shapes[name]) < 2 or (num_axes is not None and len(shapes[name]) != num_axes):
        raise InputError(f"{name} has the unexpected shape {list(shapes[name])} in the LeWM weights.")
    return shapes[name]


def _patch_size(shape: tuple[int, ...], says: Mapping[str, Any]) -> int:
    """The side of a patch: a convolution's kernel, or the root of the pixels a matrix reads."""
    side = shape[-1] if len(shape) == 4 else round((shape[1] / 3) ** 0.5)
    if says.get("patch_size", side) != side:
        raise InputError(f"config.json says patches of {says['patch_size']} pixels, but the weights read {side}.")
    return int(side)


def _num_blocks(shapes: Mapping[str, tuple[int, ...]], part: str) -> int:
    prefix = f"{part}.blocks."
    numbers = (int(name.removeprefix(prefix).split(".")[0]) for name in shapes if name.startswith(prefix))
    return 1 + max(numbers, default=-1)


CONFIG, WEIGHTS = "config.json", "weights.pt"


@dataclass(frozen=True)
class LeWMFiles:
    """What a LeWM checkpoint holds."""

    weights_path: Path
    """The file the tensors came from."""
    sha256: str
    """Of that file."""
    state: dict[str, Tensor]
    """Its tensors, under LeWM's names."""
    config: dict[str, Any]
    """The nested description in its config.json; empty where there is none."""


def read_lewm(path: Path) -> LeWMFiles:
    """The checkpoint at `path`: a folder or repository of the Hub with config.json and one `.pt`, or that `.pt`."""
    weights = _weights_path(here_or_fetched(path, patterns=("*.json", "*.pt", CARD)))
    config_path = weights.parent / CONFIG
    return LeWMFiles(
        weights,
        hashlib.sha256(weights.read_bytes()).hexdigest(),
        _read_state(weights),
        read_object(config_path) if config_path.is_file() else {},
    )


def write_lewm(folder: Path, config: dict[str, Any], state: dict[str, Tensor]) -> Path:
    """`folder` with config.json and weights.pt, as stable-worldmodel reads them; one that holds others is refused."""
    if _holds(folder, config, state):
        return folder
    buffer = io.BytesIO()
    torch.save(state, buffer)
    with new_folder(folder) as partial:
        write_bytes(partial / WEIGHTS, buffer.getvalue())
        write_json(partial / CONFIG, config)
    return folder


def _holds(folder: Path, config: dict[str, Any], state: dict[str, Tensor]) -> bool:
    """Whether this very checkpoint is in `folder` already."""
    if not (folder / CONFIG).is_file() or not (folder / WEIGHTS).is_file() or read_object(folder / CONFIG) != config:
        return False
    found = _read_state(folder / WEIGHTS)
    return found.keys() == state.keys() and all(torch.equal(found[name], state[name]) for name in state)


def _weights_path(path: Path) -> Path:
    if path.is_file():
        return path
    if not path.is_dir():
        raise InputError(
            f"{path} does not exist; give a folder with {CONFIG} and {WEIGHTS}, a .pt file, or a repository of the "
            f"Hub (OWNER/NAME)."
        )
    if (path / WEIGHTS).is_file():
        return path / WEIGHTS
    found = sorted(path.glob("*.pt"))
    if len(found) == 1:
        return found[0]
    if pickled := sorted(path.glob("*.ckpt")):
        raise InputError(_refusal(pickled[0]))
    names = ", ".join(file.name for file in found) or "none"
    raise InputError(f"{path} must hold {WEIGHTS} or exactly one .pt file, found {names}. Name the file you mean.")


def _read_state(path: Path) -> dict[str, Tensor]:
    _check_kind(path)
    _check_archive(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about old pickle formats; what cannot be read is refused below
            state = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise InputError(_refusal(path)) from error
    except (RuntimeError, EOFError, OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise InputError(f"{path} cannot be read as a PyTorch file ({error}); is it complete?") from error
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        held = type(state).__name__ if not isinstance(state, dict) else "a dictionary of other things than tensors"
        raise InputError(f"{path} must hold a plain state dict (names to tensors), found {held}.")
    if not state:
        raise InputError(f"{path} holds no tensors.")
    return state


def _check_kind(path: Path) -> None:
    """Refuses what is none of PyTorch's formats: archives, and pickles, whose first byte says so since protocol 2."""
    with path.open("rb") as file:
        first = file.read(1)
    if first and first != b"\x80" and not zipfile.is_zipfile(path) and not tarfile.is_tarfile(path):
        raise InputError(f"{path} is not a PyTorch file. Give {WEIGHTS} or another .pt file that holds a state dict.")


def _check_archive(path: Path) -> None:
    """Refuses a file whose parts differ from their checksums; PyTorch writes these and does not look at them."""
    if not zipfile.is_zipfile(path):
        return  # an older format, which has none
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
    except (zipfile.BadZipFile, OSError, RuntimeError, NotImplementedError, ValueError, zlib.error) as error:
        raise InputError(f"{path} is damaged ({error}). Fetch it again.") from error
    if damaged is not None:
        raise InputError(
            f"{path} is damaged: {damaged} differs from its checksum. Fetch it again. If it was written without "
            f"checksums (torch.serialization.set_crc32_options), save it once more with them."
        )


def _refusal(path: Path) -> str:
    return (
        f"{path} holds pickled Python objects, not only tensors: loading it would run code from the file, so it is "
        f"refused. Where you trust it, save its state dict with the package that wrote it: "
        f"torch.save(model.state_dict(), '{WEIGHTS}')."
    )
