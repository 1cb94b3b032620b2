/* The three kinds of blocks of a deflate stream (RFC 1951, section 3.2). */

#ifndef ALEWM_BLOCKS_H
#define ALEWM_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "bits.h"
#include "huffman.h"
#include "status.h"
#include "symbol_loops.h"
#include "symbols.h"

/* The tables of a block and what symbols mean, which is the same for all blocks. */
struct workspace {
    uint32_t litlen_meanings[NUM_LITLENS];
    uint32_t distance_meanings[NUM_DISTANCES];
    uint32_t length_meanings[NUM_LENGTHS];
    struct code litlens;
    struct code distances;
    struct code lengths;
};

static void write_meanings(struct workspace *w) {
    for (unsigned symbol = 0; symbol < NUM_LITLENS; symbol++) w->litlen_meanings[symbol] = litlen_meaning(symbol);
    for (unsigned symbol = 0; symbol < NUM_DISTANCES; symbol++) w->distance_meanings[symbol] = distance_meaning(symbol);
    for (unsigned symbol = 0; symbol < NUM_LENGTHS; symbol++) w->length_meanings[symbol] = make_entry(symbol, 0, 0);
}

static enum status copy_stored_block(struct decoder *d) {
    drop(&d->in, d->in.count & 7);
    refill(&d->in);
    const unsigned count = take(&d->in, 16), complement = take(&d->in, 16);
    if (ran_out(&d->in)) return TRUNCATED;
    if ((count ^ complement) != 0xffff) return BAD_BLOCK;
    go_to_byte_boundary(&d->in);
    if (count > bytes_left(&d->in)) return TRUNCATED;
    if (count > (size_t)(d->end - d->out)) return TOO_LONG;
    memcpy(d->out, d->in.next, count);
    d->out += count;
    d->in.next += count;
    return OK;
}

static enum status decode_fixed_block(struct decoder *d, struct workspace *w) {
    uint8_t lengths[NUM_LITLENS];
    memset(lengths, 8, 144);
    memset(lengths + 144, 9, 256 - 144);
    memset(lengths + 256, 7, 280 - 256);
    memset(lengths + 280, 8, NUM_LITLENS - 280);
    build_code(&w->litlens, lengths, w->litlen_meanings, NUM_LITLENS, false);
    memset(lengths, 5, NUM_DISTANCES);
    build_code(&w->distances, lengths, w->distance_meanings, NUM_DISTANCES, false);
    return decode_symbols(d, &w->litlens, &w->distances);
}

/* Reads the code by which the lengths of the two other codes are written. */
static enum status read_lengths_code(struct decoder *d, struct workspace *w, unsigned num_lengths) {
    static const uint8_t ORDER[NUM_LENGTHS] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
    uint8_t lengths[NUM_LENGTHS] = {0};
    for (unsigned i = 0; i < num_lengths; i++) {
        refill(&d->in);
        lengths[ORDER[i]] = (uint8_t)take(&d->in, 3);
    }
    return build_code(&w->lengths, lengths, w->length_meanings, NUM_LENGTHS, false) ? OK : BAD_CODE;
}

/* Reads the lengths of the codes of both alphabets, which form one list. */
static enum status read_lengths(struct decoder *d, const struct code *code, uint8_t *lengths, unsigned count) {
    enum { REPEAT = 16, FEW_ZEROS = 17 }; /* the symbol after them is many zeros */
    for (unsigned i = 0; i < count;) {
        refill(&d->in);
        const uint32_t entry = look_up(code, &d->in);
        const unsigned symbol = take_value(&d->in, entry);
        if (entry & INVALID) return BAD_CODE;
        if (symbol < REPEAT) {
            lengths[i++] = (uint8_t)symbol;
            continue;
        }
        if (symbol == REPEAT && i == 0) return BAD_CODE;
        const uint8_t repeated = symbol == REPEAT ? lengths[i - 1] : 0;
        const unsigned times = symbol == REPEAT      ? 3 + take(&d->in, 2)
                               : symbol == FEW_ZEROS ? 3 + take(&d->in, 3)
                                                     : 11 + take(&d->in, 7);
        if (times > count - i) return BAD_CODE;
        memset(lengths + i, repeated, times);
        i += times;
    }
    return OK;
}

static enum status decode_dynamic_block(struct decoder *d, struct workspace *w) {
    refill(&d->in);
    const unsigned num_litlens = 257 + take(&d->in, 5);
    const unsigned num_distances = 1 + take(&d->in, 5);
    const unsigned num_lengths = 4 + take(&d->in, 4);
    if (num_litlens > NUM_USED_LITLENS || num_distances > NUM_USED_DISTANCES) return BAD_CODE;

    uint8_t lengths[NUM_USED_LITLENS + NUM_USED_DISTANCES];
    enum status status = read_lengths_code(d, w, num_lengths);
    if (status == OK) status = read_lengths(d, &w->lengths, lengths, num_litlens + num_distances);
    if (ran_out(&d->in)) return TRUNCATED; /* a better reason than what the missing bits were taken for */
    if (status != OK) return status;
    if (!lengths[END_OF_BLOCK_SYMBOL]) return BAD_CODE;
    if (!build_code(&w->litlens, lengths, w->litlen_meanings, num_litlens, true)) return BAD_CODE;
    if (!build_code(&w->distances, lengths + num_litlens, w->distance_meanings, num_distances, true)) return BAD_CODE;
    return decode_symbols(d, &w->litlens, &w->distances);
}

static enum status decode_blocks(struct decoder *d, struct workspace *w) {
    for (;;) {
        refill(&d->in);
        const unsigned is_last = take(&d->in, 1), kind = take(&d->in, 2);
        if (ran_out(&d->in)) return TRUNCATED;
        const enum status status = kind == 0   ? copy_stored_block(d)
                                   : kind == 1 ? decode_fixed_block(d, w)
                                   : kind == 2 ? decode_dynamic_block(d, w)
                                               : BAD_BLOCK;
        if (status != OK || is_last) return status;
    }
}

#endif
