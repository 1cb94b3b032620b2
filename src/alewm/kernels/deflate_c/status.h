/* How decoding can end. */

#ifndef ALEWM_STATUS_H
#define ALEWM_STATUS_H

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
    [BAD_BLOCK] = "a block with an impossible header",
    [BAD_CODE] = "an impossible set of codes",
    [BAD_SYMBOL] = "a code that stands for nothing",
    [BAD_DISTANCE] = "a reference to before the beginning",
    [TRUNCATED] = "the stream is incomplete",
    [TOO_LONG] = "it decodes to more bytes than expected",
    [TOO_SHORT] = "it decodes to fewer bytes than expected",
    [BAD_CHECKSUM] = "the decoded bytes differ from their checksum",
};

#endif
