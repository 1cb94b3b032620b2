/* The characteristic function of a prefix mixture, and its gradient, without ever writing the projections down.
 *
 * s is [G, N, D], u is [H, D, P], q is [H, N, C]; `shared` = G / H consecutive groups use the same u and q. Results are
 * [G, Q, P]: sum_n sum_c q[n, c] exp(i tau u' M_c s_n). A vector holds neighbouring projections. The projection of a
 * prefix is the one of the shorter prefix plus the block between them. Two samples advance together to hide the
 * latency of the recurrence; an odd last one is paired with itself at weight zero. Sums run over chunks of samples
 * first, which keeps float32 rounding far below the statistic's own noise. Vector types are those of GCC and Clang.
 */
#include <string.h>

#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX__)
#define LANES 8
#else
#define LANES 4
#endif
#define CHUNK 16 /* samples summed before they are added to the total */
#define MAX_KNOTS 64
#define MAX_WIDTH 1024
#define MAX_CAPACITIES 64

typedef float vec __attribute__((vector_size(LANES * 4)));
typedef int ivec __attribute__((vector_size(LANES * 4)));

static inline vec pick(ivec mask, vec yes, vec no) { return (vec)(((ivec)yes & mask) | ((ivec)no & ~mask)); }

/* sin and cos by reduction to [-pi/4, pi/4] and minimax polynomials; error below 2 units in the last place there. */
static inline void sin_cos(vec angle, vec *sine, vec *cosine) {
    const float shift = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer, which appears in the low bits */
    vec shifted = angle * 0.636619772f + shift;
    ivec k = (ivec)shifted;
    vec quarter = shifted - shift;
    vec r = angle - quarter * 1.5703125f;
    r -= quarter * 4.837512969970703125e-4f;
    r -= quarter * 7.549789948768648e-8f;
    vec r2 = r * r;
    vec s = r + r * r2 * (-1.6666654611e-1f + r2 * (8.3321608736e-3f + r2 * -1.9515295891e-4f));
    vec c = 1.0f - 0.5f * r2 +
            r2 * r2 * (4.166664568298827e-2f + r2 * (-1.388731625493765e-3f + r2 * 2.443315711809948e-5f));
    ivec odd = -(k & 1), sine_sign = (k & 2) << 30, cosine_sign = ((k + 1) & 2) << 30;
    *sine = (vec)((ivec)pick(odd, c, s) ^ sine_sign);
    *cosine = (vec)((ivec)pick(odd, s, c) ^ cosine_sign);
}

static inline vec load(const float *from, int lanes) {
    vec value = {0};
    memcpy(&value, from, (lanes == LANES ? LANES : lanes) * sizeof(float));
    return value;
}

static inline void store(float *to, vec value, int lanes) {
    memcpy(to, &value, (lanes == LANES ? LANES : lanes) * sizeof(float));
}

static inline float sum_of(vec value, int lanes) {
    float sum = 0.0f;
    for (int l = 0; l < lanes; l++) sum += value[l];
    return sum;
}

/* x[c] = projection of prefix c of one sample, for c = 0 ... C - 1. */
static inline void project_prefixes(const float *s, const vec *u, const int *ends, int C, vec *x) {
    vec sum = {0};
    for (int c = 0, j = 0; c < C; c++) {
        for (; j < ends[c]; j++) sum += s[j] * u[j];
        x[c] = sum;
    }
}

/* A coordinate moves every prefix that contains it: gradients add up from the longest prefix down. */
static inline void gradient_of_prefixes(const vec *grad_x, const vec *u, const int *ends, int C, float *grad_s, int lanes) {
    vec running = {0};
    for (int c = C - 1; c >= 0; c--) {
        running += grad_x[c];
        for (int j = c > 0 ? ends[c - 1] : 0; j < ends[c]; j++) grad_s[j] += sum_of(running * u[j], lanes);
    }
}

