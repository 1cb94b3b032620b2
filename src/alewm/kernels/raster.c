/* Draws frames of a scene of triangles as fixed-function OpenGL with 4x multisampling does; see raster.py.

   A frame is the picture of the planes, lit, changed where a triangle or a shadow falls:
     1. corners are projected, and every sample keeps the nearest triangle (`cover`);
     2. each triangle that a pixel sees becomes a fragment at the pixel's centre (`make_fragments`), and the corners of
        these triangles are lit (`light_corners`);
     3. the shadow map is never drawn: only the texels that fragments and planes ask for are compared with the triangles
        above them (`cast_shadows`), so the map's resolution costs nothing;
     4. samples are averaged (`resolve`).
   The arithmetic is plain IEEE float32 without contraction or library functions but sqrt, so a frame's bytes are the same
   on every machine. Nothing here checks sizes: raster.py is the only caller and does. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLES 4
#define CELL_TEXELS 8  /* texels that ask for a shadow are looked up in a grid of cells of so many texels a side */
#define MOST_CELLS 512
#define WIDE 8
#define IN_SHADOW 1e30f  /* the depth of a query that is answered: nothing is above it */
#define LANES 16
#define LIGHT_FLOATS 19
#define MATERIAL_FLOATS 5

typedef float lanes4 __attribute__((vector_size(16)));
typedef int32_t mask4 __attribute__((vector_size(16)));
typedef float lanes8 __attribute__((vector_size(4 * WIDE)));
typedef int32_t mask8 __attribute__((vector_size(4 * WIDE)));

typedef struct {
    int64_t num_vertices, num_triangles, num_geoms, num_lights, size, shadow_size;
    int64_t has_caster, caster_is_spot, has_mirror;
    const float *vertices, *normals;                 /* [V, 3] in the frame of their geom */
    const int32_t *triangles;                        /* [T, 3] */
    const int32_t *vertex_start, *triangle_geom;     /* [G + 1], [T] */
    const float *materials;                          /* [G, 5]: red, green, blue, specular, shininess */
    const float *lights;                             /* [L, 19]: see raster.py */
    const float *camera;                             /* [12]: world to camera, rows of [R | t] */
    const float *mirrored_camera;                    /* [12]: the same after reflection in the mirror */
    const float *eye, *mirrored_eye;                 /* [3] */
    const float *caster;                             /* [12]: world to the caster's coordinates */
    const float *plane_depth;                        /* [n, n, 4]: 1 / distance of the planes at every sample, 0 if none */
    const float *plane_points;                       /* [n, n, 4]: where pixel centres meet a plane; 0 none, 1 plane, 2 mirror */
    const uint8_t *lit, *dark;                       /* [n, n, 3], bottom row first */
    float focal, near, caster_near, caster_far, caster_focal, reflectance;
} scene_t;

typedef struct { float x, y, z; } point_t;
typedef struct { int32_t pixel, triangle, is_lit; float weight[3]; } fragment_t;

typedef struct {  /* points that ask whether they are in shadow, sorted by cell; WIDE that ask nothing follow the last */
    int32_t *start;  /* [cells * cells + 1] */
    float *x, *y, *z;
    int32_t *owner;
} queries_t;

typedef struct {
    float *x, *y, *w;          /* projected corners */
    float *depth, *mirror_depth;  /* [n, n, 4]: 1 / distance of the nearest */
    int32_t *nearest;          /* [n, n, 4], -1 for a plane or nothing */
    int32_t *touched;          /* pixels with a triangle */
    int64_t num_touched;
    fragment_t *fragments;
    int64_t num_fragments;
    int32_t *slot;             /* [V]: where a corner's colours are, -1 if not lit in this pass */
    int32_t *corners;          /* [slots] */
    float *colours;            /* [slots, 6] */
    int64_t num_slots;
    uint8_t *added;            /* [n, n, 4, 3]: reflections */
    uint8_t *in_shadow;        /* [n, n] */
    int32_t *shadowed;         /* pixels whose plane is in shadow, */
    int32_t *answered;         /* their queries, */
    float *depths;             /* and what depths these had */
    int32_t *reflecting;       /* pixels with a reflection */
    int64_t num_shadowed;
    queries_t planes, objects;
    float *query;              /* [4 n n, 3] unsorted texels and depths of the fragments */
} work_t;

static const float SAMPLE_X[SAMPLES] = {0.375f, 0.875f, 0.125f, 0.625f};
static const float SAMPLE_Y[SAMPLES] = {0.125f, 0.375f, 0.625f, 0.875f};

