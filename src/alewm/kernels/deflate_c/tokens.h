/* What a frame becomes before it is written: literals and matches, a block's worth at a time. */

#ifndef ALEWM_TOKENS_H
#define ALEWM_TOKENS_H

#include <stdint.h>
#include <string.h>

#include "find_matches.h"
#include "symbols.h"

enum { TOKENS_PER_BLOCK = 3072 }; /* nearly always a whole frame of Two-Room */

/* A literal is its byte; a match is length << 16 | distance - 1. */
struct tokens {
    uint32_t list[TOKENS_PER_BLOCK];
    unsigned count;
    uint32_t litlen_frequencies[NUM_LITLENS];
    uint32_t distance_frequencies[NUM_DISTANCES];
    uint8_t length_symbols[LONGEST_MATCH + 1]; /* minus END_OF_BLOCK_SYMBOL */
};

/* A distance's symbol, and in `extra_bits` how many bits say which of its distances it is. */
static inline unsigned distance_symbol(unsigned distance_minus_one, unsigned *extra_bits) {
    if (distance_minus_one < 4) {
        *extra_bits = 0;
        return distance_minus_one;
    }
    const unsigned power = 31 - (unsigned)__builtin_clz(distance_minus_one);
    *extra_bits = power - 1;
    return 2 * power + (distance_minus_one >> (power - 1) & 1);
}

static void write_length_symbols(struct tokens *t) {
    for (unsigned symbol = END_OF_BLOCK_SYMBOL + 1; symbol < NUM_USED_LITLENS; symbol++) {
        const uint32_t meaning = litlen_meaning(symbol);
        const unsigned first = meaning >> 16, count = 1u << (meaning & 0xff);
        for (unsigned length = first; length < first + count && length <= LONGEST_MATCH; length++)
            t->length_symbols[length] = (uint8_t)(symbol - END_OF_BLOCK_SYMBOL);
    }
}

static void begin_block(struct tokens *t) {
    t->count = 0;
    memset(t->litlen_frequencies, 0, sizeof t->litlen_frequencies);
    memset(t->distance_frequencies, 0, sizeof t->distance_frequencies);
}

static inline void add_literal(struct tokens *t, uint8_t byte) {
    t->list[t->count++] = byte;
    t->litlen_frequencies[byte]++;
}

static inline void add_match(struct tokens *t, unsigned length, unsigned distance) {
    unsigned extra_bits;
    t->list[t->count++] = length << 16 | (distance - 1);
    t->litlen_frequencies[END_OF_BLOCK_SYMBOL + t->length_symbols[length]]++;
    t->distance_frequencies[distance_symbol(distance - 1, &extra_bits)]++;
}

#endif
