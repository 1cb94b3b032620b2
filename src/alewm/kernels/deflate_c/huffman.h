/* Huffman codes as tables: the next bits of the stream lead to what they mean in one step, or in two for long codes. */

#ifndef ALEWM_HUFFMAN_H
#define ALEWM_HUFFMAN_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "bits.h"
#include "canonical_codes.h"

enum {
    PRIMARY_BITS = 11,
    /* A code that goes beyond the primary table shares its first 11 bits with another, since codes are complete. */
    TABLE_SIZE = (1 << PRIMARY_BITS) + MOST_SYMBOLS / 2 * (1 << (LONGEST_CODE - PRIMARY_BITS)),
};

/* An entry says what some bits mean:
 *   bits 0 to 7    how many to drop: those of the code and the extra bits of a length or distance behind it
 *   bits 8 to 11   how many of them are the code's
 *   bits 12 to 15  flags, none for a length, a distance or the length of a code
 *   bits 16 to 31  value: literal, smallest length or distance, start of the secondary table
 */
enum { LITERAL = 1 << 15, END_OF_BLOCK = 1 << 14, INVALID = 1 << 13, SECONDARY = 1 << 12 };

struct code {
    unsigned primary_bits;
    uint32_t entries[TABLE_SIZE];
};

static inline uint32_t make_entry(unsigned value, unsigned extra_bits, unsigned flags) {
    return (uint32_t)value << 16 | flags | extra_bits;
}

static inline uint32_t with_code_bits(uint32_t entry, unsigned code_bits) { return entry + code_bits * 0x101u; }

static inline unsigned code_bits_of(uint32_t entry) { return entry >> 8 & 15; }

/* The entry for the next bits; the first half of a long code is dropped. Needs 15 bits. */
static inline uint32_t look_up(const struct code *code, struct bit_reader *in) {
    uint32_t entry = code->entries[low_bits(in->bits, code->primary_bits)];
    if (__builtin_expect((entry & SECONDARY) != 0, 0)) {
        drop(in, code->primary_bits);
        entry = code->entries[(entry >> 16) + low_bits(in->bits, code_bits_of(entry))];
    }
    return entry;
}

/* The value of an entry that was just looked up, extra bits included; drops its bits. */
static inline unsigned take_value(struct bit_reader *in, uint32_t entry) {
    const unsigned num_bits = entry & 0xff;
    const unsigned extra = (unsigned)(low_bits(in->bits, num_bits) >> code_bits_of(entry));
    drop(in, num_bits);
    return (entry >> 16) + extra;
}

/* Whether codes of these lengths leave no bits without a meaning. One code alone, of one bit, is allowed to
 * (`may_be_single`), and none at all is, if it is never used. */
static bool is_possible(const unsigned num_of_length[LONGEST_CODE + 1], bool may_be_single) {
    int free_codes = 1;
    unsigned num_codes = 0;
    for (unsigned length = 1; length <= LONGEST_CODE; length++) {
        free_codes = 2 * free_codes - (int)num_of_length[length];
        if (free_codes < 0) return false;
        num_codes += num_of_length[length];
    }
    return free_codes == 0 || num_codes == 0 || (may_be_single && num_codes == 1 && num_of_length[1] == 1);
}

/* Makes the table of the code whose symbol i has `lengths[i]` bits and means `meanings[i]`; false if there is none. */
static bool build_code(struct code *code, const uint8_t *lengths, const uint32_t *meanings, unsigned num_symbols,
                       bool may_be_single) {
    unsigned num_of_length[LONGEST_CODE + 1] = {0};
    for (unsigned symbol = 0; symbol < num_symbols; symbol++) num_of_length[lengths[symbol]]++;
    num_of_length[0] = 0;
    if (!is_possible(num_of_length, may_be_single)) return false;

    uint16_t sorted[MOST_SYMBOLS];
    sort_symbols(lengths, num_symbols, num_of_length, sorted);
    unsigned longest = LONGEST_CODE;
    while (longest > 1 && !num_of_length[longest]) longest--;
    const unsigned primary_bits = longest < PRIMARY_BITS ? longest : PRIMARY_BITS;
    const unsigned secondary_bits = longest - primary_bits;
    uint32_t *const entries = code->entries;
    const uint16_t *symbol = sorted;
    unsigned bits = 0; /* of the code that comes next */
    code->primary_bits = primary_bits;
    entries[0] = entries[1] = with_code_bits(make_entry(0, 0, INVALID), 1);

    /* The table doubles as codes get longer: whatever the bit after a short code, it means the same. */
    for (unsigned length = 1; length <= primary_bits; length++) {
        if (length > 1) memcpy(entries + (1u << (length - 1)), entries, sizeof *entries << (length - 1));
        for (unsigned n = num_of_length[length]; n > 0; n--, symbol++) {
            entries[bits] = with_code_bits(meanings[*symbol], length);
            bits = next_code(bits, length);
        }
    }

    unsigned free_place = 1u << primary_bits;
    unsigned prefix = ~0u, start = 0;
    for (unsigned length = primary_bits + 1; length <= longest; length++) {
        for (unsigned n = num_of_length[length]; n > 0; n--, symbol++) {
            if (prefix != low_bits(bits, primary_bits)) {
                prefix = (unsigned)low_bits(bits, primary_bits);
                start = free_place;
                free_place += 1u << secondary_bits;
                entries[prefix] = make_entry(start, 0, SECONDARY) | secondary_bits << 8;
            }
            const unsigned own_bits = length - primary_bits;
            for (unsigned i = bits >> primary_bits; i < 1u << secondary_bits; i += 1u << own_bits)
                entries[start + i] = with_code_bits(meanings[*symbol], own_bits);
            bits = next_code(bits, length);
        }
    }
    return true;
}

#endif
