/* Deflates many frames into zlib streams (RFC 1950, 1951) in one call.
 *
 * Written for drawn pictures, in which most bytes repeat the pixel before or the row above. The same bytes come out on
 * every machine: nothing depends on the processor, on what was compressed before, or on memory that was not written.
 *
 * Reading order: tokens.h, find_matches.h, code_lengths.h, bit_writer.h, write_block.h, parse.h, this file.
 */

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "adler32.h"
#include "bit_writer.h"
#include "parse.h"

enum { HEADER = 0x9c78, HEADER_BYTES = 2, CHECKSUM_BYTES = 4 };

/* The most bytes that a frame can take, and that `deflate_frames` needs for each. */
int64_t deflated_bytes_at_most(int64_t frame_bytes) {
    const int64_t most_blocks = frame_bytes / (TOKENS_PER_BLOCK - TOKENS_PER_PIXEL) + frame_bytes / MOST_STORED + 2;
    return HEADER_BYTES + frame_bytes + STORED_OVERHEAD * most_blocks + CHECKSUM_BYTES + WRITER_SLACK;
}

static void deflate_frame(struct parser *p, const uint8_t *frame, size_t size, uint32_t row) {
    put_and_store(&p->out, HEADER, 8 * HEADER_BYTES);
    begin_frame(&p->finder, frame, size, row);
    parse(p);
    end_byte(&p->out);
    put_and_store(&p->out, __builtin_bswap32(adler32(frame, size)), 8 * CHECKSUM_BYTES);
}

/* Writes `count` frames, with rows of `row_bytes`, one stream after the other to `out`, and their sizes to `sizes`.
 * 0, or -1 if there is no memory to work in. */
int deflate_frames(const uint8_t *frames, int64_t count, int64_t frame_bytes, int64_t row_bytes, uint8_t *out,
                   int64_t *sizes) {
    struct parser *const p = calloc(1, sizeof *p);
    if (!p) return -1;
    write_length_symbols(&p->tokens);
    const uint32_t row = row_bytes > 0 && row_bytes <= LONGEST_DISTANCE ? (uint32_t)row_bytes : PIXEL;
    p->out.next = out;
    for (int64_t i = 0; i < count; i++) {
        const uint8_t *const start = p->out.next;
        deflate_frame(p, frames + i * frame_bytes, (size_t)frame_bytes, row);
        sizes[i] = p->out.next - start;
    }
    free(p);
    return 0;
}
