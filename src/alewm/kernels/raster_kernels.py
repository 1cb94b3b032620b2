"""Triton kernels that draw frames of a triangle scene; `raster_triton` launches them, `raster` says what they compute.

`cover` keeps the nearest triangle of every sample by a 64-bit atomic maximum of (1 / distance, triangle), `cast` the
highest triangle of every texel of the shadow map by a 32-bit one, `fill` draws the planes and `resolve` lights the
triangles that samples see. In most pixels no triangle is seen, so `cover` notes in which tiles, and the others stay as
`fill` drew them. Pixels compare few texels of a large map, so `ask` runs before `cast`: it notes which texels triangles
will be compared with, and `cast` leaves all others as they are, whatever their memory held before.

`cover` and `cast` take BLOCK triangles of one geom in one frame each, already cut so small that a block's triangles
cover about equally many samples. They read what is there before they write: many triangles lie behind others, and
atomics cost more than loads. The value read may be an old one, but values only grow, so at worst an atomic is wasted.
Maxima do not depend on the order of programs, so frames repeat bit for bit.
"""

import triton
import triton.language as tl

# mypy: disable-error-code="no-untyped-def, untyped-decorator"


@triton.jit
def _corner(points, stride, at, inside, which: tl.constexpr):
    """Corner `which` of the triangles `at`; points are stored [3 corners, 3 coordinates, triangles]."""
    x = tl.load(points + (3 * which) * stride + at, mask=inside, other=0.0)
    y = tl.load(points + (3 * which + 1) * stride + at, mask=inside, other=0.0)
    z = tl.load(points + (3 * which + 2) * stride + at, mask=inside, other=0.0)
    return x, y, z


@triton.jit
def _moved(matrix, x, y, z):
    """(x, y, z) mapped by the 12 numbers of [R | t] at `matrix`, one pointer or one for each point."""
    a = tl.load(matrix) * x + tl.load(matrix + 1) * y + tl.load(matrix + 2) * z + tl.load(matrix + 3)
    b = tl.load(matrix + 4) * x + tl.load(matrix + 5) * y + tl.load(matrix + 6) * z + tl.load(matrix + 7)
    c = tl.load(matrix + 8) * x + tl.load(matrix + 9) * y + tl.load(matrix + 10) * z + tl.load(matrix + 11)
    return a, b, c


@triton.jit
def _turned(matrix, x, y, z):
    a = tl.load(matrix) * x + tl.load(matrix + 1) * y + tl.load(matrix + 2) * z
    b = tl.load(matrix + 4) * x + tl.load(matrix + 5) * y + tl.load(matrix + 6) * z
    c = tl.load(matrix + 8) * x + tl.load(matrix + 9) * y + tl.load(matrix + 10) * z
    return a, b, c


@triton.jit
def _on_screen(x, y, z, focal, near, SIZE: tl.constexpr):
    """Place in pixels and 1 / distance, 0 where that is too near."""
    w = tl.where(-z > near, 1.0 / tl.maximum(-z, near), 0.0)
    return (focal * x * w + 1.0) * (SIZE * 0.5), (focal * y * w + 1.0) * (SIZE * 0.5), w


@triton.jit
def _on_map(x, y, z, near, far, focal, IS_SPOT: tl.constexpr):
    """Place on the shadow map from -1 to 1, and a depth that grows towards the caster."""
    distance = -z
    if IS_SPOT:
        distance = tl.maximum(distance, near)
        depth = near * (far - distance) / (distance * (far - near))
        return focal * x / distance, focal * y / distance, depth
    return focal * x, focal * y, (far - distance) / (far - near)


@triton.jit
def _packed(depth, index):
    """One word of a depth that is not negative and an index."""
    return (depth.to(tl.int32, bitcast=True).to(tl.int64) << 31) | index.to(tl.int64)


@triton.jit
def _depth_of(packed):
    return (packed >> 31).to(tl.int32).to(tl.float32, bitcast=True)


@triton.jit
def _index_of(packed):
    return (packed & 0x7FFFFFFF).to(tl.int32)


@triton.jit
def _is_reflection(key):
    """Of a sample's key: those of the camera's own triangles have a higher bit, so that they hide any reflection."""
    return (key >> 62) == 0


