/* Inflates many zlib streams (RFC 1950, 1951) of known size in one call, straight into the batch they are for.
 *
 * Written for frames: few blocks, long matches (the row above, runs of one colour), short stretches of literals.
 * A block is decoded by a fast loop while input and output are far from their ends and by a careful one near them; the
 * careful loop alone would be correct. Nothing outside a stream and its frame is ever read or written: the memory
 * behind a frame may be another thread's frame.
 */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "adler32.h"
#include "bits.h"
#include "huffman.h"
#include "symbols.h"

enum status {
    OK,
    NEAR_AN_END, /* of input or output: for the careful loop, never seen by callers */
    OUTSIDE_FILE,
    BAD_HEADER,
    BAD_BLOCK,
    BAD_CODE,
    BAD_SYMBOL,
    BAD_DISTANCE,
    TRUNCATED,
    TOO_LONG,
    TOO_SHORT,
    BAD_CHECKSUM,
};

static const char *const PROBLEMS[] = {
    [OK] = "no problem",
    [NEAR_AN_END] = "no problem",
    [OUTSIDE_FILE] = "it lies outside the file",
    [BAD_HEADER] = "not a zlib stream",
    [BAD_BLOCK] = "a block of no known kind",
    [BAD_CODE] = "an impossible set of codes",
    [BAD_SYMBOL] = "a code that stands for nothing",
    [BAD_DISTANCE] = "a reference to before the beginning",
    [TRUNCATED] = "the stream is incomplete",
    [TOO_LONG] = "it decodes to more bytes than expected",
    [TOO_SHORT] = "it decodes to fewer bytes than expected",
    [BAD_CHECKSUM] = "the decoded bytes differ from their checksum",
};

const char *inflate_problem(int status) { return PROBLEMS[status]; }

struct decoder {
    struct bit_reader in;
    const uint8_t *begin; /* of the output, which is filled up to `out` */
    uint8_t *out;
    uint8_t *end;
};

/* The tables of a block and what symbols mean, which is the same for all blocks. */
struct workspace {
    uint32_t litlen_meanings[NUM_LITLENS];
    uint32_t distance_meanings[NUM_DISTANCES];
    uint32_t length_meanings[NUM_LENGTHS];
    struct code litlens;
    struct code distances;
    struct code lengths;
};

/* ---- Matches ---- */

enum {
    LONGEST_MATCH = 258,
    CHUNK = 32, /* bytes copied at a time: those beyond a match are overwritten by what comes after it */
    FAST_OUTPUT = 3 + LONGEST_MATCH + 2 * CHUNK, /* the most that one turn of the fast loop writes */
    FAST_INPUT = 16,                             /* the most that it looks at: two refills of eight bytes */
};

/* Copies a match and up to two chunks more. */
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

/* ---- The symbols of a block ---- */

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

static enum status decode_symbols(struct decoder *d, const struct workspace *w) {
    const enum status status = decode_fast(d, &w->litlens, &w->distances);
    return status == NEAR_AN_END ? decode_carefully(d, &w->litlens, &w->distances) : status;
}

/* ---- The three kinds of blocks ---- */

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
    return decode_symbols(d, w);
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
    return decode_symbols(d, w);
}

/* ---- Streams ---- */

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

/* Whether the two bytes before the first block say: deflate, a window of at most 32 KiB, no preset dictionary. */
static bool is_zlib_header(const uint8_t *bytes) {
    return (bytes[0] & 15) == 8 && bytes[0] >> 4 <= 7 && !(bytes[1] & 32) && (bytes[0] << 8 | bytes[1]) % 31 == 0;
}

static enum status inflate_stream(const uint8_t *stream, size_t size, uint8_t *out, size_t out_size, bool verify,
                                  struct workspace *w) {
    if (size < 2) return TRUNCATED;
    if (!is_zlib_header(stream)) return BAD_HEADER;
    struct decoder d = {
        .in = {.next = stream + 2, .end = stream + size}, .begin = out, .out = out, .end = out + out_size};
    const enum status status = decode_blocks(&d, w);
    if (status != OK) return status;
    if (d.out != d.end) return TOO_SHORT;
    go_to_byte_boundary(&d.in);
    if (bytes_left(&d.in) < 4) return TRUNCATED;
    const uint8_t *sum = d.in.next;
    const uint32_t expected = (uint32_t)sum[0] << 24 | (uint32_t)sum[1] << 16 | (uint32_t)sum[2] << 8 | sum[3];
    return verify && adler32(out, out_size) != expected ? BAD_CHECKSUM : OK;
}

static void write_meanings(struct workspace *w) {
    for (unsigned symbol = 0; symbol < NUM_LITLENS; symbol++) w->litlen_meanings[symbol] = litlen_meaning(symbol);
    for (unsigned symbol = 0; symbol < NUM_DISTANCES; symbol++) w->distance_meanings[symbol] = distance_meaning(symbol);
    for (unsigned symbol = 0; symbol < NUM_LENGTHS; symbol++) w->length_meanings[symbol] = make_entry(symbol, 0, 0);
}

/* Inflates stream i, the `sizes[i]` bytes of `file` at `offsets[i]`, to the i-th frame of `out`. 0 if all are whole;
 * else the reason for `inflate_problem`, and in `first_bad` which stream it is, after which nothing is done.
 */
int inflate_frames(const uint8_t *file, int64_t file_bytes, const int64_t *offsets, const int64_t *sizes, int64_t count,
                   uint8_t *out, int64_t frame_bytes, int verify, int64_t *first_bad) {
    struct workspace w;
    write_meanings(&w);
    for (int64_t i = 0; i < count; i++) {
        const int is_inside = offsets[i] >= 0 && sizes[i] >= 0 && offsets[i] <= file_bytes - sizes[i];
        const enum status status = is_inside ? inflate_stream(file + offsets[i], (size_t)sizes[i], out + i * frame_bytes,
                                                              (size_t)frame_bytes, verify, &w)
                                             : OUTSIDE_FILE;
        if (status != OK) {
            *first_bad = i;
            return status;
        }
    }
    return OK;
}
