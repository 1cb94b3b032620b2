/* Writes tokens as a block of whichever kind is smallest (RFC 1951, section 3.2). */

#ifndef ALEWM_WRITE_BLOCK_H
#define ALEWM_WRITE_BLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bit_writer.h"
#include "bits.h"
#include "block_format.h"
#include "code_lengths.h"
#include "symbols.h"
#include "tokens.h"

enum {
    LONGEST_LENGTHS_CODE = 7,
    MOST_STORED = 65535,  /* bytes of a stored block */
    STORED_OVERHEAD = 6,  /* bytes beside them, at most: three bits, the rest of their byte, length and complement */
    MOST_CODE_LENGTHS = NUM_USED_LITLENS + NUM_USED_DISTANCES,
};

/* The two codes of a block. */
struct block_codes {
    uint8_t litlen_lengths[NUM_LITLENS];
    uint8_t distance_lengths[NUM_DISTANCES];
    uint16_t litlens[NUM_LITLENS];
    uint16_t distances[NUM_DISTANCES];
};

/* The lengths of a block's codes as they are written: one list with its runs shortened, in a code of its own. */
struct codes_header {
    unsigned num_litlens, num_distances, num_lengths;
    unsigned count;
    uint16_t items[MOST_CODE_LENGTHS]; /* symbol | extra << 5 */
    uint8_t lengths[NUM_LENGTHS];
    uint16_t codes[NUM_LENGTHS];
    size_t bits;
};

static inline void add_item(struct codes_header *h, uint32_t *frequencies, unsigned symbol, unsigned extra) {
    h->items[h->count++] = (uint16_t)(symbol | extra << 5);
    frequencies[symbol]++;
}

static void shorten_runs(struct codes_header *h, const uint8_t *lengths, unsigned count, uint32_t *frequencies) {
    for (unsigned i = 0; i < count;) {
        const uint8_t length = lengths[i];
        unsigned run = 1;
        while (i + run < count && lengths[i + run] == length) run++;
        i += run;
        if (length == 0) {
            for (; run >= 11; run -= run < 138 ? run : 138)
                add_item(h, frequencies, MANY_ZERO_LENGTHS, (run < 138 ? run : 138) - 11);
            if (run >= 3) {
                add_item(h, frequencies, FEW_ZERO_LENGTHS, run - 3);
                run = 0;
            }
        } else {
            add_item(h, frequencies, length, 0);
            for (run--; run >= 3; run -= run < 6 ? run : 6)
                add_item(h, frequencies, REPEAT_LENGTH, (run < 6 ? run : 6) - 3);
        }
        for (; run > 0; run--) add_item(h, frequencies, length, 0);
    }
}

static void make_codes_header(struct codes_header *h, const struct block_codes *codes) {
    uint32_t frequencies[NUM_LENGTHS] = {0};
    uint8_t lengths[MOST_CODE_LENGTHS];
    h->num_litlens = NUM_USED_LITLENS;
    while (h->num_litlens > 257 && !codes->litlen_lengths[h->num_litlens - 1]) h->num_litlens--;
    h->num_distances = NUM_USED_DISTANCES;
    while (h->num_distances > 1 && !codes->distance_lengths[h->num_distances - 1]) h->num_distances--;
    memcpy(lengths, codes->litlen_lengths, h->num_litlens);
    memcpy(lengths + h->num_litlens, codes->distance_lengths, h->num_distances);
    h->count = 0;
    shorten_runs(h, lengths, h->num_litlens + h->num_distances, frequencies);
    make_code_lengths(frequencies, NUM_LENGTHS, LONGEST_LENGTHS_CODE, h->lengths);
    make_codes(h->lengths, NUM_LENGTHS, h->codes);
    h->num_lengths = NUM_LENGTHS;
    while (h->num_lengths > 4 && !h->lengths[LENGTHS_ORDER[h->num_lengths - 1]]) h->num_lengths--;
    h->bits = 5 + 5 + 4 + 3 * h->num_lengths;
    for (unsigned i = 0; i < h->count; i++) {
        const unsigned symbol = h->items[i] & 31;
        h->bits += h->lengths[symbol] + lengths_extra_bits(symbol);
    }
}

static void write_codes_header(struct bit_writer *out, const struct codes_header *h) {
    put_and_store(out, (h->num_litlens - 257) | (h->num_distances - 1) << 5 | (h->num_lengths - 4) << 10, 14);
    for (unsigned i = 0; i < h->num_lengths; i++) put_and_store(out, h->lengths[LENGTHS_ORDER[i]], 3);
    for (unsigned i = 0; i < h->count; i++) {
        const unsigned symbol = h->items[i] & 31;
        put(out, h->codes[symbol], h->lengths[symbol]);
        put_and_store(out, h->items[i] >> 5, lengths_extra_bits(symbol));
    }
}

