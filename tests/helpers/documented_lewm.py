"""LeWM as its description gives it, module by module: the encoder is transformers' own, the rest is a few lines."""

import torch
import torch.nn.functional as F
from torch import nn
from transformers.models.vit import ViTConfig, ViTModel

SMALL = {
    "encoder": {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96},
    "image": {"image_size": 28, "patch_size": 14},
    "predictor": {"depth": 2, "heads": 3, "dim_head": 8, "mlp_dim": 40, "num_frames": 3},
    "hidden_dim": 56,
    "action_dim": 10,
}
RELEASED = {
    "encoder": {"hidden_size": 192, "num_hidden_layers": 12, "num_attention_heads": 3, "intermediate_size": 768},
    "image": {"image_size": 224, "patch_size": 14},
    "predictor": {"depth": 6, "heads": 16, "dim_head": 64, "mlp_dim": 2048, "num_frames": 3},
    "hidden_dim": 2048,
    "action_dim": 10,
}


class MLP(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(width, hidden), nn.BatchNorm1d(hidden), nn.GELU(), nn.Linear(hidden, width))


class Embedder(nn.Module):
    def __init__(self, action_dim, width):
        super().__init__()
        self.patch_embed = nn.Conv1d(action_dim, 10, 1)
        self.embed = nn.Sequential(nn.Linear(10, 4 * width), nn.SiLU(), nn.Linear(4 * width, width))

    def forward(self, blocks):
        return self.embed(self.patch_embed(blocks.mT).mT)


class Attention(nn.Module):
    def __init__(self, width, heads, dim_head):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.to_qkv = nn.Linear(width, 3 * heads * dim_head, bias=False)
        self.to_out = nn.Sequential(nn.Linear(heads * dim_head, width), nn.Dropout(0.1))

    def forward(self, x):
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
                             for part in self.to_qkv(self.norm(x)).chunk(3, -1))  # fmt: skip
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.to_out(mixed.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.net = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, hidden), nn.GELU(), nn.Dropout(0.1),
                                 nn.Linear(hidden, width), nn.Dropout(0.1))  # fmt: skip


class Block(nn.Module):
    def __init__(self, width, heads, dim_head, mlp_dim):
        super().__init__()
        self.attn = Attention(width, heads, dim_head)
        self.mlp = FeedForward(width, mlp_dim)
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), nn.Linear(width, 6 * width))

    def forward(self, x, c):
        shift_1, scale_1, gate_1, shift_2, scale_2, gate_2 = self.adaLN_modulation(c).chunk(6, -1)
        plain = lambda x: F.layer_norm(x, x.shape[-1:], eps=1e-6)  # noqa: E731
        x = x + gate_1 * self.attn(plain(x) * (1 + scale_1) + shift_1)
        return x + gate_2 * self.mlp.net(plain(x) * (1 + scale_2) + shift_2)


class Transformer(nn.Module):
    def __init__(self, width, depth, heads, dim_head, mlp_dim):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList(Block(width, heads, dim_head, mlp_dim) for _ in range(depth))


class Predictor(nn.Module):
    def __init__(self, width, num_frames, **sizes):
        super().__init__()
        self.pos_embedding = nn.Parameter(torch.randn(1, num_frames, width))
        self.transformer = Transformer(width, **sizes)

    def forward(self, z, c):
        x = z + self.pos_embedding[:, : z.shape[1]]
        for layer in self.transformer.layers:
            x = layer(x, c)
        return self.transformer.norm(x)


