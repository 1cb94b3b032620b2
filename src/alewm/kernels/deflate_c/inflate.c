/* Inflates many zlib streams (RFC 1950, 1951) of known size in one call, straight into the batch they are for.
 *
 * Written for frames: few blocks, long matches (the row above, runs of one colour), short stretches of literals.
 * Nothing outside a stream and its frame is ever read or written: the memory behind a frame may be another thread's
 * frame.
 *
 * Reading order: bits.h, huffman.h, symbols.h, matches.h, symbol_loops.h, blocks.h, this file.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "adler32.h"
#include "blocks.h"
#include "status.h"

const char *inflate_problem(int status) { return PROBLEMS[status]; }

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

/* Inflates stream i, the `sizes[i]` bytes of `file` at `offsets[i]`, to the i-th frame of `out`. 0 if all are whole;
 * else the reason for `inflate_problem`, and in `first_bad` which stream it is; those after it are not touched. */
int inflate_frames(const uint8_t *file, int64_t file_bytes, const int64_t *offsets, const int64_t *sizes, int64_t count,
                   uint8_t *out, int64_t frame_bytes, int verify, int64_t *first_bad) {
    struct workspace w;
    write_meanings(&w);
    for (int64_t i = 0; i < count; i++) {
        enum status status = OUTSIDE_FILE;
        if (offsets[i] >= 0 && sizes[i] >= 0 && offsets[i] <= file_bytes - sizes[i])
            status = inflate_stream(file + offsets[i], (size_t)sizes[i], out + i * frame_bytes, (size_t)frame_bytes,
                                    verify, &w);
        if (status != OK) {
            *first_bad = i;
            return status;
        }
    }
    return OK;
}
