#include "bundle/header.h"

#include "bundle/limits.h"

bool nj_header_read(nj_span file, nj_header *header, nj_error *error)
{
    nj_cursor cursor = {file};
    nj_span raw;
    if (!nj_take(&cursor, NJ_HEADER_BYTES, &raw)) {
        return nj_break(error, "truncated", nj_format("%zu", file.size).text, "expected a header of %d bytes", NJ_HEADER_BYTES);
    }
    const nj_span magic = {(const unsigned char *)NJ_MAGIC, sizeof NJ_MAGIC - 1};
    if (memcmp(raw.at, magic.at, magic.size) != 0) {
        return nj_break(error, "magic", nj_quote((nj_span){raw.at, magic.size}).text, "expected a nojit bundle, which starts with %s",
                        nj_quote(magic).text);
    }
    uint32_t version = nj_u32(raw.at + 8), reserved = nj_u32(raw.at + 12);
    if (version != NJ_FORMAT_VERSION) {
        return nj_break(error, "version", nj_format("%u", version).text, "expected bundle format %d", NJ_FORMAT_VERSION);
    }
    if (reserved != 0) {
        return nj_break(error, "reserved", nj_format("%u", reserved).text, "expected zero in the reserved field");
    }
    *header = (nj_header){nj_u64(raw.at + 16), nj_u64(raw.at + 24), raw.at + 32};
    if (header->index_bytes > NJ_INDEX_BYTES_MAX || header->index_raw_bytes > NJ_INDEX_BYTES_MAX) {
        nj_text got = nj_format("%llu compressed, %llu raw", (unsigned long long)header->index_bytes,
                                (unsigned long long)header->index_raw_bytes);
        return nj_break(error, "size", got.text, "expected an index of at most %d bytes", NJ_INDEX_BYTES_MAX);
    }
    return true;
}
