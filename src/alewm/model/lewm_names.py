"""LeWM's parameter names and ours: one to one where the latent is as wide as the predictor.

Released LeWM weights carry the encoder names of transformers 4 or 5 according to their age; both are understood. Shapes
differ only where a convolution is written as the matrix product it is.
"""

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

from alewm.errors import InputError
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


def lewm_name(our_name: str, generation: Generation = 4) -> str | None:
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


def to_lewm(state: Mapping[str, Tensor], patch_size: int, generation: Generation = 4) -> dict[str, Tensor]:
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
