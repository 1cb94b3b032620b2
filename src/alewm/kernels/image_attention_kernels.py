"""Triton kernels of attention among the tokens of one image, forward and backward; `image_attention` launches them.

An image has a power of two of patches and one token more. A library's kernel rounds 257 tokens up to whole tiles; here
the patches fill theirs exactly, and the first token, which stands apart, is a vector beside them: as a key one more
column of the scores, as a query one more row. Scores are in base two, their factor log₂e folded into `scale`.
"""

import triton
import triton.language as tl

# mypy: disable-error-code="no-untyped-def, untyped-decorator"


@triton.jit
def image_attention_forward(
    qkv, mixed, lse, scale,
    HEADS: tl.constexpr, HEAD: tl.constexpr, PATCHES: tl.constexpr, ROWS: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """What ROWS patches read, or in the last program of an image's head its first token; log-sum-exp of the scores too.

    `qkv` is [images, 1 + PATCHES, 3, HEADS, HEAD], `mixed` [images, 1 + PATCHES, HEADS, HEAD], `lse` [images, HEADS,
    1 + PATCHES].
    """
    dtype = qkv.dtype.element_ty
    width: tl.constexpr = HEADS * HEAD
    part, pair = tl.program_id(0), tl.program_id(1).to(tl.int64)
    qkv += (pair // HEADS) * ((1 + PATCHES) * 3 * width) + (pair % HEADS) * HEAD
    mixed += (pair // HEADS) * ((1 + PATCHES) * width) + (pair % HEADS) * HEAD
    lse += pair * (1 + PATCHES)
    d = tl.arange(0, HEAD)
    key0 = tl.load(qkv + width + d).to(tl.float32)
    value0 = tl.load(qkv + 2 * width + d).to(tl.float32)
    if part < PATCHES // ROWS:
        rows = 1 + part * ROWS + tl.arange(0, ROWS)
        query = tl.load(qkv + rows[:, None] * (3 * width) + d[None, :])
        peak = tl.sum(query.to(tl.float32) * key0[None, :], axis=1) * scale
        total = tl.full((ROWS,), 1.0, tl.float32)
        read = tl.zeros((ROWS, HEAD), tl.float32) + value0[None, :]
        for start in range(0, PATCHES, CHUNK):
            keys = 1 + start + tl.arange(0, CHUNK)
            key = tl.load(qkv + width + keys[:, None] * (3 * width) + d[None, :])
            scores = tl.dot(query, tl.trans(key), input_precision="ieee") * scale
            new_peak = tl.maximum(peak, tl.max(scores, axis=1))
            weights = tl.exp2(scores - new_peak[:, None])
            fading = tl.exp2(peak - new_peak)
            total = total * fading + tl.sum(weights, axis=1)
            value = tl.load(qkv + 2 * width + keys[:, None] * (3 * width) + d[None, :])
            read = tl.dot(weights.to(dtype), value, read * fading[:, None], input_precision="ieee")
            peak = new_peak
        tl.store(mixed + rows[:, None] * width + d[None, :], (read / total[:, None]).to(dtype))
        tl.store(lse + rows, peak + tl.log2(total))
    else:
        _first_token_asks(qkv, mixed, lse, key0, value0, scale, width, HEAD, PATCHES)


@triton.jit
def _first_token_asks(
    qkv, mixed, lse, key0, value0, scale, width: tl.constexpr, HEAD: tl.constexpr, PATCHES: tl.constexpr
):
    d = tl.arange(0, HEAD)
    at = (1 + tl.arange(0, PATCHES))[:, None] * (3 * width) + d[None, :]
    query0 = tl.load(qkv + d).to(tl.float32) * scale
    scores = tl.sum(tl.load(qkv + width + at).to(tl.float32) * query0[None, :], axis=1)
    score0 = tl.sum(query0 * key0, axis=0)
    peak = tl.maximum(tl.max(scores, axis=0), score0)
    weights, weight0 = tl.exp2(scores - peak), tl.exp2(score0 - peak)
    total = tl.sum(weights, axis=0) + weight0
    read = tl.sum(tl.load(qkv + 2 * width + at).to(tl.float32) * weights[:, None], axis=0) + weight0 * value0
    tl.store(mixed + d, (read / total).to(mixed.dtype.element_ty))
    tl.store(lse, peak + tl.log2(total))


@triton.jit
def first_token_backward(
    qkv, mixed, lse, grad_mixed, grad_qkv, beside, sums, scale, slope,
    HEADS: tl.constexpr, HEAD: tl.constexpr, PATCHES: tl.constexpr, CHUNK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """What the first token of one image's head has to do with the gradients; `slope` is `scale` in base e.

    Its own query, key and value get their gradients. `beside` [images, HEADS, 4, PATCHES] gets of every patch: the
    gradient's product with what the patch read, the gradient of its score of the first token, the share of it that the
    first token read, and the gradient of that score. One program takes the token as a query, another as a key, each
    CHUNK patches at a time.

    `sums` [images, 3, HEADS, HEAD] gets what the gradients of keys and of values add up to over all tokens. It needs
    neither, because a query's shares add up to one: so the gradients of its scores add up to zero, and those of the
    keys, each a sum of queries times these, to zero with them; and each query's gradient is shared out among the values
    whole.
    """
    dtype = qkv.dtype.element_ty
    width: tl.constexpr = HEADS * HEAD
    pair = tl.program_id(1).to(tl.int64)
    in_qkv = (pair // HEADS) * ((1 + PATCHES) * 3 * width) + (pair % HEADS) * HEAD
    in_mixed = (pair // HEADS) * ((1 + PATCHES) * width) + (pair % HEADS) * HEAD
    qkv += in_qkv
    grad_qkv += in_qkv
    mixed += in_mixed
    grad_mixed += in_mixed
    lse += pair * (1 + PATCHES)
    beside += pair * (4 * PATCHES)
    sums += (pair // HEADS) * (3 * width) + (pair % HEADS) * HEAD
    d = tl.arange(0, HEAD)
    query0, grad0 = tl.load(qkv + d).to(tl.float32), tl.load(grad_mixed + d).to(tl.float32)
    key0, value0 = tl.load(qkv + width + d).to(tl.float32), tl.load(qkv + 2 * width + d).to(tl.float32)
    total0 = tl.load(lse)
    along0 = tl.sum(grad0 * tl.load(mixed + d).to(tl.float32), axis=0)
    weight0 = tl.exp2(tl.sum(query0 * key0, axis=0) * scale - total0)
    grad_score0 = weight0 * (tl.sum(grad0 * value0, axis=0) - along0) * slope
    if tl.program_id(0) == 0:
        # Sums are kept per row until the end: a reduction over rows synchronises threads.
        to_query = tl.zeros((CHUNK, HEAD), tl.float32)
        for start in tl.range(0, PATCHES, CHUNK, num_stages=STAGES):
            patches = start + tl.arange(0, CHUNK)
            at = (1 + patches)[:, None] * (3 * width) + d[None, :]
            key, value = tl.load(qkv + width + at).to(tl.float32), tl.load(qkv + 2 * width + at).to(tl.float32)
            weights = tl.exp2(tl.sum(key * query0[None, :], axis=1) * scale - total0)
            grad_scores = weights * (tl.sum(value * grad0[None, :], axis=1) - along0) * slope
            tl.store(beside + 2 * PATCHES + patches, weights)
            tl.store(beside + 3 * PATCHES + patches, grad_scores)
            to_query += key * grad_scores[:, None]
        tl.store(grad_qkv + d, (grad_score0 * key0 + tl.sum(to_query, axis=0)).to(dtype))
    else:
        to_key, to_value = tl.zeros((CHUNK, HEAD), tl.float32), tl.zeros((CHUNK, HEAD), tl.float32)
        total = tl.zeros((CHUNK, HEAD), tl.float32)
        for start in tl.range(0, PATCHES, CHUNK, num_stages=STAGES):
            patches = start + tl.arange(0, CHUNK)
            query = tl.load(qkv + (1 + patches)[:, None] * (3 * width) + d[None, :]).to(tl.float32)
            at = (1 + patches)[:, None] * width + d[None, :]
            grad, read = tl.load(grad_mixed + at).to(tl.float32), tl.load(mixed + at).to(tl.float32)
            along = tl.sum(grad * read, axis=1)
            shares = tl.exp2(tl.sum(query * key0[None, :], axis=1) * scale - tl.load(lse + 1 + patches))
            grads = shares * (tl.sum(grad * value0[None, :], axis=1) - along) * slope
            tl.store(beside + patches, along)
            tl.store(beside + PATCHES + patches, grads)
            to_key += query * grads[:, None]
            to_value += grad * shares[:, None]
            total += grad
        tl.store(grad_qkv + width + d, (grad_score0 * query0 + tl.sum(to_key, axis=0)).to(dtype))
        tl.store(grad_qkv + 2 * width + d, (weight0 * grad0 + tl.sum(to_value, axis=0)).to(dtype))
        tl.store(sums + width + d, tl.zeros((HEAD,), tl.float32))
        tl.store(sums + 2 * width + d, grad0 + tl.sum(total, axis=0))


@triton.jit
def patches_backward(
    qkv, lse, grad_mixed, beside, grad_qkv, sums, scale, slope,
    HEADS: tl.constexpr, HEAD: tl.constexpr, PATCHES: tl.constexpr, ROWS: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """The gradients of one head of one image's patches, after `first_token_backward`.

    CHUNK keys and values with their gradients stay on the chip while ROWS queries at a time pass by. One program does
    it all, so that the sums have one order; the gradient of a query grows where it is written. `sums` [images, 3,
    HEADS, HEAD] gets the gradients of queries, added up over all tokens.
    """
    dtype = qkv.dtype.element_ty
    width: tl.constexpr = HEADS * HEAD
    pair = tl.program_id(0).to(tl.int64)
    in_qkv = (pair // HEADS) * ((1 + PATCHES) * 3 * width) + (pair % HEADS) * HEAD
    qkv += in_qkv
    grad_qkv += in_qkv
    grad_mixed += (pair // HEADS) * ((1 + PATCHES) * width) + (pair % HEADS) * HEAD
    lse += pair * (1 + PATCHES)
    beside += pair * (4 * PATCHES)
    sums += (pair // HEADS) * (3 * width) + (pair % HEADS) * HEAD
    d = tl.arange(0, HEAD)
    query_sum = tl.load(grad_qkv + d).to(tl.float32)
    for first in tl.static_range(0, PATCHES, CHUNK):
        asked = first + tl.arange(0, CHUNK)
        at = (1 + asked)[:, None] * (3 * width) + d[None, :]
        key, value = tl.load(qkv + width + at), tl.load(qkv + 2 * width + at)
        query0, grad0 = tl.load(qkv + d).to(tl.float32), tl.load(grad_mixed + d).to(tl.float32)
        grad_value = tl.load(beside + 2 * PATCHES + asked)[:, None] * grad0[None, :]
        grad_key = tl.load(beside + 3 * PATCHES + asked)[:, None] * query0[None, :]
        for start in range(0, PATCHES, ROWS):
            asking = start + tl.arange(0, ROWS)
            query = tl.load(qkv + (1 + asking)[:, None] * (3 * width) + d[None, :])
            grad = tl.load(grad_mixed + (1 + asking)[:, None] * width + d[None, :])
            totals, along = tl.load(lse + 1 + asking), tl.load(beside + asking)
            shares = tl.exp2(tl.dot(key, tl.trans(query), input_precision="ieee") * scale - totals[None, :])
            grad_shares = tl.dot(value, tl.trans(grad), input_precision="ieee")
            grad_value = tl.dot(shares.to(dtype), grad, grad_value, input_precision="ieee")
            grads = (shares * (grad_shares - along[None, :]) * slope).to(dtype)
            grad_key = tl.dot(grads, query, grad_key, input_precision="ieee")
            # Transposed [HEAD, ROWS]: the shares' layout serves as it is.
            to = grad_qkv + (1 + asking)[None, :] * (3 * width) + d[:, None]
            if first == 0:
                key0 = tl.load(qkv + width + d).to(tl.float32)
                grad_query = key0[:, None] * tl.load(beside + PATCHES + asking)[None, :]
            else:
                grad_query = tl.load(to).to(tl.float32)
            grad_query = tl.dot(tl.trans(key), grads, grad_query, input_precision="ieee")
            tl.store(to, grad_query.to(dtype))
            if first + CHUNK == PATCHES:
                query_sum += tl.sum(grad_query, axis=1)
        tl.store(grad_qkv + width + at, grad_key.to(dtype))
        tl.store(grad_qkv + 2 * width + at, grad_value.to(dtype))
        if first + CHUNK < PATCHES:
            tl.debug_barrier()  # barrier: values written above are read below
    tl.store(sums + d, query_sum)
