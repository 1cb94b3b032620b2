/* The weighted characteristic function by angle addition, and its gradient, for float32 on a CPU.
 *
 * x is [G, N, P], weight is [G, N]; results are [G, Q, P]. A vector holds neighbouring projections of one sample. Two
 * samples advance together to hide the latency of the recurrence. Sums run over chunks of samples first, which keeps
 * float32 rounding far below the statistic's own noise. Vector types are those of GCC and Clang.
 */
#include <string.h>

#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX__)
#define LANES 8
#else
#define LANES 4
#endif
#define CHUNK 64
#define MAX_KNOTS 64

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

static inline void forward_columns(const float *x, const float *weight, float *real, float *imaginary, long N, long P,
                                   int Q, float spacing, int lanes) {
    vec total_re[MAX_KNOTS], total_im[MAX_KNOTS], part_re[MAX_KNOTS], part_im[MAX_KNOTS];
    float total_weight = 0.0f;
    for (int j = 0; j < Q; j++) total_re[j] = total_im[j] = (vec){0};
    for (long start = 0; start < N; start += CHUNK) {
        long stop = start + CHUNK < N ? start + CHUNK : N;
        for (int j = 0; j < Q; j++) part_re[j] = part_im[j] = (vec){0};
        for (long n = start; n < stop; n += 2) {
            long m = n + 1 < stop ? n + 1 : n;
            float wn = weight[n], wm = m > n ? weight[m] : 0.0f;
            vec cos_n, sin_n, cos_m, sin_m;
            sin_cos(load(x + n * P, lanes) * spacing, &sin_n, &cos_n);
            sin_cos(load(x + m * P, lanes) * spacing, &sin_m, &cos_m);
            vec re_n = cos_n * wn, im_n = sin_n * wn, re_m = cos_m * wm, im_m = sin_m * wm;
            total_weight += wn + wm;
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

static inline void backward_columns(const float *x, const float *weight, const float *grad_real,
                                    const float *grad_imaginary, float *grad_x, float *grad_weight, long N, long P,
                                    int Q, float spacing, int lanes) {
    vec a[MAX_KNOTS], b[MAX_KNOTS], ja[MAX_KNOTS], jb[MAX_KNOTS];
    for (int j = 0; j < Q; j++) {
        a[j] = load(grad_real + j * P, lanes);
        b[j] = load(grad_imaginary + j * P, lanes);
        ja[j] = a[j] * (j * spacing);
        jb[j] = b[j] * (j * spacing);
    }
    for (long n = 0; n < N; n += 2) {
        long m = n + 1 < N ? n + 1 : n;
        vec cos_n, sin_n, cos_m, sin_m;
        sin_cos(load(x + n * P, lanes) * spacing, &sin_n, &cos_n);
        sin_cos(load(x + m * P, lanes) * spacing, &sin_m, &cos_m);
        vec c_n = cos_n, s_n = sin_n, c_m = cos_m, s_m = sin_m;
        vec value_n = a[0], value_m = a[0], slope_n = {0}, slope_m = {0};
        for (int j = 1; j < Q; j++) {
            value_n += a[j] * c_n;
            value_m += a[j] * c_m;
            slope_n += jb[j] * c_n;
            slope_m += jb[j] * c_m;
            value_n += b[j] * s_n;
            value_m += b[j] * s_m;
            slope_n -= ja[j] * s_n;
            slope_m -= ja[j] * s_m;
            vec next_n = c_n * cos_n - s_n * sin_n, next_m = c_m * cos_m - s_m * sin_m;
            s_n = s_n * cos_n + c_n * sin_n;
            s_m = s_m * cos_m + c_m * sin_m;
            c_n = next_n;
            c_m = next_m;
        }
        store(grad_x + n * P, slope_n * weight[n], lanes);
        grad_weight[n] += sum_of(value_n, lanes);
        if (m > n) {
            store(grad_x + m * P, slope_m * weight[m], lanes);
            grad_weight[m] += sum_of(value_m, lanes);
        }
    }
}

void characteristic_function_forward(const float *x, const float *weight, float *real, float *imaginary, long G, long N,
                                     long P, int Q, float spacing) {
    for (long g = 0; g < G; g++, x += N * P, weight += N, real += Q * P, imaginary += Q * P) {
        long p = 0;
        for (; p + LANES <= P; p += LANES) forward_columns(x + p, weight, real + p, imaginary + p, N, P, Q, spacing, LANES);
        if (p < P) forward_columns(x + p, weight, real + p, imaginary + p, N, P, Q, spacing, (int)(P - p));
    }
}

void characteristic_function_backward(const float *x, const float *weight, const float *grad_real,
                                      const float *grad_imaginary, float *grad_x, float *grad_weight, long G, long N,
                                      long P, int Q, float spacing) {
    for (long g = 0; g < G; g++, x += N * P, weight += N, grad_real += Q * P, grad_imaginary += Q * P, grad_x += N * P,
              grad_weight += N) {
        memset(grad_weight, 0, N * sizeof(float));
        long p = 0;
        for (; p + LANES <= P; p += LANES)
            backward_columns(x + p, weight, grad_real + p, grad_imaginary + p, grad_x + p, grad_weight, N, P, Q, spacing, LANES);
        if (p < P)
            backward_columns(x + p, weight, grad_real + p, grad_imaginary + p, grad_x + p, grad_weight, N, P, Q, spacing, (int)(P - p));
    }
}