static inline float clamped(float value, float low, float high) {  /* `low` for what is no number */
    return value > low ? (value < high ? value : high) : low;
}

static inline float least(const float v[3]) { return v[0] < v[1] ? (v[0] < v[2] ? v[0] : v[2]) : (v[1] < v[2] ? v[1] : v[2]); }
static inline float most(const float v[3]) { return v[0] > v[1] ? (v[0] > v[2] ? v[0] : v[2]) : (v[1] > v[2] ? v[1] : v[2]); }

static inline point_t moved(const float *m, point_t p) {
    point_t q = {m[0] * p.x + m[1] * p.y + m[2] * p.z + m[3], m[4] * p.x + m[5] * p.y + m[6] * p.z + m[7],
                 m[8] * p.x + m[9] * p.y + m[10] * p.z + m[11]};
    return q;
}

static void compose(const float *a, const float *b, float *out) {  /* out(p) = a(b(p)) */
    for (int i = 0; i < 3; i++) {
        for (int j = 0; j < 4; j++) {
            out[4 * i + j] = a[4 * i] * b[j] + a[4 * i + 1] * b[4 + j] + a[4 * i + 2] * b[8 + j] + (j == 3 ? a[4 * i + 3] : 0);
        }
    }
}

static inline float exp2_of(float x) {  /* |x| < 126, else clamped */
    x = clamped(x, -126.0f, 126.0f);
    float whole = (float)(int32_t)(x + (x < 0 ? -0.5f : 0.5f));
    float f = x - whole;
    float p = 1.0f + f * (0.69314718f + f * (0.24022651f + f * (0.05550411f + f * (0.00961813f + f * (0.00133336f + f * 0.00015403f)))));
    union { int32_t i; float f; } scale = {((int32_t)whole + 127) * (1 << 23)};
    return p * scale.f;
}

static inline float log2_of(float x) {  /* x > 0 and normal */
    union { float f; int32_t i; } bits = {x};
    int32_t exponent = ((bits.i - 0x3f3504f3) >> 23);
    bits.i -= exponent * (1 << 23);  /* now from sqrt(1/2) to sqrt(2) */
    float s = (bits.f - 1.0f) / (bits.f + 1.0f), q = s * s;
    return (float)exponent + s * (2.88539008f + q * (0.96179669f + q * (0.57707802f + q * (0.41219859f + q * 0.32059890f))));
}

static inline float power_of(float base, float exponent) {
    return exp2_of(exponent * log2_of(base < 1e-30f ? 1e-30f : base));
}

/* ---- 1. which triangle every sample sees ---- */

static void project(const scene_t *s, const float *poses, const float *view, work_t *k) {
    float half = 0.5f * (float)s->size, focal = s->focal, near = s->near;
    for (int64_t g = 0; g < s->num_geoms; g++) {
        float m[12];
        compose(view, poses + 12 * g, m);
        for (int64_t i = s->vertex_start[g]; i < s->vertex_start[g + 1]; i++) {
            const float *v = s->vertices + 3 * i;
            float a = m[0] * v[0] + m[1] * v[1] + m[2] * v[2] + m[3];
            float b = m[4] * v[0] + m[5] * v[1] + m[6] * v[2] + m[7];
            float d = -(m[8] * v[0] + m[9] * v[1] + m[10] * v[2] + m[11]);
            float w = d > near ? 1.0f / d : 0.0f;  /* 0 marks a corner that is too near to be seen */
            k->w[i] = w;
            k->x[i] = (focal * a * w + 1.0f) * half;
            k->y[i] = (focal * b * w + 1.0f) * half;
        }
    }
}

