/* Copies of earlier output: where the bytes of a frame come from, nearly all of them. */

#ifndef ALEWM_MATCHES_H
#define ALEWM_MATCHES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "symbols.h"

enum {
    CHUNK = 32, /* bytes copied at a time: those beyond a match are overwritten by what comes after it */
    GENEROSITY = 2 * CHUNK,
};

/* Copies a match and up to GENEROSITY bytes more. */
static inline void copy_match_generously(uint8_t *out, size_t distance, size_t length) {
    const uint8_t *from = out - distance;
    const uint8_t *const end = out + length;
    if (distance >= CHUNK) {
        /* Two chunks before the first question: most matches end in them, and a wrong guess costs more than a copy. */
        memcpy(out, from, CHUNK);
        memcpy(out + CHUNK, from + CHUNK, CHUNK);
        for (out += 2 * CHUNK, from += 2 * CHUNK; out < end; out += CHUNK, from += CHUNK) memcpy(out, from, CHUNK);
    } else if (distance == 1) {
        uint8_t run[CHUNK];
        memset(run, *from, CHUNK);
        memcpy(out, run, CHUNK);
        memcpy(out + CHUNK, run, CHUNK);
        for (out += 2 * CHUNK; out < end; out += CHUNK) memcpy(out, run, CHUNK);
    } else if (distance >= 8) {
        for (; out < end; out += 8, from += 8) memcpy(out, from, 8);
    } else {
        while (out < end) *out++ = *from++;
    }
}

static inline void copy_match_exactly(uint8_t *out, size_t distance, size_t length) {
    const uint8_t *from = out - distance;
    const uint8_t *const end = out + length;
    if (distance >= length)
        memcpy(out, from, length);
    else if (distance == 1)
        memset(out, *from, length);
    else
        while (out < end) *out++ = *from++;
}

#endif
