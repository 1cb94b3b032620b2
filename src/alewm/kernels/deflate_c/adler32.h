/* The checksum of zlib streams, in a form that compilers turn into vector instructions. */

#ifndef ALEWM_ADLER32_H
#define ALEWM_ADLER32_H

#include <stddef.h>
#include <stdint.h>

enum {
    ADLER_MODULUS = 65521,
    LANES = 64,
    ROWS = 23, /* the most for which 255 · (1 + ... + (ROWS - 1)) fits 16 bits */
    TILE = LANES * ROWS,
};

/* Adler-32 is a = 1 + Σ x_i, and b the sum of what a was after each byte, so that x_i counts once for itself and once
 * for every byte after it. The bytes of a tile lie in rows; each lane sums its column and, for b, those sums. */
static void add_tile(const uint8_t *tile, uint32_t *a, uint32_t *b) {
    uint16_t sums[LANES] = {0}, sums_before[LANES] = {0};
    for (int row = 0; row < ROWS; row++, tile += LANES) {
        for (int lane = 0; lane < LANES; lane++) {
            sums_before[lane] += sums[lane];
            sums[lane] += tile[lane];
        }
    }
    uint32_t sum = 0, rows_after = 0, lanes_after = 0;
    for (int lane = 0; lane < LANES; lane++) {
        sum += sums[lane];
        rows_after += sums_before[lane];
        lanes_after += (uint32_t)(LANES - lane) * sums[lane];
    }
    *b = (*b + TILE * *a + LANES * rows_after + lanes_after) % ADLER_MODULUS;
    *a = (*a + sum) % ADLER_MODULUS;
}

static uint32_t adler32(const uint8_t *bytes, size_t count) {
    uint32_t a = 1, b = 0;
    for (; count >= TILE; bytes += TILE, count -= TILE) add_tile(bytes, &a, &b);
    for (; count > 0; bytes++, count--) {
        a += *bytes;
        b += a;
    }
    return b % ADLER_MODULUS << 16 | a % ADLER_MODULUS;
}

#endif
