/* Reads a stream bit by bit from the low end, eight bytes at a time where it can. */

#ifndef ALEWM_BITS_H
#define ALEWM_BITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct bit_reader {
    uint64_t bits;  /* the next `count` bits, lowest first; what lies above them are bits of `next`, never others */
    unsigned count; /* at most 63 */
    unsigned borrowed; /* zero bytes lent after the end of the input, so that looking ahead needs no special case */
    const uint8_t *next;
    const uint8_t *end;
};

static inline uint64_t low_bits(uint64_t bits, unsigned count) { return bits & (((uint64_t)1 << count) - 1); }

static inline uint64_t load_little_endian(const uint8_t *from) {
    uint64_t word;
    memcpy(&word, from, sizeof word);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

/* At least 56 bits are there afterwards. Needs eight bytes of input. */
static inline void refill_fast(struct bit_reader *in) {
    in->bits |= load_little_endian(in->next) << in->count;
    in->next += (63 - in->count) >> 3;
    in->count |= 56;
}

/* The same near the end of the input. */
static inline void refill(struct bit_reader *in) {
    for (; in->count < 56; in->count += 8) {
        if (in->next < in->end)
            in->bits |= (uint64_t)*in->next++ << in->count;
        else
            in->borrowed++;
    }
}

static inline void drop(struct bit_reader *in, unsigned count) {
    in->bits >>= count;
    in->count -= count;
}

/* `count` bits, which must be there. */
static inline unsigned take(struct bit_reader *in, unsigned count) {
    const unsigned value = (unsigned)low_bits(in->bits, count);
    drop(in, count);
    return value;
}

/* Whether bits were used that the input does not have. */
static inline bool ran_out(const struct bit_reader *in) { return 8 * in->borrowed > in->count; }

/* Gives back all whole bytes, so that `next` is where the stream goes on. The input must not have run out. */
static inline void go_to_byte_boundary(struct bit_reader *in) {
    in->next -= in->count / 8 - in->borrowed;
    in->bits = 0;
    in->count = 0;
    in->borrowed = 0;
}

static inline size_t bytes_left(const struct bit_reader *in) { return (size_t)(in->end - in->next); }

#endif