static inline void forward_block(const float *s, const float *q, const float *u, const int *ends, float *real,
                                 float *imaginary, long N, int D, int C, long P, int Q, float spacing, int lanes) {
    vec directions[MAX_WIDTH], x_n[MAX_CAPACITIES], x_m[MAX_CAPACITIES];
    vec total_re[MAX_KNOTS], total_im[MAX_KNOTS], part_re[MAX_KNOTS], part_im[MAX_KNOTS];
    float total_weight = 0.0f;
    for (int j = 0; j < D; j++) directions[j] = load(u + j * P, lanes) * spacing;
    for (int j = 0; j < Q; j++) total_re[j] = total_im[j] = (vec){0};
    for (long start = 0; start < N; start += CHUNK) {
        long stop = start + CHUNK < N ? start + CHUNK : N;
        for (int j = 0; j < Q; j++) part_re[j] = part_im[j] = (vec){0};
        for (long n = start; n < stop; n += 2) {
            long m = n + 1 < stop ? n + 1 : n;
            project_prefixes(s + n * D, directions, ends, C, x_n);
            project_prefixes(s + m * D, directions, ends, C, x_m);
            for (int c = 0; c < C; c++) {
                float w_n = q[n * C + c], w_m = m > n ? q[m * C + c] : 0.0f;
                vec cos_n, sin_n, cos_m, sin_m;
                sin_cos(x_n[c], &sin_n, &cos_n);
                sin_cos(x_m[c], &sin_m, &cos_m);
                vec re_n = cos_n * w_n, im_n = sin_n * w_n, re_m = cos_m * w_m, im_m = sin_m * w_m;
                total_weight += w_n + w_m;
                for (int j = 1; j < Q; j++) {
                    part_re[j] += re_n + re_m;
                    part_im[j] += im_n + im_m;
                    vec next_n = re_n * cos_n - im_n * sin_n, next_m = re_m * cos_m - im_m * sin_m;
                    im_n = im_n * cos_n + re_n * sin_n;
                    im_m = im_m * cos_m + re_m * sin_m;
                    re_n = next_n;
                    re_m = next_m;
                }
            }
        }
        for (int j = 1; j < Q; j++) {
            total_re[j] += part_re[j];
            total_im[j] += part_im[j];
        }
    }
    total_re[0] = (vec){0} + total_weight;
    for (int j = 0; j < Q; j++) {
        store(real + j * P, total_re[j], lanes);
        store(imaginary + j * P, total_im[j], lanes);
    }
}

static inline void backward_block(const float *s, const float *q, const float *u, const int *ends, const float *grad_real,
                                  const float *grad_imaginary, float *grad_s, float *grad_q, long N, int D, int C, long P,
                                  int Q, float spacing, int lanes) {
    vec directions[MAX_WIDTH], x_n[MAX_CAPACITIES], x_m[MAX_CAPACITIES];
    vec a[MAX_KNOTS], b[MAX_KNOTS], ja[MAX_KNOTS], jb[MAX_KNOTS];
    for (int j = 0; j < D; j++) directions[j] = load(u + j * P, lanes) * spacing;
    for (int j = 0; j < Q; j++) {
        a[j] = load(grad_real + j * P, lanes);
        b[j] = load(grad_imaginary + j * P, lanes);
        ja[j] = a[j] * (float)j;
        jb[j] = b[j] * (float)j;
    }
    for (long n = 0; n < N; n += 2) {
        long m = n + 1 < N ? n + 1 : n;
        project_prefixes(s + n * D, directions, ends, C, x_n);
        project_prefixes(s + m * D, directions, ends, C, x_m);
        for (int c = 0; c < C; c++) {
            vec cos_n, sin_n, cos_m, sin_m;
            sin_cos(x_n[c], &sin_n, &cos_n);
            sin_cos(x_m[c], &sin_m, &cos_m);
            vec co_n = cos_n, si_n = sin_n, co_m = cos_m, si_m = sin_m;
            vec value_n = a[0], value_m = a[0], slope_n = {0}, slope_m = {0};
            for (int j = 1; j < Q; j++) {
                value_n += a[j] * co_n;
                value_m += a[j] * co_m;
                slope_n += jb[j] * co_n;
                slope_m += jb[j] * co_m;
                value_n += b[j] * si_n;
                value_m += b[j] * si_m;
                slope_n -= ja[j] * si_n;
                slope_m -= ja[j] * si_m;
                vec next_n = co_n * cos_n - si_n * sin_n, next_m = co_m * cos_m - si_m * sin_m;
                si_n = si_n * cos_n + co_n * sin_n;
                si_m = si_m * cos_m + co_m * sin_m;
                co_n = next_n;
                co_m = next_m;
            }
            /* The projection is used up: its place holds the gradient to it. */
            x_n[c] = slope_n * q[n * C + c];
            grad_q[n * C + c] += sum_of(value_n, lanes);
            if (m > n) {
                x_m[c] = slope_m * q[m * C + c];
                grad_q[m * C + c] += sum_of(value_m, lanes);
            }
        }
        gradient_of_prefixes(x_n, directions, ends, C, grad_s + n * D, lanes);
        if (m > n) gradient_of_prefixes(x_m, directions, ends, C, grad_s + m * D, lanes);
    }
}

