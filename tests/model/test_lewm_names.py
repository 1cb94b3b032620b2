"""Released LeWM weights fit one to one, under the names of either transformers generation."""

import pytest
import torch

from alewm.errors import InputError
from alewm.interop.lewm_format import from_lewm, our_name
from alewm.model.world_model import WorldModel, WorldModelConfig


def published_shapes(generation: int) -> dict[str, tuple[int, ...]]:
    """The state dict of a published LeWM checkpoint for a 2-D action, written out from its description."""
    W, hidden = 192, 2048

    def pair(name, rows, *columns):
        return {f"{name}.weight": (rows, *columns), f"{name}.bias": (rows,)}

    names = (
        ("encoder.encoder.layer", "attention.attention.query", "attention.attention.key", "attention.attention.value",
         "attention.output.dense", "intermediate.dense", "output.dense")
        if generation == 4
        else ("encoder.layers", "attention.q_proj", "attention.k_proj", "attention.v_proj", "attention.o_proj",
              "mlp.fc1", "mlp.fc2")
    )  # fmt: skip
    layer, *square, widen, narrow = names
    shapes = {
        "encoder.embeddings.cls_token": (1, 1, W),
        "encoder.embeddings.position_embeddings": (1, 257, W),
        **pair("encoder.embeddings.patch_embeddings.projection", W, 3, 14, 14),
        **pair("encoder.layernorm", W),
        "predictor.pos_embedding": (1, 3, W),
        **pair("predictor.transformer.norm", W),
        **pair("action_encoder.patch_embed", 10, 10, 1),
        **pair("action_encoder.embed.0", 768, 10),
        **pair("action_encoder.embed.2", W, 768),
    }
    for n in range(12):
        for name in square:
            shapes |= pair(f"{layer}.{n}.{name}", W, W)
        shapes |= pair(f"{layer}.{n}.{widen}", 768, W) | pair(f"{layer}.{n}.{narrow}", W, 768)
        shapes |= pair(f"{layer}.{n}.layernorm_before", W) | pair(f"{layer}.{n}.layernorm_after", W)
    for m in range(6):
        block = f"predictor.transformer.layers.{m}"
        shapes |= pair(f"{block}.attn.norm", W) | {f"{block}.attn.to_qkv.weight": (3072, W)}
        shapes |= pair(f"{block}.attn.to_out.0", W, 1024) | pair(f"{block}.mlp.net.0", W)
        shapes |= pair(f"{block}.mlp.net.1", hidden, W) | pair(f"{block}.mlp.net.4", W, hidden)
        shapes |= pair(f"{block}.adaLN_modulation.1", 1152, W)
    for projector in ("projector", "pred_proj"):
        shapes |= pair(f"{projector}.net.0", hidden, W) | pair(f"{projector}.net.3", W, hidden)
        shapes |= pair(f"{projector}.net.1", hidden)
        shapes |= {f"{projector}.net.1.running_{moment}": (hidden,) for moment in ("mean", "var")}
        shapes |= {f"{projector}.net.1.num_batches_tracked": ()}
    return shapes


@pytest.fixture(scope="module")
def ours() -> dict[str, torch.Tensor]:
    with torch.device("meta"):
        return WorldModel(WorldModelConfig(capacities=(192,), has_selector=False)).state_dict()


@pytest.mark.parametrize("generation", [4, 5])
def test_published_weights_fit_one_to_one(generation, ours):
    published = {name: torch.empty(shape, device="meta") for name, shape in published_shapes(generation).items()}
    assert len(published) == 303
    renamed = from_lewm(published, ours)
    assert {name: tensor.shape for name, tensor in renamed.items()} == {name: t.shape for name, t in ours.items()}


def test_a_foreign_name_is_refused():
    with pytest.raises(InputError, match=r"'decoder\.weight' is not the name of a LeWM parameter"):
        our_name("decoder.weight")


def test_weights_that_do_not_fit_are_refused_by_name(ours):
    published = {name: torch.empty(shape, device="meta") for name, shape in published_shapes(4).items()}
    published["predictor.pos_embedding"] = torch.empty(1, 1, 192, device="meta")
    with pytest.raises(InputError, match=r"predictor\.position has shape \[1, 1, 192\].* needs \[1, 3, 192\]"):
        from_lewm(published, ours)
    del published["predictor.pos_embedding"]
    with pytest.raises(InputError, match=r"missing \['predictor\.position'\]"):
        from_lewm(published, ours)
