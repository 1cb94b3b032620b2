/* Huffman codes from how often symbols occur, none longer than asked for. */

#ifndef ALEWM_CODE_LENGTHS_H
#define ALEWM_CODE_LENGTHS_H

#include <stdint.h>
#include <string.h>

#include "canonical_codes.h"

enum { SYMBOL_BITS = 9, SYMBOL_MASK = (1 << SYMBOL_BITS) - 1 };

/* The symbols that occur, rarest first, as frequency << SYMBOL_BITS | symbol; returns how many. Counting sorts the many
 * rare ones, insertion the few frequent ones behind them. */
static unsigned sort_by_frequency(const uint32_t *frequencies, unsigned num_symbols, uint32_t *sorted) {
    enum { RARE = 64 };
    unsigned starts[RARE + 1] = {0}; /* the last for all that are not rare */
    for (unsigned symbol = 0; symbol < num_symbols; symbol++)
        starts[frequencies[symbol] < RARE ? frequencies[symbol] : RARE]++;
    starts[0] = 0;
    for (unsigned frequency = 1, start = 0; frequency <= RARE; frequency++) {
        const unsigned here = starts[frequency];
        starts[frequency] = start;
        start += here;
    }
    const unsigned first_frequent = starts[RARE];
    unsigned count = first_frequent;
    for (unsigned symbol = 0; symbol < num_symbols; symbol++) {
        const uint32_t frequency = frequencies[symbol], key = frequency << SYMBOL_BITS | symbol;
        if (frequency == 0) continue;
        if (frequency < RARE) {
            sorted[starts[frequency]++] = key;
            continue;
        }
        unsigned place = count++;
        for (; place > first_frequent && sorted[place - 1] > key; place--) sorted[place] = sorted[place - 1];
        sorted[place] = key;
    }
    return count;
}

/* How many codes have which length in the best code without a limit, those beyond `longest` counted as that long.
 * Leaves are taken in order and so are the inner nodes, which come to be in order of their frequency. */
static void count_lengths(const uint32_t *sorted, unsigned count, unsigned longest,
                          unsigned num_of_length[LONGEST_CODE + 1]) {
    uint32_t frequencies[MOST_SYMBOLS]; /* of inner nodes */
    uint16_t parents[2 * MOST_SYMBOLS]; /* leaves first, then inner nodes */
    uint16_t depths[MOST_SYMBOLS];      /* of inner nodes */
    unsigned leaf = 0, inner = 0;
    for (unsigned node = 0; node < count - 1; node++) {
        uint32_t frequency = 0;
        for (int child = 0; child < 2; child++) {
            if (inner == node || (leaf < count && sorted[leaf] >> SYMBOL_BITS <= frequencies[inner])) {
                frequency += sorted[leaf] >> SYMBOL_BITS;
                parents[leaf++] = (uint16_t)node;
            } else {
                frequency += frequencies[inner];
                parents[count + inner++] = (uint16_t)node;
            }
        }
        frequencies[node] = frequency;
    }
    depths[count - 2] = 0;
    for (unsigned node = count - 2; node-- > 0;) depths[node] = (uint16_t)(depths[parents[count + node]] + 1);
    for (unsigned i = 0; i < count; i++) {
        const unsigned depth = depths[parents[i]] + 1u;
        num_of_length[depth < longest ? depth : longest]++;
    }
}

/* Makes room for codes that were shortened: a shorter code gives way to two of one more bit, one of them for a code of
 * the longest length, until there are no more codes than bits can tell apart. */
static void shorten(unsigned longest, unsigned num_of_length[LONGEST_CODE + 1]) {
    int64_t excess = -((int64_t)1 << longest); /* in units of the longest codes */
    for (unsigned length = 1; length <= longest; length++)
        excess += (int64_t)num_of_length[length] << (longest - length);
    for (; excess > 0; excess--) {
        unsigned length = longest - 1;
        while (!num_of_length[length]) length--;
        num_of_length[length]--;
        num_of_length[length + 1] += 2;
        num_of_length[longest]--;
    }
}

/* Lengths of the codes of symbols with these frequencies. There are always at least two codes, since some decoders
 * refuse fewer. */
static void make_code_lengths(uint32_t *frequencies, unsigned num_symbols, unsigned longest, uint8_t *lengths) {
    uint32_t sorted[MOST_SYMBOLS];
    unsigned count = sort_by_frequency(frequencies, num_symbols, sorted);
    while (count < 2) {
        frequencies[frequencies[0] ? 1 : 0] = 1;
        count = sort_by_frequency(frequencies, num_symbols, sorted);
    }
    unsigned num_of_length[LONGEST_CODE + 1] = {0};
    count_lengths(sorted, count, longest, num_of_length);
    shorten(longest, num_of_length);
    memset(lengths, 0, num_symbols);
    const uint32_t *next = sorted;
    for (unsigned length = longest; length > 0; length--)
        for (unsigned n = num_of_length[length]; n > 0; n--) lengths[*next++ & SYMBOL_MASK] = (uint8_t)length;
}

/* The bits of each symbol's code, in the order in which they are written. */
static void make_codes(const uint8_t *lengths, unsigned num_symbols, uint16_t *codes) {
    unsigned num_of_length[LONGEST_CODE + 1] = {0};
    for (unsigned symbol = 0; symbol < num_symbols; symbol++) num_of_length[lengths[symbol]]++;
    num_of_length[0] = 0;
    uint16_t sorted[MOST_SYMBOLS];
    sort_symbols(lengths, num_symbols, num_of_length, sorted);
    const uint16_t *symbol = sorted;
    unsigned bits = 0;
    for (unsigned length = 1; length <= LONGEST_CODE; length++) {
        for (unsigned n = num_of_length[length]; n > 0; n--) {
            codes[*symbol++] = (uint16_t)bits;
            bits = next_code(bits, length);
        }
    }
}

#endif
