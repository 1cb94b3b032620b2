/* The order of Huffman codes that follows from their lengths alone (RFC 1951, section 3.2.2). */

#ifndef ALEWM_CANONICAL_CODES_H
#define ALEWM_CANONICAL_CODES_H

#include <stdint.h>

enum {
    LONGEST_CODE = 15,
    MOST_SYMBOLS = 288, /* of all alphabets */
};

/* The next code of the same length. Codes are read from their highest bit on, which is our lowest: hence add one from
 * the other end. The last code is followed by 0. */
static inline unsigned next_code(unsigned code, unsigned length) {
    unsigned bit = 1u << (length - 1);
    for (; code & bit; bit >>= 1) code ^= bit;
    return code | bit;
}

/* Sorts symbols that have a code by its length, then by number. */
static void sort_symbols(const uint8_t *lengths, unsigned num_symbols,
                         const unsigned num_of_length[LONGEST_CODE + 1], uint16_t *sorted) {
    unsigned position[LONGEST_CODE + 1];
    position[1] = 0;
    for (unsigned length = 1; length < LONGEST_CODE; length++)
        position[length + 1] = position[length] + num_of_length[length];
    for (unsigned symbol = 0; symbol < num_symbols; symbol++)
        if (lengths[symbol]) sorted[position[lengths[symbol]]++] = (uint16_t)symbol;
}

#endif