@triton.jit
def _raise(places, values, ok):
    """places = max(places, values)."""
    is_higher = ok & (values > tl.load(places, mask=ok, other=0))
    tl.atomic_max(places, values, mask=is_higher, sem="relaxed")


@triton.jit
def _key_at(
    sample: tl.constexpr, px, py, place, ok, rank, triangle, x0, y0, w0, x1, y1, w1, x2, y2, w2, scale, plane_depth,
):  # fmt: skip
    """The keys of triangles at a sample of pixels; 0 where it is not inside, or the planes of the camera hide it."""
    u = px.to(tl.float32) + (0.375 if sample == 0 else (0.875 if sample == 1 else (0.125 if sample == 2 else 0.625)))
    v = py.to(tl.float32) + (0.125 + 0.25 * sample)
    e0 = (y1 - y2) * (u - x1) + (x2 - x1) * (v - y1)
    e1 = (y2 - y0) * (u - x2) + (x0 - x2) * (v - y2)
    e2 = (y0 - y1) * (u - x0) + (x1 - x0) * (v - y0)
    depth = (e0 * w0 + e1 * w1 + e2 * w2) * scale
    ok = ok & (e0 >= 0) & (e1 >= 0) & (e2 >= 0) & (depth > 0)
    ok &= depth >= tl.load(plane_depth + place + sample, mask=ok & (rank != 0), other=0.0)
    return tl.where(ok, rank | _packed(depth, triangle + 1), 0)