/* Whether the sizes fit each other and the buffers on the stack; the caller answers for the arrays' lengths. */
static int fits(const int *ends, long first, long last, long shared, long N, int D, int C, long P, int Q) {
    if (first < 0 || last < first || shared < 1 || N < 1 || P < 1 || D < 1 || C < 1 || Q < 1) return 0;
    if (D > MAX_WIDTH || C > MAX_CAPACITIES || Q > MAX_KNOTS) return 0;
    for (int c = 0; c < C; c++)
        if (ends[c] <= (c > 0 ? ends[c - 1] : 0)) return 0;
    return ends[C - 1] == D;
}

/* Both functions return 0, or 1 if the sizes do not fit; nothing was read or written then. */
int prefix_mixture_forward(const float *s, const float *q, const float *u, const int *ends, float *real,
                           float *imaginary, long first, long last, long shared, long N, int D, int C, long P, int Q,
                           float spacing) {
    if (!fits(ends, first, last, shared, N, D, C, P, Q)) return 1;
    for (long g = first; g < last; g++) {
        const float *sg = s + g * N * D, *qg = q + g / shared * N * C, *ug = u + g / shared * D * P;
        float *re = real + g * Q * P, *im = imaginary + g * Q * P;
        long p = 0;
        for (; p + LANES <= P; p += LANES) forward_block(sg, qg, ug + p, ends, re + p, im + p, N, D, C, P, Q, spacing, LANES);
        if (p < P) forward_block(sg, qg, ug + p, ends, re + p, im + p, N, D, C, P, Q, spacing, (int)(P - p));
    }
    return 0;
}

/* grad_s is [G, N, D] and grad_q is [G, N, C], both zero on entry; the caller adds grad_q over groups that share q. */
int prefix_mixture_backward(const float *s, const float *q, const float *u, const int *ends, const float *grad_real,
                            const float *grad_imaginary, float *grad_s, float *grad_q, long first, long last, long shared,
                            long N, int D, int C, long P, int Q, float spacing) {
    if (!fits(ends, first, last, shared, N, D, C, P, Q)) return 1;
    for (long g = first; g < last; g++) {
        const float *sg = s + g * N * D, *qg = q + g / shared * N * C, *ug = u + g / shared * D * P;
        const float *re = grad_real + g * Q * P, *im = grad_imaginary + g * Q * P;
        float *ds = grad_s + g * N * D, *dq = grad_q + g * N * C;
        long p = 0;
        for (; p + LANES <= P; p += LANES)
            backward_block(sg, qg, ug + p, ends, re + p, im + p, ds, dq, N, D, C, P, Q, spacing, LANES);
        if (p < P) backward_block(sg, qg, ug + p, ends, re + p, im + p, ds, dq, N, D, C, P, Q, spacing, (int)(P - p));
    }
    return 0;
}