static void cover(const scene_t *s, int mirrored, float *depths, work_t *k) {
    const lanes4 sample_x = {SAMPLE_X[0], SAMPLE_X[1], SAMPLE_X[2], SAMPLE_X[3]};
    const lanes4 sample_y = {SAMPLE_Y[0], SAMPLE_Y[1], SAMPLE_Y[2], SAMPLE_Y[3]};
    float last = (float)s->size - 1.0f;
    int64_t n = s->size;
    k->num_touched = 0;
    for (int64_t t = 0; t < s->num_triangles; t++) {
        const int32_t *corner = s->triangles + 3 * t;
        int32_t i0 = corner[0], i1 = corner[mirrored ? 2 : 1], i2 = corner[mirrored ? 1 : 2];
        float x0 = k->x[i0], x1 = k->x[i1], x2 = k->x[i2], y0 = k->y[i0], y1 = k->y[i1], y2 = k->y[i2];
        float area = (x1 - x0) * (y2 - y0) - (x2 - x0) * (y1 - y0);
        if (!(area > 0.0f)) continue;
        /* Samples lie 1/8 inside their pixel. */
        float xs[3] = {x0, x1, x2}, ys[3] = {y0, y1, y2};
        float low_x = least(xs), high_x = most(xs), low_y = least(ys), high_y = most(ys);
        low_x += 0.125f, low_y += 0.125f, high_x -= 0.125f, high_y -= 0.125f;
        if (!(high_x >= 0.0f && high_y >= 0.0f && low_x < last + 1.0f && low_y < last + 1.0f)) continue;
        int32_t from_x = low_x > 0.0f ? (int32_t)low_x : 0, to_x = high_x < last ? (int32_t)high_x : (int32_t)last;
        int32_t from_y = low_y > 0.0f ? (int32_t)low_y : 0, to_y = high_y < last ? (int32_t)high_y : (int32_t)last;
        if (from_x > to_x || from_y > to_y) continue;
        float w0 = k->w[i0], w1 = k->w[i1], w2 = k->w[i2];
        if (w0 == 0.0f || w1 == 0.0f || w2 == 0.0f) continue;
        float scale = 1.0f / area;
        float a0 = y1 - y2, b0 = x2 - x1, a1 = y2 - y0, b1 = x0 - x2, a2 = y0 - y1, b2 = x1 - x0;
        for (int32_t py = from_y; py <= to_y; py++) {
            for (int32_t px = from_x; px <= to_x; px++) {
                lanes4 u = sample_x + (float)px, v = sample_y + (float)py;
                lanes4 e0 = a0 * (u - x1) + b0 * (v - y1), e1 = a1 * (u - x2) + b1 * (v - y2), e2 = a2 * (u - x0) + b2 * (v - y0);
                mask4 inside = (e0 >= 0.0f) & (e1 >= 0.0f) & (e2 >= 0.0f);
                if (!(inside[0] | inside[1] | inside[2] | inside[3])) continue;
                int64_t pixel = py * n + px;
                float *depth = depths + SAMPLES * pixel;
                int32_t *nearest = k->nearest + SAMPLES * pixel;
                lanes4 z = (e0 * w0 + e1 * w1 + e2 * w2) * scale, before;
                mask4 owner;
                memcpy(&before, depth, sizeof before);
                memcpy(&owner, nearest, sizeof owner);
                inside &= z >= before;  /* of equal depths the later one is seen, as in MuJoCo */
                if (!(inside[0] | inside[1] | inside[2] | inside[3])) continue;
                if ((owner[0] & owner[1] & owner[2] & owner[3]) == -1) k->touched[k->num_touched++] = (int32_t)pixel;
                mask4 bits_z = (mask4)z, bits_before = (mask4)before;
                bits_z = (bits_z & inside) | (bits_before & ~inside);
                owner = ((int32_t)t & inside) | (owner & ~inside);
                memcpy(depth, &bits_z, sizeof bits_z);
                memcpy(nearest, &owner, sizeof owner);
            }
        }
    }
}

/* ---- 2. fragments, and the colours of their corners ---- */

static void make_fragments(const scene_t *s, work_t *k) {
    int64_t n = s->size;
    k->num_fragments = k->num_slots = 0;
    for (int64_t i = 0; i < k->num_touched; i++) {
        int32_t pixel = k->touched[i];
        const int32_t *nearest = k->nearest + SAMPLES * (int64_t)pixel;
        for (int sample = 0; sample < SAMPLES; sample++) {
            int32_t t = nearest[sample];
            int is_new = t >= 0;
            for (int earlier = 0; earlier < sample; earlier++) is_new &= nearest[earlier] != t;
            if (!is_new) continue;
            const int32_t *corner = s->triangles + 3 * (int64_t)t;
            float u = (float)(pixel % n) + 0.5f, v = (float)(pixel / n) + 0.5f, total = 0.0f;
            fragment_t *fragment = k->fragments + k->num_fragments++;
            fragment->pixel = pixel, fragment->triangle = t, fragment->is_lit = 1;
            for (int c = 0; c < 3; c++) {
                int32_t a = corner[(c + 1) % 3], b = corner[(c + 2) % 3];
                float e = (k->y[a] - k->y[b]) * (u - k->x[a]) + (k->x[b] - k->x[a]) * (v - k->y[a]);
                fragment->weight[c] = e * k->w[corner[c]];
                total += fragment->weight[c];
                if (k->slot[corner[c]] < 0) {
                    k->slot[corner[c]] = (int32_t)k->num_slots;
                    k->corners[k->num_slots++] = corner[c];
                }
            }
            float scale = 1.0f / (total == 0.0f ? 1.0f : total);
            for (int c = 0; c < 3; c++) fragment->weight[c] *= scale;
        }
    }
}