class DocumentedLeWM(nn.Module):
    def __init__(self, sizes, seed=0):
        super().__init__()
        width = sizes["encoder"]["hidden_size"]
        self.sizes = sizes
        self.encoder = ViTModel(ViTConfig(**sizes["encoder"], **sizes["image"]), add_pooling_layer=False)
        self.predictor = Predictor(width, **sizes["predictor"])
        self.action_encoder = Embedder(sizes["action_dim"], width)
        self.projector = MLP(width, sizes["hidden_dim"])
        self.pred_proj = MLP(width, sizes["hidden_dim"])
        generator = torch.Generator().manual_seed(seed)
        for name, tensor in self.state_dict().items():
            if tensor.is_floating_point():
                # Every number takes part: gates are open, normalisations are not the identity.
                noise = torch.randn(tensor.shape, generator=generator)
                fan_in = tensor[0].numel() if tensor.ndim > 1 else 4
                tensor.copy_(noise.square() + 0.5 if name.endswith("running_var") else noise * fan_in**-0.5)
        self.eval().requires_grad_(False)

    def features(self, pixels):
        """CLS tokens [N, W] of normalised images [N, 3, Y, X]."""
        return self.encoder(pixels, interpolate_pos_encoding=True).last_hidden_state[:, 0]

    def encode(self, info):
        """The documented `encode`: `emb` [B, T, D] from `pixels` [B, T, 3, Y, X]."""
        emb = self.projector.net(self.features(info["pixels"].flatten(0, 1)))
        return {**info, "emb": emb.unflatten(0, info["pixels"].shape[:2])}

    def predict(self, z, blocks):
        """The latent after each of at most three positions."""
        hidden = self.predictor(z, self.action_encoder(blocks))
        return self.pred_proj.net(hidden.flatten(0, 1)).unflatten(0, hidden.shape[:2])

    def rollout(self, info, candidates):
        """The documented `rollout`: the context and one prediction per candidate block, [B, S, H + horizon, D]."""
        B, S, horizon = candidates.shape[:3]
        if "emb" not in info:
            info["emb"] = self.encode({"pixels": info["pixels"][:, 0]})["emb"][:, None].expand(-1, S, -1, -1)
        z = info["emb"].flatten(0, 1)
        past = info.get("action_history")
        blocks = (candidates if past is None else torch.cat([past, candidates], 2)).flatten(0, 1)
        for _ in range(horizon):
            known = z.shape[1]
            seen = slice(max(0, known - 3), known)
            z = torch.cat([z, self.predict(z[:, seen], blocks[:, seen])[:, -1:]], 1)
        info["predicted_emb"] = z.unflatten(0, (B, S))
        return info

    def config(self):
        """Its config.json."""
        width, predictor = self.sizes["encoder"]["hidden_size"], dict(self.sizes["predictor"])
        module = "stable_worldmodel.wm.lewm.module"
        mlp = {"_target_": f"{module}.MLP", "input_dim": width, "output_dim": width,
               "hidden_dim": self.sizes["hidden_dim"],
               "norm_fn": {"_target_": "torch.nn.BatchNorm1d", "_partial_": True}}  # fmt: skip
        return {
            "_target_": "stable_worldmodel.wm.lewm.LeWM",
            "encoder": {"_target_": "stable_pretraining.backbone.utils.vit_hf", "size": "tiny",
                        **self.sizes["image"], "pretrained": False, "use_mask_token": False,
                        **(self.sizes["encoder"] if width != 192 else {})},
            "predictor": {"_target_": f"{module}.Predictor", "input_dim": width, "hidden_dim": width,
                          "output_dim": width, "dropout": 0.1, "emb_dropout": 0.0, **predictor},
            "action_encoder": {"_target_": f"{module}.Embedder", "input_dim": self.sizes["action_dim"],
                               "emb_dim": width},
            "projector": mlp,
            "pred_proj": dict(mlp),
        }  # fmt: skip


# The documented differences of transformers 5 to 4, applied backwards.
_OLDER = (
    ("encoder.layers.", "encoder.encoder.layer."),
    (".attention.q_proj.", ".attention.attention.query."),
    (".attention.k_proj.", ".attention.attention.key."),
    (".attention.v_proj.", ".attention.attention.value."),
    (".attention.o_proj.", ".attention.output.dense."),
    (".mlp.fc1.", ".intermediate.dense."),
    (".mlp.fc2.", ".output.dense."),
)


def named_by(state, generation):
    """A state dict whose encoder has the names of transformers 4 or 5, whichever is installed."""
    renamed = {}
    for name, tensor in state.items():
        for newer, older in _OLDER:
            if name.startswith("encoder."):
                name = name.replace(newer, older) if generation == 4 else name.replace(older, newer)
        renamed[name] = tensor
    return renamed