/* Bits of the tokens in these codes, without what says which of a symbol's lengths or distances are meant. */
static size_t bits_in(const struct block_codes *codes, const struct tokens *t) {
    size_t bits = 0;
    for (unsigned i = 0; i < NUM_USED_LITLENS; i++) bits += (size_t)t->litlen_frequencies[i] * codes->litlen_lengths[i];
    for (unsigned i = 0; i < NUM_USED_DISTANCES; i++)
        bits += (size_t)t->distance_frequencies[i] * codes->distance_lengths[i];
    return bits;
}

static size_t extra_bits_of(const struct tokens *t) {
    size_t bits = 0;
    for (unsigned i = END_OF_BLOCK_SYMBOL + 1; i < NUM_USED_LITLENS; i++)
        bits += (size_t)t->litlen_frequencies[i] * (litlen_meaning(i) & 0xff);
    for (unsigned i = 0; i < NUM_USED_DISTANCES; i++)
        bits += (size_t)t->distance_frequencies[i] * (distance_meaning(i) & 0xff);
    return bits;
}

static void write_tokens(struct bit_writer *writer, const struct tokens *t, const struct block_codes *codes) {
    struct bit_writer out = *writer;
    struct { uint32_t bits, count; } matches[LONGEST_MATCH + 1]; /* a length's code and extra bits */
    for (unsigned length = SHORTEST_MATCH; length <= LONGEST_MATCH; length++) {
        const unsigned symbol = END_OF_BLOCK_SYMBOL + t->length_symbols[length];
        const uint32_t meaning = litlen_meaning(symbol);
        matches[length].bits = codes->litlens[symbol] | (length - (meaning >> 16)) << codes->litlen_lengths[symbol];
        matches[length].count = codes->litlen_lengths[symbol] + (meaning & 0xff);
    }
    for (unsigned i = 0; i < t->count; i++) {
        const uint32_t token = t->list[i], length = token >> 16;
        if (length == 0) {
            put_and_store(&out, codes->litlens[token], codes->litlen_lengths[token]);
            continue;
        }
        unsigned extra_bits;
        const unsigned distance = token & 0xffff, symbol = distance_symbol(distance, &extra_bits);
        put(&out, matches[length].bits, matches[length].count);
        put(&out, codes->distances[symbol], codes->distance_lengths[symbol]);
        put_and_store(&out, low_bits(distance, extra_bits), extra_bits);
    }
    put_and_store(&out, codes->litlens[END_OF_BLOCK_SYMBOL], codes->litlen_lengths[END_OF_BLOCK_SYMBOL]);
    *writer = out;
}

static size_t stored_bits(const struct bit_writer *out, size_t size) {
    const unsigned first_header = 3 + (-(out->count + 3) & 7) + 32, other_headers = 8 + 32;
    return first_header + (size ? (size - 1) / MOST_STORED : 0) * other_headers + 8 * size;
}

static void write_stored(struct bit_writer *out, const uint8_t *bytes, size_t size, bool is_last) {
    do {
        const unsigned here = size < MOST_STORED ? (unsigned)size : MOST_STORED;
        size -= here;
        put_and_store(out, is_last && size == 0, 3);
        end_byte(out);
        put_and_store(out, here | (uint32_t)(here ^ 0xffff) << 16, 32);
        memcpy(out->next, bytes, here);
        out->next += here;
        bytes += here;
    } while (size > 0);
}

/* Writes the tokens, which stand for `size` bytes, and forgets them. */
static void write_block(struct bit_writer *out, struct tokens *t, const uint8_t *bytes, size_t size, bool is_last) {
    struct block_codes codes;
    struct codes_header header;
    t->litlen_frequencies[END_OF_BLOCK_SYMBOL] = 1;
    const size_t extra_bits = extra_bits_of(t);
    write_fixed_code_lengths(codes.litlen_lengths, codes.distance_lengths);
    const size_t fixed_bits = bits_in(&codes, t) + extra_bits;
    make_code_lengths(t->litlen_frequencies, NUM_LITLENS, LONGEST_CODE, codes.litlen_lengths);
    make_code_lengths(t->distance_frequencies, NUM_DISTANCES, LONGEST_CODE, codes.distance_lengths);
    make_codes_header(&header, &codes);
    const size_t dynamic_bits = header.bits + bits_in(&codes, t) + extra_bits;
    const size_t coded_bits = fixed_bits < dynamic_bits ? fixed_bits : dynamic_bits;

    if (stored_bits(out, size) <= 3 + coded_bits) {
        write_stored(out, bytes, size, is_last);
    } else {
        put(out, is_last, 1);
        if (fixed_bits <= dynamic_bits) {
            put_and_store(out, FIXED_BLOCK, 2);
            write_fixed_code_lengths(codes.litlen_lengths, codes.distance_lengths);
        } else {
            put_and_store(out, DYNAMIC_BLOCK, 2);
            write_codes_header(out, &header);
        }
        make_codes(codes.litlen_lengths, NUM_LITLENS, codes.litlens);
        make_codes(codes.distance_lengths, NUM_DISTANCES, codes.distances);
        write_tokens(out, t, &codes);
    }
    begin_block(t);
}

#endif
