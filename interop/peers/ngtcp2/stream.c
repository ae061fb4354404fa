#include "peer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The pattern repeats after this many bytes. */
#define PERIOD 65521
#define CHUNK 65536

/* Long enough for a chunk at any offset. ngtcp2 reads it again when it sends bytes again. */
static uint8_t pattern[PERIOD + CHUNK];

void make_pattern(void) {
    for (uint32_t i = 0; i < sizeof pattern; i++) {
        pattern[i] = (uint8_t)((i % PERIOD * UINT32_C(2654435761)) >> 24);
    }
}

void to_hex(const uint8_t *bytes, size_t len, char *hex) {
    for (size_t i = 0; i < len; i++) {
        snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
    }
}

struct stream *stream_new(int64_t id) {
    struct stream *stream = calloc(1, sizeof *stream);
    if (stream == NULL || gnutls_hash_init(&stream->hash, GNUTLS_DIG_SHA256) != 0) {
        die("no memory for a stream");
    }
    stream->id = id;
    return stream;
}

void stream_free(struct stream *stream) {
    if (stream->hash != NULL) {
        gnutls_hash_deinit(stream->hash, NULL);
    }
    free(stream);
}

void stream_ask(struct stream *stream, const char *verb, uint64_t count, uint64_t upload) {
    int len = snprintf(stream->first, sizeof stream->first, "%s %llu\n", verb,
                       (unsigned long long)count);
    stream->first_len = (uint64_t)len;
    stream->pattern_len = upload;
    stream->is_ready = true;
}

ngtcp2_vec stream_next_bytes(const struct stream *stream, bool *is_last) {
    ngtcp2_vec bytes;
    if (stream->sent < stream->first_len) {
        bytes.base = (uint8_t *)stream->first + stream->sent;
        bytes.len = stream->first_len - stream->sent;
    } else {
        uint64_t offset = stream->sent - stream->first_len;
        uint64_t left = stream->pattern_len - offset;
        bytes.base = pattern + offset % PERIOD;
        bytes.len = left < CHUNK ? left : CHUNK;
    }
    *is_last = stream->sent + bytes.len == stream->first_len + stream->pattern_len;
    return bytes;
}

void stream_has_sent(struct stream *stream, uint64_t len) {
    stream->sent += len;
    stream->is_all_sent = stream->sent == stream->first_len + stream->pattern_len;
}

/* Takes what belongs to the line, and returns how many bytes that were. */
static size_t receive_line(struct stream *stream, const uint8_t *data, size_t len) {
    size_t taken = 0;
    while (stream->begins_with_line && taken < len) {
        uint8_t byte = data[taken++];
        stream->begins_with_line = byte != '\n';
        if (stream->line_len < sizeof stream->line - 1) {
            stream->line[stream->line_len++] = (char)byte;
        }
    }
    return taken;
}

void stream_receive(struct stream *stream, const uint8_t *data, size_t len) {
    size_t skipped = receive_line(stream, data, len);
    data += skipped;
    len -= skipped;
    /* The end of a stream may come alone. */
    if (len == 0) {
        return;
    }
    if (stream->received < HEX_LEN) {
        size_t space = HEX_LEN - stream->received;
        memcpy(stream->kept + stream->received, data, len < space ? len : space);
    }
    stream->received += len;
    gnutls_hash(stream->hash, data, len);
}

/* A server answers when it has the whole request. */
static void answer(struct stream *stream) {
    if (strncmp(stream->line, "GET ", 4) == 0) {
        stream->pattern_len = strtoull(stream->line + 4, NULL, 10);
    } else {
        to_hex(stream->digest, HASH_LEN, stream->first);
        stream->first_len = HEX_LEN;
    }
    stream->is_ready = true;
}

void stream_finish(struct stream *stream) {
    if (stream->is_finished) {
        return;
    }
    stream->is_finished = true;
    gnutls_hash_deinit(stream->hash, stream->digest);
    stream->hash = NULL;
    if (stream->line_len > 0) {
        answer(stream);
    }
}