static int64_t geom_of(const scene_t *s, int32_t vertex) {
    int64_t low = 0, high = s->num_geoms;  /* vertex_start[low] <= vertex < vertex_start[high] */
    while (high - low > 1) {
        int64_t middle = (low + high) / 2;
        if (s->vertex_start[middle] <= vertex) low = middle; else high = middle;
    }
    return low;
}

static void light_corners(const scene_t *s, const float *poses, int mirrored, work_t *k) {
    const float *eye = mirrored ? s->mirrored_eye : s->eye;
    float tint = mirrored ? s->reflectance : 1.0f;
    for (int64_t first = 0; first < k->num_slots; first += LANES) {
        float p[3][LANES], n[3][LANES], v[3][LANES], colour[3][LANES], specular[LANES], shininess[LANES], sum[6][LANES];
        for (int l = 0; l < LANES; l++) {
            int64_t at = first + l < k->num_slots ? first + l : k->num_slots - 1;
            int32_t i = k->corners[at];
            int64_t g = geom_of(s, i);
            const float *m = poses + 12 * g, *a = s->vertices + 3 * (int64_t)i, *b = s->normals + 3 * (int64_t)i;
            const float *material = s->materials + MATERIAL_FLOATS * g;
            for (int c = 0; c < 3; c++) {
                p[c][l] = m[4 * c] * a[0] + m[4 * c + 1] * a[1] + m[4 * c + 2] * a[2] + m[4 * c + 3];
                n[c][l] = m[4 * c] * b[0] + m[4 * c + 1] * b[1] + m[4 * c + 2] * b[2];
                colour[c][l] = tint * material[c];
                sum[c][l] = sum[3 + c][l] = 0.0f;
            }
            specular[l] = material[3], shininess[l] = material[4];
        }
        for (int l = 0; l < LANES; l++) {
            float x = eye[0] - p[0][l], y = eye[1] - p[1][l], z = eye[2] - p[2][l];
            float scale = 1.0f / sqrtf(x * x + y * y + z * z);
            v[0][l] = x * scale, v[1][l] = y * scale, v[2][l] = z * scale;
        }
        for (int64_t which = 0; which < s->num_lights; which++) {
            const float *light = s->lights + LIGHT_FLOATS * which;
            float is_far = light[0], casts = light[1], cosine_limit = light[2], exponent = light[3];
            const float *direction = light + 4, *place = light + 7, *ambient = light + 10, *diffuse = light + 13;
            const float *gloss = light + 16;
            for (int l = 0; l < LANES; l++) {
                float x = place[0] - (1.0f - is_far) * p[0][l] - is_far * direction[0];
                float y = place[1] - (1.0f - is_far) * p[1][l] - is_far * direction[1];
                float z = place[2] - (1.0f - is_far) * p[2][l] - is_far * direction[2];
                float scale = 1.0f / sqrtf(x * x + y * y + z * z);
                x *= scale, y *= scale, z *= scale;
                float cosine = -(x * direction[0] + y * direction[1] + z * direction[2]);
                float cone = power_of(cosine, exponent);
                cone = cosine >= cosine_limit ? cone : 0.0f;
                cone = cosine_limit < -1.0f ? 1.0f : cone;
                float facing = n[0][l] * x + n[1][l] * y + n[2][l] * z;
                float hx = x + v[0][l], hy = y + v[1][l], hz = z + v[2][l];
                float length = hx * hx + hy * hy + hz * hz;
                float half = (n[0][l] * hx + n[1][l] * hy + n[2][l] * hz) / sqrtf(length < 1e-20f ? 1e-20f : length);
                float shine = specular[l] * power_of(half, shininess[l]);
                shine = facing > 0.0f && half > 0.0f ? shine : 0.0f;
                facing = facing > 0.0f ? facing : 0.0f;
                for (int c = 0; c < 3; c++) {
                    float value = cone * (colour[c][l] * (ambient[c] + diffuse[c] * facing) + gloss[c] * shine);
                    sum[c][l] += (1.0f - casts) * value;
                    sum[3 + c][l] += casts * value;
                }
            }
        }
        for (int l = 0; l < LANES && first + l < k->num_slots; l++) {
            float *out = k->colours + 6 * (first + l);
            for (int c = 0; c < 3; c++) {
                if (mirrored) out[c] = clamped(sum[c][l] + sum[3 + c][l], 0.0f, 1.0f), out[3 + c] = 0.0f;
                else out[c] = clamped(sum[c][l], 0.0f, 1.0f), out[3 + c] = clamped(sum[3 + c][l], 0.0f, 1.0f);
            }
        }
    }
}

