/* The weighted characteristic function by angle addition, and its gradient, for float32 on a CPU.
 *
 * x is [G, N, P], weight is [G, N]; results are [G, Q, P]. Every loop over LANES has a constant length and no branch, so
 * the compiler turns it into vector instructions. Two samples advance together to hide the latency of the recurrence.
 * Sums run over chunks of samples first, which keeps float32 rounding far below the statistic's own noise.
 */
#include <string.h>

#if defined(__AVX512F__)
#define LANES 16
#else
#define LANES 8
#endif
#define ROWS 2
#define CHUNK 64
#define MAX_KNOTS 64

#define EACH_LANE for (int l = 0; l < LANES; l++)

/* sin and cos by reduction to [-pi/4, pi/4] and minimax polynomials; error below 2 units in the last place there. */
static inline void sincos_lanes(const float *angle, float *sine, float *cosine) {
    EACH_LANE {
        float turns = angle[l] * 0.636619772f;
        float quarter = __builtin_rintf(turns);
        float r = angle[l] - quarter * 1.5703125f;
        r -= quarter * 4.837512969970703125e-4f;
        r -= quarter * 7.549789948768648e-8f;
        int k = (int)quarter;
        float r2 = r * r;
        float s = r + r * r2 * (-1.6666654611e-1f + r2 * (8.3321608736e-3f + r2 * -1.9515295891e-4f));
        float c = 1.0f - 0.5f * r2 + r2 * r2 * (4.166664568298827e-2f + r2 * (-1.388731625493765e-3f + r2 * 2.443315711809948e-5f));
        float swapped_s = (k & 1) ? c : s, swapped_c = (k & 1) ? s : c;
        sine[l] = (k & 2) ? -swapped_s : swapped_s;
        cosine[l] = ((k + 1) & 2) ? -swapped_c : swapped_c;
    }
}

static inline void load_lanes(const float *from, float *to, int lanes, float scale) {
    if (lanes == LANES) {
        EACH_LANE to[l] = from[l] * scale;
    } else {
        EACH_LANE to[l] = 0.0f;
        for (int l = 0; l < lanes; l++) to[l] = from[l] * scale;
    }
}

void characteristic_function_forward(const float *x, const float *weight, float *real, float *imaginary, long G, long N,
                                     long P, int Q, float spacing) {
    for (long g = 0; g < G; g++) {
        for (long p = 0; p < P; p += LANES) {
            int lanes = P - p < LANES ? (int)(P - p) : LANES;
            float total_re[MAX_KNOTS][LANES], total_im[MAX_KNOTS][LANES], part_re[MAX_KNOTS][LANES], part_im[MAX_KNOTS][LANES];
            float total_weight = 0.0f;
            memset(total_re, 0, sizeof total_re);
            memset(total_im, 0, sizeof total_im);
            for (long start = 0; start < N; start += CHUNK) {
                long stop = start + CHUNK < N ? start + CHUNK : N;
                memset(part_re, 0, sizeof part_re);
                memset(part_im, 0, sizeof part_im);
                for (long n = start; n < stop; n += ROWS) {
                    float step_cos[ROWS][LANES], step_sin[ROWS][LANES], re[ROWS][LANES], im[ROWS][LANES];
                    for (int row = 0; row < ROWS; row++) {
                        float angle[LANES];
                        int inside = n + row < stop;
                        float w = inside ? weight[g * N + n + row] : 0.0f;
                        total_weight += w;
                        load_lanes(x + (g * N + (inside ? n + row : n)) * P + p, angle, lanes, spacing);
                        sincos_lanes(angle, step_sin[row], step_cos[row]);
                        EACH_LANE re[row][l] = w * step_cos[row][l];
                        EACH_LANE im[row][l] = w * step_sin[row][l];
                    }
                    for (int j = 1; j < Q; j++) {
                        EACH_LANE part_re[j][l] += re[0][l] + re[1][l];
                        EACH_LANE part_im[j][l] += im[0][l] + im[1][l];
                        for (int row = 0; row < ROWS; row++) EACH_LANE {
                            float c = re[row][l], s = im[row][l];
                            re[row][l] = c * step_cos[row][l] - s * step_sin[row][l];
                            im[row][l] = s * step_cos[row][l] + c * step_sin[row][l];
                        }
                    }
                }
                for (int j = 1; j < Q; j++) {
                    EACH_LANE total_re[j][l] += part_re[j][l];
                    EACH_LANE total_im[j][l] += part_im[j][l];
                }
            }
            EACH_LANE total_re[0][l] = total_weight;
            for (int j = 0; j < Q; j++) {
                memcpy(real + (g * Q + j) * P + p, total_re[j], lanes * sizeof(float));
                memcpy(imaginary + (g * Q + j) * P + p, total_im[j], lanes * sizeof(float));
            }
        }
    }
}

