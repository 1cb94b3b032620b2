"""LeWM's constructor description and our configuration: each from the other.

Shapes say nearly everything; only the numbers of heads and the dropout rate have to be read from config.json. Class
paths in it are never followed.
"""

from collections.abc import Mapping
from typing import Any

from alewm.errors import InputError
from alewm.model.lewm_names import our_name
from alewm.model.predictor import PredictorConfig
from alewm.model.vit import ViTConfig
from alewm.model.world_model import WorldModelConfig
from alewm.shapes import Tensor

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