static inline float eight_bits(float value) {
    return (float)(int32_t)(clamped(value, 0.0f, 1.0f) * 255.0f + 0.5f);
}

static void fragment_colour(const scene_t *s, const work_t *k, const fragment_t *f, float out[3]) {
    const int32_t *corner = s->triangles + 3 * (int64_t)f->triangle;
    for (int c = 0; c < 3; c++) {
        float plain = 0.0f, cast = 0.0f;
        for (int i = 0; i < 3; i++) {
            const float *colours = k->colours + 6 * (int64_t)k->slot[corner[i]];
            plain += f->weight[i] * colours[c], cast += f->weight[i] * colours[3 + c];
        }
        float sum = eight_bits(plain) + (f->is_lit ? eight_bits(cast) : 0.0f);
        out[c] = sum > 255.0f ? 255.0f : sum;
    }
}

static void forget_corners(work_t *k) {
    for (int64_t i = 0; i < k->num_slots; i++) k->slot[k->corners[i]] = -1;
}

/* ---- 3. shadows ---- */

static inline point_t in_map(const scene_t *s, point_t p) {  /* from the caster's coordinates to -1 .. 1 and reversed depth */
    float d = -p.z, near = s->caster_near, far = s->caster_far, focal = s->caster_focal;
    if (s->caster_is_spot) {
        d = d > near ? d : near;
        point_t q = {focal * p.x / d, focal * p.y / d, near * (far - d) / (d * (far - near))};
        return q;
    }
    point_t q = {focal * p.x, focal * p.y, (far - d) / (far - near)};
    return q;
}

static void texel_of(const scene_t *s, point_t world, float out[3]) {
    point_t q = in_map(s, moved(s->caster, world));
    float S = (float)s->shadow_size;
    out[0] = (float)(int32_t)clamped((q.x * 0.5f + 0.5f) * S, 0.0f, S - 1.0f) + 0.5f;
    out[1] = (float)(int32_t)clamped((q.y * 0.5f + 0.5f) * S, 0.0f, S - 1.0f) + 0.5f;
    out[2] = q.z > 0.0f ? q.z : 0.0f;  /* beyond the far plane as on it: nothing casts a shadow from there */
}

static inline int32_t num_cells(const scene_t *s) {
    int64_t cells = s->shadow_size / CELL_TEXELS;
    return cells < 1 ? 1 : cells > MOST_CELLS ? MOST_CELLS : (int32_t)cells;
}

static inline int32_t cell_of(float texel, float scale, int32_t cells) {
    return (int32_t)clamped(texel * scale, 0.0f, (float)(cells - 1));
}

static void sort_queries(const scene_t *s, const float *texels, const int32_t *owners, int64_t count, queries_t *out) {
    int32_t *start = out->start, cells = num_cells(s);
    float scale = (float)cells / (float)s->shadow_size;
    memset(start, 0, ((int64_t)cells * cells + 1) * sizeof *start);
    for (int64_t i = 0; i < count; i++) {
        start[cells * cell_of(texels[3 * i + 1], scale, cells) + cell_of(texels[3 * i], scale, cells) + 1]++;
    }
    for (int64_t c = 0; c < (int64_t)cells * cells; c++) start[c + 1] += start[c];
    for (int64_t i = count - 1; i >= 0; i--) {  /* from the back: every cell's end becomes its start */
        int32_t at = --start[cells * cell_of(texels[3 * i + 1], scale, cells) + cell_of(texels[3 * i], scale, cells) + 1];
        out->x[at] = texels[3 * i], out->y[at] = texels[3 * i + 1], out->z[at] = texels[3 * i + 2];
        out->owner[at] = owners ? owners[i] : (int32_t)i;
    }
    memmove(start, start + 1, (int64_t)cells * cells * sizeof *start);
    start[(int64_t)cells * cells] = (int32_t)count;
    for (int i = 0; i < WIDE; i++) out->x[count + i] = out->y[count + i] = 0.0f, out->z[count + i] = IN_SHADOW;
}

static void plane_queries(const scene_t *s, work_t *k) {
    int64_t pixels = s->size * s->size, count = 0;
    int32_t *owners = k->touched;  /* free until the first frame */
    for (int64_t pixel = 0; pixel < pixels; pixel++) {
        const float *point = s->plane_points + 4 * pixel;
        if (point[3] == 0.0f) continue;
        point_t world = {point[0], point[1], point[2]};
        texel_of(s, world, k->query + 3 * count);
        owners[count++] = (int32_t)pixel;
    }
    sort_queries(s, k->query, owners, count, &k->planes);
}

