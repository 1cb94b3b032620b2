/* The three kinds of blocks of a deflate stream (RFC 1951, section 3.2). */

#ifndef ALEWM_BLOCKS_H
#define ALEWM_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "bits.h"
#include "block_format.h"
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
    uint8_t litlen_lengths[NUM_LITLENS], distance_lengths[NUM_DISTANCES];
    write_fixed_code_lengths(litlen_lengths, distance_lengths);
    build_code(&w->litlens, litlen_lengths, w->litlen_meanings, NUM_LITLENS, false);
    build_code(&w->distances, distance_lengths, w->distance_meanings, NUM_DISTANCES, false);
    return decode_symbols(d, &w->litlens, &w->distances);
}

/* Reads the code by which the lengths of the two other codes are written. */
static enum status read_lengths_code(struct decoder *d, struct workspace *w, unsigned num_lengths) {
    uint8_t lengths[NUM_LENGTHS] = {0};
    for (unsigned i = 0; i < num_lengths; i++) {
        refill(&d->in);
        lengths[LENGTHS_ORDER[i]] = (uint8_t)take(&d->in, 3);
    }
    return build_code(&w->lengths, lengths, w->length_meanings, NUM_LENGTHS, false) ? OK : BAD_CODE;
}

/* Reads the lengths of the codes of both alphabets, which form one list. */
static enum status read_lengths(struct decoder *d, const struct code *code, uint8_t *lengths, unsigned count) {
    for (unsigned i = 0; i < count;) {
        refill(&d->in);
        const uint32_t entry = look_up(code, &d->in);
        const unsigned symbol = take_value(&d->in, entry);
        if (entry & INVALID) return BAD_CODE;
        if (symbol < REPEAT_LENGTH) {
            lengths[i++] = (uint8_t)symbol;
            continue;
        }
        if (symbol == REPEAT_LENGTH && i == 0) return BAD_CODE;
        const uint8_t repeated = symbol == REPEAT_LENGTH ? lengths[i - 1] : 0;
        const unsigned least = symbol == MANY_ZERO_LENGTHS ? 11 : 3;
        const unsigned times = least + take(&d->in, lengths_extra_bits(symbol));
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
        const enum status status = kind == STORED_BLOCK    ? copy_stored_block(d)
                                   : kind == FIXED_BLOCK   ? decode_fixed_block(d, w)
                                   : kind == DYNAMIC_BLOCK ? decode_dynamic_block(d, w)
                                                           : BAD_BLOCK;
        if (status != OK || is_last) return status;
    }
}

#endif