@triton.jit
def cover(
    points, stride, whole, block_geom, views, num_geoms, plane_depth, nearest, touched, focal, near,
    SIZE: tl.constexpr, BLOCK: tl.constexpr, WIDE: tl.constexpr, HIGH: tl.constexpr, COLUMNS: tl.constexpr,
    TILES: tl.constexpr,
):  # fmt: skip
    """nearest [F, n, n, 4] = max(nearest, key) for triangles before the planes; touched [F, TILES] = 1 where it grew.

    Programs of axis 2 draw the camera's view, then the mirrored one. `whole` is what a part was cut from, or -1.
    """
    block, frame, view = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    matrix = views + ((view * tl.num_programs(1) + frame) * num_geoms + tl.load(block_geom + block)) * 12
    at = block * BLOCK + tl.arange(0, BLOCK)
    triangle = tl.load(whole + at)
    ok = triangle >= 0
    ax, ay, az = _corner(points, stride, at, ok, 0)
    bx, by, bz = _corner(points, stride, at, ok, 1)
    cx, cy, cz = _corner(points, stride, at, ok, 2)
    ax, ay, az = _moved(matrix, ax, ay, az)
    bx, by, bz = _moved(matrix, bx, by, bz)
    cx, cy, cz = _moved(matrix, cx, cy, cz)
    x0, y0, w0 = _on_screen(ax, ay, az, focal, near, SIZE)
    x1, y1, w1 = _on_screen(bx, by, bz, focal, near, SIZE)
    x2, y2, w2 = _on_screen(cx, cy, cz, focal, near, SIZE)
    if view == 1:  # a mirrored triangle is seen from behind
        x1, x2 = x2, x1
        y1, y2 = y2, y1
        w1, w2 = w2, w1
    area = (x1 - x0) * (y2 - y0) - (x2 - x0) * (y1 - y0)
    ok = ok & (area > 0) & (w0 > 0) & (w1 > 0) & (w2 > 0)
    # Samples lie 1/8 inside their pixel.
    low_x = tl.maximum(tl.minimum(x0, tl.minimum(x1, x2)) + 0.125, 0.0)
    low_y = tl.maximum(tl.minimum(y0, tl.minimum(y1, y2)) + 0.125, 0.0)
    high_x = tl.minimum(tl.maximum(x0, tl.maximum(x1, x2)) - 0.125, SIZE - 0.5)
    high_y = tl.minimum(tl.maximum(y0, tl.maximum(y1, y2)) - 0.125, SIZE - 0.5)
    ok = ok & (high_x >= 0) & (high_y >= 0) & (low_x < SIZE) & (low_y < SIZE)
    from_x = tl.floor(tl.where(ok, low_x, 0.0)).to(tl.int32)
    from_y = tl.floor(tl.where(ok, low_y, 0.0)).to(tl.int32)
    wide = tl.where(ok, tl.floor(high_x), -1.0).to(tl.int32) - from_x + 1
    high = tl.where(ok, tl.floor(high_y), -1.0).to(tl.int32) - from_y + 1
    count = tl.where(ok & (wide > 0) & (high > 0), wide * high, 0)
    wide = tl.maximum(wide, 1)
    scale = 1.0 / tl.where(area > 0, area, 1.0)
    samples = nearest + frame.to(tl.int64) * (SIZE * SIZE * 4)
    rank = (1 - view).to(tl.int64) << 62
    for k in range(tl.max(count)):
        px, py = from_x + k % wide, from_y + k // wide
        place, is_left = (py * SIZE + px) * 4, k < count
        corners = (x0, y0, w0, x1, y1, w1, x2, y2, w2)
        key0 = _key_at(0, px, py, place, is_left, rank, triangle, *corners, scale, plane_depth)
        key1 = _key_at(1, px, py, place, is_left, rank, triangle, *corners, scale, plane_depth)
        key2 = _key_at(2, px, py, place, is_left, rank, triangle, *corners, scale, plane_depth)
        key3 = _key_at(3, px, py, place, is_left, rank, triangle, *corners, scale, plane_depth)
        # All are read before any is written: no read waits for another.
        is_nearer0 = key0 > tl.load(samples + place, mask=key0 != 0, other=0)
        is_nearer1 = key1 > tl.load(samples + place + 1, mask=key1 != 0, other=0)
        is_nearer2 = key2 > tl.load(samples + place + 2, mask=key2 != 0, other=0)
        is_nearer3 = key3 > tl.load(samples + place + 3, mask=key3 != 0, other=0)
        tl.atomic_max(samples + place, key0, mask=is_nearer0, sem="relaxed")
        tl.atomic_max(samples + place + 1, key1, mask=is_nearer1, sem="relaxed")
        tl.atomic_max(samples + place + 2, key2, mask=is_nearer2, sem="relaxed")
        tl.atomic_max(samples + place + 3, key3, mask=is_nearer3, sem="relaxed")
        is_any = is_nearer0 | is_nearer1 | is_nearer2 | is_nearer3
        tl.store(touched + frame * TILES + py // HIGH * COLUMNS + px // WIDE, 1, mask=is_any)


@triton.jit
def _samples(row, column, SIZE: tl.constexpr, WIDE: tl.constexpr, HIGH: tl.constexpr):
    """A tile's pixels [P, 1]: their numbers, which of them exist, their centres; and the places of samples [P, 4]."""
    at = tl.arange(0, WIDE * HIGH)[:, None]
    px, py = column * WIDE + at % WIDE, row * HIGH + at // WIDE
    pixel = py * SIZE + px
    places = tl.program_id(1).to(tl.int64) * (SIZE * SIZE * 4) + pixel * 4 + tl.arange(0, 4)[None, :]
    return pixel, (px < SIZE) & (py < SIZE), px.to(tl.float32) + 0.5, py.to(tl.float32) + 0.5, places


@triton.jit
def _seen_corners(key, is_seen, vertices, triangles, vertex_geom):
    """Geom, corners and their coordinates of the triangles in keys; of any triangle where none is seen."""
    triangle = tl.where(is_seen, _index_of(key) - 1, 0)
    i0 = tl.load(triangles + triangle * 3, mask=is_seen, other=0)
    i1 = tl.load(triangles + triangle * 3 + 1, mask=is_seen, other=0)
    i2 = tl.load(triangles + triangle * 3 + 2, mask=is_seen, other=0)
    ax, ay, az = tl.load(vertices + i0 * 3), tl.load(vertices + i0 * 3 + 1), tl.load(vertices + i0 * 3 + 2)
    bx, by, bz = tl.load(vertices + i1 * 3), tl.load(vertices + i1 * 3 + 1), tl.load(vertices + i1 * 3 + 2)
    cx, cy, cz = tl.load(vertices + i2 * 3), tl.load(vertices + i2 * 3 + 1), tl.load(vertices + i2 * 3 + 2)
    geom = tl.load(vertex_geom + i0, mask=is_seen, other=0)
    return geom, i0, i1, i2, ax, ay, az, bx, by, bz, cx, cy, cz


@triton.jit
def _weights(u, v, view, ax, ay, az, bx, by, bz, cx, cy, cz, focal, near, SIZE: tl.constexpr):
    """Shares of three corners in the point of their triangle that is seen at (u, v)."""
    x, y, z = _moved(view, ax, ay, az)
    x0, y0, w0 = _on_screen(x, y, z, focal, near, SIZE)
    x, y, z = _moved(view, bx, by, bz)
    x1, y1, w1 = _on_screen(x, y, z, focal, near, SIZE)
    x, y, z = _moved(view, cx, cy, cz)
    x2, y2, w2 = _on_screen(x, y, z, focal, near, SIZE)
    e0 = ((y1 - y2) * (u - x1) + (x2 - x1) * (v - y1)) * w0
    e1 = ((y2 - y0) * (u - x2) + (x0 - x2) * (v - y2)) * w1
    e2 = ((y0 - y1) * (u - x0) + (x1 - x0) * (v - y0)) * w2
    total = e0 + e1 + e2
    scale = 1.0 / tl.where(total == 0, 1.0, total)
    return e0 * scale, e1 * scale, e2 * scale


@triton.jit
def _in_light(depth, heights, place, ok):
    """Whether nothing on the map is above points of these depths."""
    return depth >= tl.load(heights + place, mask=ok, other=0).to(tl.float32, bitcast=True)


@triton.jit
def ask(
    nearest, touched, queries, asked, shadow_map, vertices, triangles, vertex_geom, poses, views, num_geoms, caster,
    focal, near, caster_near, caster_far, caster_focal,
    IS_SPOT: tl.constexpr, SIZE: tl.constexpr, SHADOW: tl.constexpr, WORDS: tl.constexpr, NUM_WORDS: tl.constexpr,
    WIDE: tl.constexpr, HIGH: tl.constexpr, COLUMNS: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """Texels that a row of tiles will compare: 0 in shadow_map [F, S, S], a bit of 1 in asked [F, NUM_WORDS].

    A word is 8 x 4 texels, so that the box of a small triangle touches few words; WORDS lie side by side.
    queries [F, n, n, 4] get depth and texel of the triangles that samples see, at their pixel's centre. `resolve` reads
    them there: another kernel that computed them anew could round to another texel.
    """
    row, frame = tl.program_id(0), tl.program_id(1)
    words = asked + frame.to(tl.int64) * NUM_WORDS
    texels = shadow_map + frame.to(tl.int64) * (SHADOW * SHADOW)
    for column in range(COLUMNS):
        if tl.load(touched + frame * TILES + row * COLUMNS + column) != 0:
            _, is_pixel, u, v, places = _samples(row, column, SIZE, WIDE, HIGH)
            key = tl.load(nearest + places, mask=is_pixel, other=0)
            is_seen = (key != 0) & ~_is_reflection(key)
            geom, _, _, _, ax, ay, az, bx, by, bz, cx, cy, cz = _seen_corners(
                key, is_seen, vertices, triangles, vertex_geom
            )
            view, pose = views + (frame * num_geoms + geom) * 12, poses + (frame * num_geoms + geom) * 12
            e0, e1, e2 = _weights(u, v, view, ax, ay, az, bx, by, bz, cx, cy, cz, focal, near, SIZE)
            x, y, z = e0 * ax + e1 * bx + e2 * cx, e0 * ay + e1 * by + e2 * cy, e0 * az + e1 * bz + e2 * cz
            x, y, z = _moved(pose, x, y, z)
            x, y, z = _moved(caster, x, y, z)
            x, y, depth = _on_map(x, y, z, caster_near, caster_far, caster_focal, IS_SPOT)
            tx = tl.minimum(tl.maximum((x * 0.5 + 0.5) * SHADOW, 0.0), SHADOW - 1.0).to(tl.int32)
            ty = tl.minimum(tl.maximum((y * 0.5 + 0.5) * SHADOW, 0.0), SHADOW - 1.0).to(tl.int32)
            depth = tl.maximum(depth, 0.0)  # beyond the far plane as on it: nothing casts a shadow from there
            tl.store(queries + places, _packed(depth, ty * SHADOW + tx), mask=is_seen)
            word, bit = words + ty // 4 * WORDS + tx // 8, 1 << (ty % 4 * 8 + tx % 8)
            is_new = is_seen & ((tl.load(word, mask=is_seen, other=0) & bit) == 0)
            tl.atomic_or(word, bit, mask=is_new, sem="relaxed")
            tl.store(texels + ty * SHADOW + tx, 0, mask=is_new)


@triton.jit
def _log2_of_bit(bit):
    """The place, 0 to 31, of the only bit of a word that is set: the exponent of its float."""
    return ((bit.to(tl.float32).to(tl.int32, bitcast=True) >> 23) & 255) - 127


@triton.jit
def cast(
    points, stride, whole, block_geom, views, num_geoms, plane_asked, plane_slots, plane_heights, asked, shadow_map,
    near, far, focal,
    IS_SPOT: tl.constexpr, SIZE: tl.constexpr, WORDS: tl.constexpr, NUM_WORDS: tl.constexpr, NUM_SLOTS: tl.constexpr,
    BLOCK: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """shadow_map [F, S, S] = max(shadow_map, depth - bias) where asked for, as bits of a float that is not negative.

    `block_geom` names the geom of PARTS blocks. Texels that planes compare are the same in every frame: plane_heights
    [F, slots] hold these. Of a triangle's box it looks at words, 8 x 4 texels each, and then at those of their texels
    that are asked for: often none.
    """
    block, frame = tl.program_id(0), tl.program_id(1)
    matrix = views + (frame * num_geoms + tl.load(block_geom + block // PARTS)) * 12
    at = block * BLOCK + tl.arange(0, BLOCK)
    ok = tl.load(whole + at) >= 0
    ax, ay, az = _corner(points, stride, at, ok, 0)
    bx, by, bz = _corner(points, stride, at, ok, 1)
    cx, cy, cz = _corner(points, stride, at, ok, 2)
    ax, ay, az = _moved(matrix, ax, ay, az)
    bx, by, bz = _moved(matrix, bx, by, bz)
    cx, cy, cz = _moved(matrix, cx, cy, cz)
    x0, y0, z0 = _on_map(ax, ay, az, near, far, focal, IS_SPOT)
    x1, y1, z1 = _on_map(bx, by, bz, near, far, focal, IS_SPOT)
    x2, y2, z2 = _on_map(cx, cy, cz, near, far, focal, IS_SPOT)
    # MuJoCo draws its map inside a border of one texel.
    x0, y0 = 1.0 + (x0 * 0.5 + 0.5) * (SIZE - 2), 1.0 + (y0 * 0.5 + 0.5) * (SIZE - 2)
    x1, y1 = 1.0 + (x1 * 0.5 + 0.5) * (SIZE - 2), 1.0 + (y1 * 0.5 + 0.5) * (SIZE - 2)
    x2, y2 = 1.0 + (x2 * 0.5 + 0.5) * (SIZE - 2), 1.0 + (y2 * 0.5 + 0.5) * (SIZE - 2)
    area = (x1 - x0) * (y2 - y0) - (x2 - x0) * (y1 - y0)
    low_x = tl.maximum(tl.ceil(tl.minimum(x0, tl.minimum(x1, x2)) - 0.5), 0.0)
    low_y = tl.maximum(tl.ceil(tl.minimum(y0, tl.minimum(y1, y2)) - 0.5), 0.0)
    high_x = tl.minimum(tl.floor(tl.maximum(x0, tl.maximum(x1, x2)) - 0.5), SIZE - 1.0)
    high_y = tl.minimum(tl.floor(tl.maximum(y0, tl.maximum(y1, y2)) - 0.5), SIZE - 1.0)
    ok = ok & (area != 0) & (high_x >= low_x) & (high_y >= low_y)
    ok = ok & (z0 < 1.0) & (z1 < 1.0) & (z2 < 1.0)  # none of a corner nearer than the map begins
    from_x = tl.where(ok, low_x, 0.0).to(tl.int32)
    from_y = tl.where(ok, low_y, 0.0).to(tl.int32)
    to_x = tl.where(ok, high_x, 0.0).to(tl.int32)
    to_y = tl.where(ok, high_y, 0.0).to(tl.int32)
    wide = to_x // 8 - from_x // 8 + 1
    count = tl.where(ok, wide * (to_y // 4 - from_y // 4 + 1), 0)
    scale = 1.0 / tl.where(area != 0, area, 1.0)
    a0, b0 = (y1 - y2) * scale, (x2 - x1) * scale
    a1, b1 = (y2 - y0) * scale, (x0 - x2) * scale
    a2, b2 = (y0 - y1) * scale, (x1 - x0) * scale
    slope = tl.maximum(tl.abs(a0 * z0 + a1 * z1 + a2 * z2), tl.abs(b0 * z0 + b1 * z1 + b2 * z2))
    bias = 1.5 * slope + 9.5367431640625e-07
    words = asked + frame.to(tl.int64) * NUM_WORDS
    texels = shadow_map + frame.to(tl.int64) * (SIZE * SIZE)
    heights = plane_heights + frame.to(tl.int64) * NUM_SLOTS
    for k in range(tl.max(count)):
        left, bottom = (from_x // 8 + k % wide) * 8, (from_y // 4 + k // wide) * 4
        columns = (255 << tl.maximum(from_x - left, 0)) & (255 >> tl.maximum(left + 7 - to_x, 0))
        rows = (-1 << (tl.maximum(from_y - bottom, 0) * 8)) & ~(-2 << (tl.minimum(to_y - bottom, 3) * 8 + 7))
        in_box = columns * 0x01010101 & rows
        word = bottom // 4 * WORDS + left // 8
        of_planes = tl.load(plane_asked + word, mask=k < count, other=0) & in_box
        of_triangles = tl.load(words + word, mask=k < count, other=0) & in_box
        bits = of_planes | of_triangles
        while tl.max((bits != 0).to(tl.int32)) > 0:
            lowest = bits & -bits
            bits ^= lowest
            bit = _log2_of_bit(lowest)
            px, py = left + bit % 8, bottom + bit // 8
            u, v = px.to(tl.float32) + 0.5, py.to(tl.float32) + 0.5
            e0 = a0 * (u - x1) + b0 * (v - y1)
            e1 = a1 * (u - x2) + b1 * (v - y2)
            e2 = a2 * (u - x0) + b2 * (v - y0)
            height = tl.maximum(e0 * z0 + e1 * z1 + e2 * z2 - bias, 0.0).to(tl.int32, bitcast=True)
            is_inside = (e0 >= 0) & (e1 >= 0) & (e2 >= 0)
            texel = py * SIZE + px
            is_plane = is_inside & ((of_planes & lowest) != 0)
            _raise(heights + tl.load(plane_slots + texel, mask=is_plane, other=0), height, is_plane)
            _raise(texels + texel, height, is_inside & ((of_triangles & lowest) != 0))


@triton.jit
def _eight_bits(colour):
    return tl.floor(tl.minimum(tl.maximum(colour, 0.0), 1.0) * 255.0 + 0.5)


@triton.jit
def _unit(x, y, z):
    scale = 1.0 / tl.sqrt(tl.maximum(x * x + y * y + z * z, 1e-20))
    return x * scale, y * scale, z * scale


@triton.jit
def _lit(x, y, z, nx, ny, nz, material, tint, eye, lights, NUM_LIGHTS: tl.constexpr):
    """Sums (r, g, b) of the lights without shadow, and of the caster, at corners with normals (nx, ny, nz)."""
    red, green, blue = tint * tl.load(material), tint * tl.load(material + 1), tint * tl.load(material + 2)
    specular, shininess = tl.load(material + 3), tl.load(material + 4)
    vx, vy, vz = _unit(tl.load(eye) - x, tl.load(eye + 1) - y, tl.load(eye + 2) - z)
    r0, g0, b0 = x * 0.0, x * 0.0, x * 0.0
    r1, g1, b1 = x * 0.0, x * 0.0, x * 0.0
    for which in range(NUM_LIGHTS):
        light = lights + which * 19
        far, casts, limit, exponent = tl.load(light), tl.load(light + 1), tl.load(light + 2), tl.load(light + 3)
        dx, dy, dz = tl.load(light + 4), tl.load(light + 5), tl.load(light + 6)
        lx, ly, lz = _unit(
            tl.load(light + 7) - (1.0 - far) * x - far * dx,
            tl.load(light + 8) - (1.0 - far) * y - far * dy,
            tl.load(light + 9) - (1.0 - far) * z - far * dz,
        )
        cosine = -(lx * dx + ly * dy + lz * dz)
        cone = tl.where(cosine >= limit, tl.exp2(exponent * tl.log2(tl.maximum(cosine, 1e-30))), 0.0)
        cone = tl.where(limit < -1.0, 1.0, cone)
        facing = nx * lx + ny * ly + nz * lz
        hx, hy, hz = _unit(lx + vx, ly + vy, lz + vz)
        half = nx * hx + ny * hy + nz * hz
        shine = specular * tl.exp2(shininess * tl.log2(tl.maximum(half, 1e-30)))
        shine = tl.where((facing > 0) & (half > 0), shine, 0.0)
        facing = tl.maximum(facing, 0.0)
        r = cone * (red * (tl.load(light + 10) + tl.load(light + 13) * facing) + tl.load(light + 16) * shine)
        g = cone * (green * (tl.load(light + 11) + tl.load(light + 14) * facing) + tl.load(light + 17) * shine)
        b = cone * (blue * (tl.load(light + 12) + tl.load(light + 15) * facing) + tl.load(light + 18) * shine)
        r0, g0, b0 = r0 + (1.0 - casts) * r, g0 + (1.0 - casts) * g, b0 + (1.0 - casts) * b
        r1, g1, b1 = r1 + casts * r, g1 + casts * g, b1 + casts * b
    return r0, g0, b0, r1, g1, b1


@triton.jit
def _plane_colours(
    pixel, ok, frame, lit, dark, plane_compared, plane_slot, plane_heights,
    HAS_CASTER: tl.constexpr, NUM_SLOTS: tl.constexpr,
):  # fmt: skip
    """(r, g, b) of pixels that see no triangle."""
    base = lit + pixel * 3
    if HAS_CASTER:
        depth = tl.load(plane_compared + pixel, mask=ok, other=0.0)
        slot = tl.load(plane_slot + pixel, mask=ok, other=0)
        is_lit = _in_light(depth, plane_heights + frame.to(tl.int64) * NUM_SLOTS, slot, ok)
        base = tl.where(is_lit, base, dark + pixel * 3)
    red, green = tl.load(base, mask=ok, other=0), tl.load(base + 1, mask=ok, other=0)
    return red, green, tl.load(base + 2, mask=ok, other=0)


@triton.jit
def _top_down(frame, pixel, SIZE: tl.constexpr):
    """Where a pixel lies in the frames that are given out."""
    return frame.to(tl.int64) * (SIZE * SIZE) + (SIZE - 1 - pixel // SIZE) * SIZE + pixel % SIZE


@triton.jit
def fill(
    out, lit, dark, plane_compared, plane_slot, plane_heights,
    HAS_CASTER: tl.constexpr, NUM_SLOTS: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The planes of BLOCK pixels of a frame; `resolve` draws the tiles anew where triangles are seen."""
    frame = tl.program_id(1)
    pixel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ok = pixel < SIZE * SIZE
    red, green, blue = _plane_colours(
        pixel, ok, frame, lit, dark, plane_compared, plane_slot, plane_heights, HAS_CASTER, NUM_SLOTS
    )
    place = out + _top_down(frame, pixel, SIZE) * 3
    tl.store(place, red, mask=ok)
    tl.store(place + 1, green, mask=ok)
    tl.store(place + 2, blue, mask=ok)


@triton.jit
def _mean(samples):
    """Of four samples [P, 4], rounded to 8 bits."""
    return tl.floor(tl.sum(samples, 1, keep_dims=True) * 0.25 + 0.5).to(tl.uint8)


@triton.jit
def _with_triangle(base, first, second, is_lit, is_seen, is_reflection):
    """A sample's colour: a triangle replaces that of the plane, and its reflection is added to it."""
    colour = tl.where(is_reflection, base.to(tl.float32) + _eight_bits(first), _eight_bits(first))
    colour = tl.minimum(colour + is_lit * _eight_bits(second), 255.0)
    return tl.where(is_seen, colour, base.to(tl.float32))


@triton.jit
def resolve(
    nearest, touched, queries, shadow_map, out, lit, dark, plane_compared, plane_slot, plane_heights, plane_points,
    vertices, triangles, vertex_geom, normals, poses, views, num_geoms, materials, lights, eyes, reflectance, focal,
    near,
    NUM_LIGHTS: tl.constexpr, HAS_CASTER: tl.constexpr, NUM_SLOTS: tl.constexpr, SIZE: tl.constexpr,
    SHADOW: tl.constexpr, WIDE: tl.constexpr, HIGH: tl.constexpr, COLUMNS: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """Colours of a row of tiles of a frame, of those in which a triangle or its reflection is seen."""
    row, frame = tl.program_id(0), tl.program_id(1)
    texels = shadow_map + frame.to(tl.int64) * (SHADOW * SHADOW)
    for column in range(COLUMNS):
        if tl.load(touched + frame * TILES + row * COLUMNS + column) != 0:
            pixel, is_pixel, u, v, places = _samples(row, column, SIZE, WIDE, HIGH)
            key = tl.load(nearest + places, mask=is_pixel, other=0)
            is_mirror = tl.load(plane_points + pixel * 4 + 3, mask=is_pixel, other=0.0) == 2
            is_reflection = (key != 0) & _is_reflection(key)
            is_seen = (key != 0) & (~is_reflection | is_mirror)
            geom, i0, i1, i2, ax, ay, az, bx, by, bz, cx, cy, cz = _seen_corners(
                key, is_seen, vertices, triangles, vertex_geom
            )
            pose, material = poses + (frame * num_geoms + geom) * 12, materials + geom * 5
            seen_from = is_reflection.to(tl.int32)
            view = views + ((seen_from * tl.num_programs(1) + frame) * num_geoms + geom) * 12
            tint = tl.where(is_reflection, reflectance, 1.0)
            e0, e1, e2 = _weights(u, v, view, ax, ay, az, bx, by, bz, cx, cy, cz, focal, near, SIZE)
            first_r, first_g, first_b = e0 * 0.0, e0 * 0.0, e0 * 0.0
            second_r, second_g, second_b = e0 * 0.0, e0 * 0.0, e0 * 0.0
            for corner in range(3):
                e = tl.where(corner == 0, e0, tl.where(corner == 1, e1, e2))
                i = tl.where(corner == 0, i0, tl.where(corner == 1, i1, i2))
                x = tl.where(corner == 0, ax, tl.where(corner == 1, bx, cx))
                y = tl.where(corner == 0, ay, tl.where(corner == 1, by, cy))
                z = tl.where(corner == 0, az, tl.where(corner == 1, bz, cz))
                x, y, z = _moved(pose, x, y, z)
                nx, ny, nz = _turned(
                    pose, tl.load(normals + i * 3), tl.load(normals + i * 3 + 1), tl.load(normals + i * 3 + 2)
                )
                r0, g0, b0, r1, g1, b1 = _lit(
                    x, y, z, nx, ny, nz, material, tint, eyes + seen_from * 3, lights, NUM_LIGHTS
                )
                # Reflections have one pass of all lights, without shadows.
                r0, r1 = tl.where(is_reflection, r0 + r1, r0), tl.where(is_reflection, 0.0, r1)
                g0, g1 = tl.where(is_reflection, g0 + g1, g0), tl.where(is_reflection, 0.0, g1)
                b0, b1 = tl.where(is_reflection, b0 + b1, b0), tl.where(is_reflection, 0.0, b1)
                first_r += e * tl.minimum(r0, 1.0)
                first_g += e * tl.minimum(g0, 1.0)
                first_b += e * tl.minimum(b0, 1.0)
                second_r += e * tl.minimum(r1, 1.0)
                second_g += e * tl.minimum(g1, 1.0)
                second_b += e * tl.minimum(b1, 1.0)
            is_lit = 1.0
            if HAS_CASTER:
                point = tl.load(queries + places, mask=is_seen & ~is_reflection, other=0)
                is_lit = _in_light(_depth_of(point), texels, _index_of(point), is_seen & ~is_reflection).to(tl.float32)
            base_r, base_g, base_b = _plane_colours(
                pixel, is_pixel, frame, lit, dark, plane_compared, plane_slot, plane_heights, HAS_CASTER, NUM_SLOTS
            )
            place = out + _top_down(frame, pixel, SIZE) * 3
            red = _with_triangle(base_r, first_r, second_r, is_lit, is_seen, is_reflection)
            tl.store(place, _mean(red), mask=is_pixel)
            green = _with_triangle(base_g, first_g, second_g, is_lit, is_seen, is_reflection)
            tl.store(place + 1, _mean(green), mask=is_pixel)
            blue = _with_triangle(base_b, first_b, second_b, is_lit, is_seen, is_reflection)
            tl.store(place + 2, _mean(blue), mask=is_pixel)