static void object_queries(const scene_t *s, const float *poses, work_t *k) {
    for (int64_t i = 0; i < k->num_fragments; i++) {
        const fragment_t *f = k->fragments + i;
        const int32_t *corner = s->triangles + 3 * (int64_t)f->triangle;
        const float *m = poses + 12 * (int64_t)s->triangle_geom[f->triangle];
        point_t own = {0.0f, 0.0f, 0.0f};
        for (int c = 0; c < 3; c++) {
            const float *v = s->vertices + 3 * (int64_t)corner[c];
            own.x += f->weight[c] * v[0], own.y += f->weight[c] * v[1], own.z += f->weight[c] * v[2];
        }
        texel_of(s, moved(m, own), k->query + 3 * i);
    }
    sort_queries(s, k->query, NULL, k->num_fragments, &k->objects);
}

typedef struct { float x[3], y[3], z[3], a[3], b[3], bias; int state; } shade_t;  /* state: 0 new, 1 ready, 2 without area */

static int is_above(shade_t *t, float u, float v, float z) {  /* whether the triangle keeps the light from (u, v, z) */
    if (t->state == 0) {
        float area = (t->x[1] - t->x[0]) * (t->y[2] - t->y[0]) - (t->x[2] - t->x[0]) * (t->y[1] - t->y[0]);
        float slope_x = 0.0f, slope_y = 0.0f, scale = 1.0f / area;
        for (int c = 0; c < 3; c++) {
            int next = (c + 1) % 3, last = (c + 2) % 3;
            t->a[c] = (t->y[next] - t->y[last]) * scale, t->b[c] = (t->x[last] - t->x[next]) * scale;
            slope_x += t->a[c] * t->z[c], slope_y += t->b[c] * t->z[c];
        }
        slope_x = fabsf(slope_x), slope_y = fabsf(slope_y);
        t->bias = 1.5f * (slope_x > slope_y ? slope_x : slope_y) + 9.5367431640625e-07f;
        t->state = area == 0.0f ? 2 : 1;
    }
    if (t->state == 2) return 0;
    float depth = 0.0f;
    for (int c = 0; c < 3; c++) {
        int next = (c + 1) % 3;
        float e = t->a[c] * (u - t->x[next]) + t->b[c] * (v - t->y[next]);
        if (!(e >= 0.0f)) return 0;
        depth += e * t->z[c];
    }
    return z < depth - t->bias;
}

static void cast_shadows(const scene_t *s, const float *poses, work_t *k) {
    float S = (float)s->shadow_size;
    for (int64_t g = 0; g < s->num_geoms; g++) {  /* MuJoCo draws its map inside a border of one texel */
        float m[12];
        compose(s->caster, poses + 12 * g, m);
        for (int64_t i = s->vertex_start[g]; i < s->vertex_start[g + 1]; i++) {
            const float *v = s->vertices + 3 * i;
            point_t p = {v[0], v[1], v[2]}, q = in_map(s, moved(m, p));
            k->x[i] = 1.0f + (q.x * 0.5f + 0.5f) * (S - 2.0f);
            k->y[i] = 1.0f + (q.y * 0.5f + 0.5f) * (S - 2.0f);
            k->w[i] = q.z;
        }
    }
    int32_t cells = num_cells(s);
    float scale = (float)cells / S;
    queries_t *both[2] = {&k->planes, &k->objects};
    for (int64_t t = 0; t < s->num_triangles; t++) {
        const int32_t *corner = s->triangles + 3 * t;
        shade_t shade = {{k->x[corner[0]], k->x[corner[1]], k->x[corner[2]]}, {k->y[corner[0]], k->y[corner[1]], k->y[corner[2]]},
                         {k->w[corner[0]], k->w[corner[1]], k->w[corner[2]]}, {0}, {0}, 0.0f, 0};
        float low_x = least(shade.x), high_x = most(shade.x), low_y = least(shade.y), high_y = most(shade.y), top = most(shade.z);
        if (!(high_x >= 0.0f && high_y >= 0.0f && low_x <= S && low_y <= S && top < 1.0f)) continue;  /* 1: too near */
        int32_t from_x = cell_of(low_x, scale, cells), to_x = cell_of(high_x, scale, cells);
        int32_t from_y = cell_of(low_y, scale, cells), to_y = cell_of(high_y, scale, cells);
        for (int which = 0; which < 2; which++) {
            queries_t *q = both[which];
            for (int32_t row = from_y; row <= to_y; row++) {
                int32_t end = q->start[cells * row + to_x + 1];
                for (int32_t i = q->start[cells * row + from_x]; i < end; i += WIDE) {
                    lanes8 u, v, z;
                    memcpy(&u, q->x + i, sizeof u), memcpy(&v, q->y + i, sizeof v), memcpy(&z, q->z + i, sizeof z);
                    mask8 asks = (u >= low_x) & (u <= high_x) & (v >= low_y) & (v <= high_y) & (z < top);
                    int64_t bits[WIDE / 2];
                    memcpy(bits, &asks, sizeof bits);
                    if (!(bits[0] | bits[1] | bits[2] | bits[3])) continue;
                    for (int lane = 0; lane < WIDE; lane++) {
                        if (!asks[lane] || !is_above(&shade, u[lane], v[lane], z[lane])) continue;
                        int32_t owner = q->owner[i + lane];
                        q->z[i + lane] = IN_SHADOW;
                        if (which) {
                            k->fragments[owner].is_lit = 0;
                        } else if (!k->in_shadow[owner]) {
                            k->in_shadow[owner] = 1;
                            k->answered[k->num_shadowed] = i + lane, k->depths[k->num_shadowed] = z[lane];
                            k->shadowed[k->num_shadowed++] = owner;
                        }
                    }
                }
            }
        }
    }
    for (int64_t i = 0; i < k->num_shadowed; i++) k->planes.z[k->answered[i]] = k->depths[i];
}