void characteristic_function_backward(const float *x, const float *weight, const float *grad_real,
                                      const float *grad_imaginary, float *grad_x, float *grad_weight, long G, long N,
                                      long P, int Q, float spacing) {
    for (long g = 0; g < G; g++) {
        memset(grad_weight + g * N, 0, N * sizeof(float));
        for (long p = 0; p < P; p += LANES) {
            int lanes = P - p < LANES ? (int)(P - p) : LANES;
            float a[MAX_KNOTS][LANES], b[MAX_KNOTS][LANES], ja[MAX_KNOTS][LANES], jb[MAX_KNOTS][LANES];
            for (int j = 0; j < Q; j++) {
                load_lanes(grad_real + (g * Q + j) * P + p, a[j], lanes, 1.0f);
                load_lanes(grad_imaginary + (g * Q + j) * P + p, b[j], lanes, 1.0f);
                EACH_LANE ja[j][l] = j * spacing * a[j][l];
                EACH_LANE jb[j][l] = j * spacing * b[j][l];
            }
            for (long n = 0; n < N; n += ROWS) {
                float step_cos[ROWS][LANES], step_sin[ROWS][LANES], cosine[ROWS][LANES], sine[ROWS][LANES];
                float value[ROWS][LANES], slope[ROWS][LANES];
                for (int row = 0; row < ROWS; row++) {
                    float angle[LANES];
                    long sample = n + row < N ? n + row : n;
                    load_lanes(x + (g * N + sample) * P + p, angle, lanes, spacing);
                    sincos_lanes(angle, step_sin[row], step_cos[row]);
                    EACH_LANE cosine[row][l] = step_cos[row][l];
                    EACH_LANE sine[row][l] = step_sin[row][l];
                    EACH_LANE value[row][l] = a[0][l];
                    EACH_LANE slope[row][l] = 0.0f;
                }
                for (int j = 1; j < Q; j++)
                    for (int row = 0; row < ROWS; row++) EACH_LANE {
                        float c = cosine[row][l], s = sine[row][l];
                        value[row][l] += a[j][l] * c + b[j][l] * s;
                        slope[row][l] += jb[j][l] * c - ja[j][l] * s;
                        cosine[row][l] = c * step_cos[row][l] - s * step_sin[row][l];
                        sine[row][l] = s * step_cos[row][l] + c * step_sin[row][l];
                    }
                for (int row = 0; row < ROWS && n + row < N; row++) {
                    float w = weight[g * N + n + row], sum = 0.0f;
                    EACH_LANE slope[row][l] *= w;
                    memcpy(grad_x + (g * N + n + row) * P + p, slope[row], lanes * sizeof(float));
                    if (lanes == LANES) {
                        EACH_LANE sum += value[row][l];
                    } else {
                        for (int l = 0; l < lanes; l++) sum += value[row][l];
                    }
                    grad_weight[g * N + n + row] += sum;
                }
            }
        }
    }
}
