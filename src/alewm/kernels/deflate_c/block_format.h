/* What the headers of blocks are made of (RFC 1951, sections 3.2.3 to 3.2.7), for reading and for writing them. */

#ifndef ALEWM_BLOCK_FORMAT_H
#define ALEWM_BLOCK_FORMAT_H

#include <stdint.h>
#include <string.h>

#include "symbols.h"

enum { STORED_BLOCK, FIXED_BLOCK, DYNAMIC_BLOCK };

/* The order in which the lengths of that code are written by which the lengths of the two other codes are. */
static const uint8_t LENGTHS_ORDER[NUM_LENGTHS] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};

/* Symbols of that code beside the lengths themselves. */
enum { REPEAT_LENGTH = 16, FEW_ZERO_LENGTHS, MANY_ZERO_LENGTHS };

/* How many bits say how often. */
static inline unsigned lengths_extra_bits(unsigned symbol) {
    return symbol < REPEAT_LENGTH ? 0 : symbol == REPEAT_LENGTH ? 2 : symbol == FEW_ZERO_LENGTHS ? 3 : 7;
}

static void write_fixed_code_lengths(uint8_t litlens[NUM_LITLENS], uint8_t distances[NUM_DISTANCES]) {
    memset(litlens, 8, 144);
    memset(litlens + 144, 9, 256 - 144);
    memset(litlens + 256, 7, 280 - 256);
    memset(litlens + 280, 8, NUM_LITLENS - 280);
    memset(distances, 5, NUM_DISTANCES);
}

#endif