/* ---- 4. pixels ---- */

static void add_reflections(const scene_t *s, work_t *k) {
    float colour[3];
    for (int64_t i = 0; i < k->num_fragments; i++) {
        const fragment_t *f = k->fragments + i;
        if (s->plane_points[4 * (int64_t)f->pixel + 3] != 2.0f) continue;
        fragment_colour(s, k, f, colour);
        for (int sample = 0; sample < SAMPLES; sample++) {
            if (k->nearest[SAMPLES * (int64_t)f->pixel + sample] != f->triangle) continue;
            for (int c = 0; c < 3; c++) k->added[3 * (SAMPLES * (int64_t)f->pixel + sample) + c] = (uint8_t)colour[c];
        }
    }
}

static void resolve(const scene_t *s, work_t *k, const int32_t *also, int64_t num_also, uint8_t *out) {
    int64_t n = s->size, next = 0;
    for (int64_t i = 0; i < k->num_shadowed; i++) {  /* `dark` first; triangles and reflections go over it */
        int64_t pixel = k->shadowed[i];
        memcpy(out + 3 * ((n - 1 - pixel / n) * n + pixel % n), s->dark + 3 * pixel, 3);
    }
    for (int pass = 0; pass < 2; pass++) {
        int64_t count = pass ? num_also : k->num_touched;
        for (int64_t i = 0; i < count; i++) {
            int64_t pixel = pass ? also[i] : k->touched[i];
            const int32_t *nearest = k->nearest + SAMPLES * pixel;
            if (pass && (nearest[0] & nearest[1] & nearest[2] & nearest[3]) != -1) continue;  /* done with the triangles */
            const uint8_t *base = (k->in_shadow[pixel] ? s->dark : s->lit) + 3 * pixel;
            float sum[3] = {0.0f, 0.0f, 0.0f}, colours[SAMPLES][3];
            int32_t owners[SAMPLES];
            int num_owners = 0;
            for (; !pass && next < k->num_fragments && k->fragments[next].pixel == pixel; next++) {
                owners[num_owners] = k->fragments[next].triangle;
                fragment_colour(s, k, k->fragments + next, colours[num_owners++]);
            }
            for (int sample = 0; sample < SAMPLES; sample++) {
                int which = 0;
                while (which < num_owners && owners[which] != nearest[sample]) which++;
                for (int c = 0; c < 3; c++) {
                    float value = (float)base[c];
                    if (which < num_owners) value = colours[which][c];
                    else if (s->has_mirror) value += (float)k->added[3 * (SAMPLES * pixel + sample) + c];
                    sum[c] += value > 255.0f ? 255.0f : value;
                }
            }
            uint8_t *to = out + 3 * ((n - 1 - pixel / n) * n + pixel % n);
            for (int c = 0; c < 3; c++) to[c] = (uint8_t)(int32_t)(sum[c] * 0.25f + 0.5f);
        }
    }
}

static void forget_pixels(const float *empty, float *depth, work_t *k) {
    for (int64_t i = 0; i < k->num_touched; i++) {
        int64_t at = SAMPLES * (int64_t)k->touched[i];
        for (int sample = 0; sample < SAMPLES; sample++) {
            k->nearest[at + sample] = -1;
            depth[at + sample] = empty ? empty[at + sample] : 0.0f;
        }
    }
}

