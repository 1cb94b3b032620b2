"""LeWM's parameter names and ours: one to one where the latent is as wide as the predictor.

Released LeWM weights carry the encoder names of transformers 4 or 5 according to their age; both are understood. Shapes
differ only where a convolution is written as the matrix product it is.
"""

import re
from collections.abc import Mapping

from alewm.errors import InputError
from alewm.shapes import Tensor

_OURS_OF_LEWM = (
    (r"encoder\.embeddings\.cls_token", "encoder.cls_token"),
    (r"encoder\.embeddings\.position_embeddings", "encoder.position"),
    (r"encoder\.embeddings\.patch_embeddings\.projection\.", "encoder.patch_map."),
    (r"encoder\.(?:encoder\.layer|layers)\.(\d+)\.", r"encoder.blocks.\1."),
    (r"encoder\.layernorm\.", "encoder.norm."),
    (r"predictor\.pos_embedding", "predictor.position"),
    (r"predictor\.transformer\.norm\.", "predictor.norm."),
    (r"predictor\.transformer\.layers\.(\d+)\.", r"predictor.blocks.\1."),
    (r"action_encoder\.patch_embed\.", "action_encoder.compress."),
    (r"action_encoder\.embed\.0\.", "action_encoder.widen."),
    (r"action_encoder\.embed\.2\.", "action_encoder.narrow."),
    (r"(projector|pred_proj)\.net\.0\.", r"\1.widen."),
    (r"(projector|pred_proj)\.net\.1\.", r"\1.norm."),
    (r"(projector|pred_proj)\.net\.3\.", r"\1.narrow."),
)
_OURS_IN_ENCODER_BLOCK = (
    (r"attention\.attention\.(query|key|value)\.", r"attention.\1."),
    (r"attention\.q_proj\.", "attention.query."),
    (r"attention\.k_proj\.", "attention.key."),
    (r"attention\.v_proj\.", "attention.value."),
    (r"attention\.(?:output\.dense|o_proj)\.", "attention.output."),
    (r"(?:intermediate\.dense|mlp\.fc1)\.", "mlp.widen."),
    (r"(?:output\.dense|mlp\.fc2)\.", "mlp.narrow."),
    (r"layernorm_before\.", "norm_attention."),
    (r"layernorm_after\.", "norm_mlp."),
)
_OURS_IN_PREDICTOR_BLOCK = (
    (r"attn\.norm\.", "attention.norm."),
    (r"attn\.to_qkv\.", "attention.qkv."),
    (r"attn\.to_out\.0\.", "attention.output."),
    (r"mlp\.net\.0\.", "mlp.norm."),
    (r"mlp\.net\.1\.", "mlp.widen."),
    (r"mlp\.net\.4\.", "mlp.narrow."),
    (r"adaLN_modulation\.1\.", "modulation."),
)


def our_name(lewm_name: str) -> str:
    """Our name of the parameter or buffer that LeWM calls `lewm_name`."""
    name = _rewrite(lewm_name, _OURS_OF_LEWM)
    if block := re.match(r"(encoder|predictor)\.blocks\.\d+\.", name):
        rules = _OURS_IN_ENCODER_BLOCK if block[1] == "encoder" else _OURS_IN_PREDICTOR_BLOCK
        name = block[0] + _rewrite(name[block.end() :], rules)
    return re.sub(r"^pred_proj\.", "prediction_projector.", name)


def _rewrite(name: str, rules: tuple[tuple[str, str], ...]) -> str:
    for pattern, replacement in rules:
        if match := re.match(pattern, name):
            return match.expand(replacement) + name[match.end() :]
    raise InputError(f"{name!r} is not the name of a LeWM parameter; is this file a LeWM state dict?")


def from_lewm(state: Mapping[str, Tensor], ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """LeWM's tensors under our names, in the shapes of `ours` (a state dict of the model they are meant for)."""
    renamed = {our_name(name): tensor for name, tensor in state.items()}
    if renamed.keys() != ours.keys():
        missing, extra = sorted(ours.keys() - renamed.keys()), sorted(renamed.keys() - ours.keys())
        raise InputError(f"The LeWM weights do not fit: missing {missing[:5]}, unexpected {extra[:5]}.")
    for name, tensor in renamed.items():
        if tensor.squeeze().numel() != ours[name].numel():
            found, needed = list(tensor.shape), list(ours[name].shape)
            raise InputError(f"{name} has shape {found} in the LeWM weights, but the model needs {needed}.")
    return {name: tensor.reshape(ours[name].shape) for name, tensor in renamed.items()}
