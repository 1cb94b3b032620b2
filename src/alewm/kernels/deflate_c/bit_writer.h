/* Writes a stream bit by bit from the low end, eight bytes at a time. */

#ifndef ALEWM_BIT_WRITER_H
#define ALEWM_BIT_WRITER_H

#include <stdint.h>
#include <string.h>

enum { WRITER_SLACK = 8 }; /* bytes behind the stream that are overwritten */

struct bit_writer {
    uint64_t bits; /* those not stored yet, lowest first */
    unsigned count; /* at most 7 between two calls of `store_whole_bytes` that lie 56 bits apart */
    uint8_t *next;
};

static inline void store_little_endian(uint8_t *to, uint64_t word) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    memcpy(to, &word, sizeof word);
}

/* Adds the `count` bits of `bits`, which must have no others; at most 56 between two stores. */
static inline void put(struct bit_writer *out, uint64_t bits, unsigned count) {
    out->bits |= bits << out->count;
    out->count += count;
}

static inline void store_whole_bytes(struct bit_writer *out) {
    store_little_endian(out->next, out->bits);
    out->next += out->count >> 3;
    out->bits >>= out->count & ~7u;
    out->count &= 7;
}

static inline void put_and_store(struct bit_writer *out, uint64_t bits, unsigned count) {
    put(out, bits, count);
    store_whole_bytes(out);
}

/* Fills the last byte with zeros. */
static inline void end_byte(struct bit_writer *out) { put_and_store(out, 0, -out->count & 7); }

#endif