static void draw(const scene_t *s, const float *poses, work_t *k, uint8_t *out) {
    int64_t n = s->size, num_reflecting = 0;
    int32_t *reflecting = k->reflecting;
    for (int64_t row = 0; row < n; row++) memcpy(out + 3 * n * row, s->lit + 3 * n * (n - 1 - row), 3 * n);
    if (s->has_mirror) {
        project(s, poses, s->mirrored_camera, k);
        cover(s, 1, k->mirror_depth, k);
        make_fragments(s, k);
        light_corners(s, poses, 1, k);
        add_reflections(s, k);
        forget_corners(k);
        forget_pixels(NULL, k->mirror_depth, k);
        num_reflecting = k->num_touched;
        memcpy(reflecting, k->touched, num_reflecting * sizeof *reflecting);
    }
    project(s, poses, s->camera, k);
    cover(s, 0, k->depth, k);
    make_fragments(s, k);
    light_corners(s, poses, 0, k);
    k->num_shadowed = 0;
    if (s->has_caster) {
        object_queries(s, poses, k);
        cast_shadows(s, poses, k);
    }
    resolve(s, k, reflecting, num_reflecting, out);
    forget_corners(k);
    forget_pixels(s->plane_depth, k->depth, k);
    for (int64_t i = 0; i < k->num_shadowed; i++) k->in_shadow[k->shadowed[i]] = 0;
    for (int64_t i = 0; i < num_reflecting; i++) memset(k->added + 3 * SAMPLES * (int64_t)reflecting[i], 0, 3 * SAMPLES);
}

typedef struct { char *memory; int64_t used; } arena_t;

static void *part(arena_t *at, int64_t count, int64_t bytes) {  /* the next piece; without memory its size is counted */
    void *piece = at->memory ? at->memory + at->used : NULL;
    at->used += (count * bytes + 63) / 64 * 64;
    return piece;
}

static int64_t lay_out(const scene_t *s, work_t *k, char *memory) {  /* the bytes that all buffers take */
    arena_t at = {memory, 0};
    int64_t V = s->num_vertices, pixels = s->size * s->size, samples = SAMPLES * pixels;
    k->x = part(&at, V, 4), k->y = part(&at, V, 4), k->w = part(&at, V, 4);
    k->slot = part(&at, V, 4), k->corners = part(&at, V, 4), k->colours = part(&at, 6 * V, 4);
    k->depth = part(&at, samples, 4), k->mirror_depth = part(&at, s->has_mirror ? samples : 0, 4);
    k->nearest = part(&at, samples, 4), k->touched = part(&at, pixels, 4), k->shadowed = part(&at, pixels, 4);
    k->answered = part(&at, pixels, 4), k->depths = part(&at, pixels, 4);
    k->reflecting = part(&at, pixels, 4), k->in_shadow = part(&at, pixels, 1);
    k->added = part(&at, s->has_mirror ? 3 * samples : 0, 1);
    k->fragments = part(&at, samples, sizeof(fragment_t)), k->query = part(&at, 3 * samples, 4);
    queries_t *both[2] = {&k->planes, &k->objects};
    for (int i = 0; i < 2; i++) {
        int64_t most = (i ? samples : pixels) + WIDE, cells = num_cells(s);
        both[i]->start = part(&at, cells * cells + 1, 4), both[i]->owner = part(&at, most, 4);
        both[i]->x = part(&at, most, 4), both[i]->y = part(&at, most, 4), both[i]->z = part(&at, most, 4);
    }
    return at.used;
}

/* Frames first .. last - 1 of `poses` [F, G, 12] (geom to world) into `out` [F, n, n, 3], top row first; 1 without memory. */
int draw_frames(const scene_t *s, const float *poses, uint8_t *out, int64_t first, int64_t last) {
    work_t k;
    int64_t samples = SAMPLES * s->size * s->size;
    char *memory = calloc(1, (size_t)lay_out(s, &k, NULL) + 64);
    if (!memory) return 1;
    lay_out(s, &k, memory + (64 - (uintptr_t)memory % 64) % 64);
    memset(k.slot, 0xff, s->num_vertices * sizeof *k.slot);
    memset(k.nearest, 0xff, samples * sizeof *k.nearest);
    memcpy(k.depth, s->plane_depth, samples * sizeof(float));
    if (s->has_caster) plane_queries(s, &k);
    for (int64_t f = first; f < last; f++) {
        draw(s, poses + 12 * s->num_geoms * f, &k, out + 3 * s->size * s->size * f);
    }
    free(memory);
    return 0;
}
