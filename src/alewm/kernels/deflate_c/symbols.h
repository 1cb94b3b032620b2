/* What the symbols of deflate's two alphabets mean (RFC 1951, section 3.2.5). */

#ifndef ALEWM_SYMBOLS_H
#define ALEWM_SYMBOLS_H

#include <stdint.h>

#include "huffman.h"

enum {
    NUM_LITLENS = 288,
    NUM_USED_LITLENS = 286, /* the last two have codes in fixed blocks, but must not occur */
    NUM_DISTANCES = 32,
    NUM_USED_DISTANCES = 30,
    NUM_LENGTHS = 19, /* of the alphabet in which the lengths of codes are written */
    END_OF_BLOCK_SYMBOL = 256,
    LONGEST_MATCH = 258,
};

/* Lengths and distances grow like floating-point numbers: `steps` symbols to each power of two, after the first powers,
 * where every value has its own symbol. The extra bits say which of the values up to the next symbol is meant. */
static uint32_t scale_entry(unsigned position, unsigned steps, unsigned first_value) {
    const unsigned extra_bits = position < steps ? 0 : position / steps - 1;
    const unsigned start = position < steps ? position : (steps + position % steps) << extra_bits;
    return make_entry(first_value + start, extra_bits, 0);
}

static uint32_t litlen_meaning(unsigned symbol) {
    if (symbol < END_OF_BLOCK_SYMBOL) return make_entry(symbol, 0, LITERAL);
    if (symbol == END_OF_BLOCK_SYMBOL) return make_entry(0, 0, END_OF_BLOCK);
    if (symbol >= NUM_USED_LITLENS) return make_entry(0, 0, INVALID);
    if (symbol == NUM_USED_LITLENS - 1) return make_entry(LONGEST_MATCH, 0, 0); /* outside the scale: the longest match */
    return scale_entry(symbol - END_OF_BLOCK_SYMBOL - 1, 4, 3);
}

static uint32_t distance_meaning(unsigned symbol) {
    return symbol < NUM_USED_DISTANCES ? scale_entry(symbol, 2, 1) : make_entry(0, 0, INVALID);
}

#endif
