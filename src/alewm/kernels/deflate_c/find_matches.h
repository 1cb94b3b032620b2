/* Finds where the pixels to come were seen before.
 *
 * A frame repeats itself in few ways: the pixel before (areas of one colour), the row above (everything drawn with
 * vertical edges), and, where it is busy, colours seen a moment ago. So two distances are always tried, and two small
 * tables give the rest: the last places of this pixel, and the last of this pixel and the next. All of them are
 * compared at once by eight bytes, without branches, since in busy places nobody can guess which will win.
 */

#ifndef ALEWM_FIND_MATCHES_H
#define ALEWM_FIND_MATCHES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "bits.h"
#include "symbols.h"

enum {
    PIXEL = 3, /* bytes */
    SHORTEST_MATCH = 3,
    LONGEST_DISTANCE = 32768,
    LOOK_AHEAD = 8,      /* bytes of input that must be there wherever matches are looked for */
    TABLE_BITS = 12,     /* 4,096 entries: more found nothing more */
    NUM_PLACES = 1,      /* remembered of a pixel: a second one found longer matches, but further away */
    NUM_PAIR_PLACES = 2, /* remembered of a pixel and the next */
};

struct match {
    uint32_t length;
    uint32_t distance;
};

struct finder {
    const uint8_t *begin, *end;    /* of the frame */
    uint32_t row;                  /* bytes of a row of pixels */
    const uint8_t *pixel_run_end;  /* up to here, bytes equal those of the pixel before ... */
    const uint8_t *row_run_end;    /* ... and of the row above */
    uint32_t first_place;          /* the frame's number in the tables: what is less belongs to frames before */
    uint32_t places[1 << TABLE_BITS][NUM_PLACES];
    uint32_t pair_places[1 << TABLE_BITS][NUM_PAIR_PLACES];
};

/* How many bytes from `here` on equal those from `there` on, which lies before it. */
static inline size_t count_equal(const uint8_t *here, const uint8_t *there, const uint8_t *end) {
    const uint8_t *const start = here;
    if (end - here >= 8) { /* in busy places this is the end of it */
        const uint64_t difference = load_little_endian(here) ^ load_little_endian(there);
        if (difference) return (unsigned)__builtin_ctzll(difference) / 8;
    }
    for (; end - here >= 32; here += 32, there += 32) {
        uint64_t difference = 0;
        for (int i = 0; i < 32; i += 8) difference |= load_little_endian(here + i) ^ load_little_endian(there + i);
        if (difference) break;
    }
    for (; end - here >= 8; here += 8, there += 8) {
        const uint64_t difference = load_little_endian(here) ^ load_little_endian(there);
        if (difference) return (size_t)(here - start) + (unsigned)__builtin_ctzll(difference) / 8;
    }
    while (here < end && *here == *there) here++, there++;
    return (size_t)(here - start);
}

static void begin_frame(struct finder *f, const uint8_t *frame, size_t size, uint32_t row) {
    const size_t places_used = f->end ? (size_t)(f->end - f->begin) + 1 : 1;
    if (UINT32_MAX - f->first_place < places_used + size) {
        memset(f, 0, sizeof *f);
        f->first_place = 1;
    } else {
        f->first_place += (uint32_t)places_used;
    }
    f->begin = f->pixel_run_end = f->row_run_end = frame;
    f->end = frame + size;
    f->row = row;
}

/* The longer of the two runs that lead from `here` on, the pixel's if both are as long as a match can be. */
static inline struct match find_run(struct finder *f, const uint8_t *here) {
    const size_t position = (size_t)(here - f->begin);
    if (here >= f->pixel_run_end && position >= PIXEL) f->pixel_run_end = here + count_equal(here, here - PIXEL, f->end);
    if (here >= f->row_run_end && position >= f->row) f->row_run_end = here + count_equal(here, here - f->row, f->end);
    const ptrdiff_t pixel_run = f->pixel_run_end - here, row_run = f->row_run_end - here;
    const ptrdiff_t run = pixel_run >= row_run || pixel_run >= LONGEST_MATCH ? pixel_run : row_run;
    const struct match found = {
        .length = run <= 0 ? 0 : run < LONGEST_MATCH ? (uint32_t)run : LONGEST_MATCH,
        .distance = run == pixel_run ? PIXEL : f->row,
    };
    return found;
}

static inline unsigned table_index(uint64_t bytes, unsigned num_bytes) {
    return (unsigned)((bytes << (64 - 8 * num_bytes)) * 0x9e3779b97f4a7c15u >> (64 - TABLE_BITS));
}

/* Puts `place` before the `count` places that are there, into `seen` those it found. */
static inline void remember(uint32_t *places, unsigned count, uint32_t place, uint32_t *seen) {
    for (unsigned i = 0; i < count; i++) seen[i] = places[i];
    for (unsigned i = count - 1; i > 0; i--) places[i] = seen[i - 1];
    places[0] = place;
}

struct candidates {
    uint32_t places[NUM_PLACES + NUM_PAIR_PLACES];
};

/* Remembers the pixel at `here`; returns where it was before. */
static inline struct candidates remember_pixel(struct finder *f, const uint8_t *here) {
    struct candidates seen;
    const uint64_t bytes = load_little_endian(here);
    const uint32_t place = f->first_place + (uint32_t)(here - f->begin);
    remember(f->places[table_index(bytes, PIXEL)], NUM_PLACES, place, seen.places);
    remember(f->pair_places[table_index(bytes, 2 * PIXEL)], NUM_PAIR_PLACES, place, seen.places + NUM_PLACES);
    return seen;
}

/* The longest match at `here`, `run` included, the nearest of several; remembers the pixel. */
static inline struct match find_match(struct finder *f, const uint8_t *here, struct match run) {
    const struct candidates seen = remember_pixel(f, here);
    const uint64_t bytes = load_little_endian(here);
    const uint32_t position = (uint32_t)(here - f->begin), place = f->first_place + position;
    uint32_t best = run.length << 16 | (LONGEST_DISTANCE - run.distance); /* so that the greatest is the best */
    for (unsigned i = 0; i < NUM_PLACES + NUM_PAIR_PLACES; i++) {
        const uint32_t back = place - seen.places[i];
        const int is_possible = back <= position && back <= LONGEST_DISTANCE;
        const uint32_t distance = is_possible ? back : 0; /* zero bytes back is equal to itself: made nothing below */
        const uint64_t difference = bytes ^ load_little_endian(here - distance);
        uint32_t length = (unsigned)__builtin_ctzll(difference | (uint64_t)1 << 63) / 8;
        if (difference == 0 && is_possible) {
            const uint8_t *const end = f->end - here > LONGEST_MATCH ? here + LONGEST_MATCH : f->end;
            length = 8 + (uint32_t)count_equal(here + 8, here + 8 - distance, end);
        }
        const uint32_t candidate = (is_possible ? length : 0) << 16 | (LONGEST_DISTANCE - distance);
        best = candidate > best ? candidate : best;
    }
    const struct match found = {.length = best >> 16, .distance = LONGEST_DISTANCE - (best & 0xffff)};
    return found;
}

#endif
