/* Turns a frame into tokens and writes them, pixel by pixel.
 *
 * The longest match at a pixel is taken as it comes: looking one step further before deciding made files a little
 * smaller and took much longer. Matches are looked for at whole pixels only, a third of the work. What this misses is
 * had otherwise: a match grows backwards over bytes of the pixel before that are still literals, and a short one ends
 * with a whole pixel, so that the search goes on in step.
 */

#ifndef ALEWM_PARSE_H
#define ALEWM_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "find_matches.h"
#include "tokens.h"
#include "write_block.h"

enum {
    LONG_MATCH = 16,  /* beside a run of this length no match is looked for, and pixels of long matches are forgotten */
    SHORT_MATCH = 12, /* below this, a match ends with a whole pixel */
    TOKENS_PER_PIXEL = PIXEL + 1, /* at most, bytes left from the pixel before included */
};

struct parser {
    struct finder finder;
    struct tokens tokens;
    struct bit_writer out;
    const uint8_t *block; /* where the block began to which the tokens belong */
    const uint8_t *done;  /* up to here there are tokens */
};

static inline void add_literals(struct parser *p, const uint8_t *end) {
    while (p->done < end) add_literal(&p->tokens, *p->done++);
}

static inline void make_room(struct parser *p, unsigned num_tokens) {
    if (p->tokens.count + num_tokens <= TOKENS_PER_BLOCK) return;
    write_block(&p->out, &p->tokens, p->block, (size_t)(p->done - p->block), false);
    p->block = p->done;
}

/* Adds the match found at `here`, grown or cut as said above. */
static inline void add_found(struct parser *p, const uint8_t *here, struct match found) {
    const uint8_t *start = here, *end = here + found.length;
    while (start > p->done && found.length < LONGEST_MATCH && (size_t)(start - p->finder.begin) > found.distance &&
           start[-1] == start[-1 - (ptrdiff_t)found.distance]) {
        start--;
        found.length++;
    }
    if (start == here && found.length < SHORT_MATCH) {
        end -= found.length % PIXEL;
        found.length -= found.length % PIXEL;
    }
    add_literals(p, start);
    add_match(&p->tokens, found.length, found.distance);
    p->done = end;
}

/* Writes the blocks of a frame. */
static void parse(struct parser *p) {
    struct finder *const f = &p->finder;
    const uint8_t *here = f->begin; /* the first byte of a pixel; fewer than a pixel's bytes before it are not done */
    p->block = p->done = f->begin;
    begin_block(&p->tokens);
    while (f->end - here >= LOOK_AHEAD) {
        make_room(p, TOKENS_PER_PIXEL);
        struct match found = find_run(f, here);
        if (found.length < LONG_MATCH) found = find_match(f, here, found);
        if (found.length < SHORTEST_MATCH) {
            here += PIXEL;
            add_literals(p, here - (PIXEL - 1));
            continue;
        }
        add_found(p, here, found);
        if (found.length >= LONG_MATCH) {
            here += (p->done - here + PIXEL - 1) / PIXEL * PIXEL;
            continue;
        }
        for (here += PIXEL; here < p->done; here += PIXEL)
            if (f->end - here >= LOOK_AHEAD) remember_pixel(f, here);
    }
    while (p->done < f->end) {
        make_room(p, 1);
        add_literals(p, p->done + 1);
    }
    write_block(&p->out, &p->tokens, p->block, (size_t)(p->done - p->block), true);
}

#endif
