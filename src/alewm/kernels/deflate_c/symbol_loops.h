/* Decodes the symbols of a block: by a fast loop while input and output are far from their ends, by a careful one near
 * them. The careful loop alone would be correct. */

#ifndef ALEWM_SYMBOL_LOOPS_H
#define ALEWM_SYMBOL_LOOPS_H

#include <stddef.h>
#include <stdint.h>

#include "bits.h"
#include "huffman.h"
#include "matches.h"
#include "status.h"

enum {
    FAST_OUTPUT = 3 + LONGEST_MATCH + GENEROSITY, /* the most that one turn of the fast loop writes */
    FAST_INPUT = 16,                              /* the most that it looks at: two refills of eight bytes */
};

struct decoder {
    struct bit_reader in;
    const uint8_t *begin; /* of the output, which is filled up to `out` */
    uint8_t *out;
    uint8_t *end;
};

/* Decodes until the block ends (OK) or an end comes near. Its own variables are registers to the compiler, which those
 * of `d` could not be beside stores of bytes. */
static enum status decode_fast(struct decoder *d, const struct code *litlens, const struct code *distances) {
    struct bit_reader in = d->in;
    uint8_t *out = d->out;
    const uint8_t *const begin = d->begin, *const end = d->end;
    enum status status = NEAR_AN_END;
    while (in.end - in.next >= FAST_INPUT && end - out >= FAST_OUTPUT) {
        /* A refill gives 56 bits: enough for two literals of 15 and a length of 20, or for a distance of 28. */
        refill_fast(&in);
        uint32_t entry = look_up(litlens, &in);
        if (entry & LITERAL) {
            *out++ = (uint8_t)take_value(&in, entry);
            entry = look_up(litlens, &in);
            if (entry & LITERAL) {
                *out++ = (uint8_t)take_value(&in, entry);
                entry = look_up(litlens, &in);
                if (entry & LITERAL) {
                    *out++ = (uint8_t)take_value(&in, entry);
                    continue;
                }
            }
        }
        const size_t length = take_value(&in, entry);
        if (entry & (END_OF_BLOCK | INVALID)) {
            status = entry & INVALID ? BAD_SYMBOL : OK;
            break;
        }
        refill_fast(&in);
        entry = look_up(distances, &in);
        const size_t distance = take_value(&in, entry);
        if (entry & INVALID) {
            status = BAD_SYMBOL;
            break;
        }
        if (distance > (size_t)(out - begin)) {
            status = BAD_DISTANCE;
            break;
        }
        copy_match_generously(out, distance, length);
        out += length;
    }
    d->in = in;
    d->out = out;
    return status;
}

static enum status decode_carefully(struct decoder *d, const struct code *litlens, const struct code *distances) {
    for (;;) {
        refill(&d->in);
        uint32_t entry = look_up(litlens, &d->in);
        const size_t value = take_value(&d->in, entry);
        if (ran_out(&d->in)) return TRUNCATED;
        if (entry & INVALID) return BAD_SYMBOL;
        if (entry & END_OF_BLOCK) return OK;
        if (entry & LITERAL) {
            if (d->out == d->end) return TOO_LONG;
            *d->out++ = (uint8_t)value;
            continue;
        }
        refill(&d->in);
        entry = look_up(distances, &d->in);
        const size_t distance = take_value(&d->in, entry);
        if (ran_out(&d->in)) return TRUNCATED;
        if (entry & INVALID) return BAD_SYMBOL;
        if (distance > (size_t)(d->out - d->begin)) return BAD_DISTANCE;
        if (value > (size_t)(d->end - d->out)) return TOO_LONG;
        copy_match_exactly(d->out, distance, value);
        d->out += value;
    }
}

static enum status decode_symbols(struct decoder *d, const struct code *litlens, const struct code *distances) {
    const enum status status = decode_fast(d, litlens, distances);
    return status == NEAR_AN_END ? decode_carefully(d, litlens, distances) : status;
}

#endif
