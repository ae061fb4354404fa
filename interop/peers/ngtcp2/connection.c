#include "peer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A server updates its keys after so many bytes of streams: a few times in a long transfer. */
#define BYTES_PER_KEY 500000

/* A stream's window at first, and how large ngtcp2 makes it. */
#define WINDOW (1 << 20)
#define WINDOW_MAX (32 << 20)

/* A client that opens more waits until one is closed. */
#define STREAMS_MAX 128

void random_id(ngtcp2_cid *id) {
    id->datalen = ID_LEN;
    if (gnutls_rnd(GNUTLS_RND_NONCE, id->data, ID_LEN) != 0) {
        die("no randomness");
    }
}

struct connection *connection_new(struct endpoint *endpoint) {
    struct connection *connection = calloc(1, sizeof *connection);
    if (connection == NULL) {
        die("no memory for a connection");
    }
    connection->endpoint = endpoint;
    connection->next = endpoint->connections;
    endpoint->connections = connection;
    return connection;
}

static void forget_ids(struct connection *connection) {
    struct endpoint *endpoint = connection->endpoint;
    for (size_t i = 0; i < endpoint->id_count;) {
        if (endpoint->ids[i].connection == connection) {
            endpoint->ids[i] = endpoint->ids[--endpoint->id_count];
        } else {
            i++;
        }
    }
}

void connection_free(struct connection *connection) {
    forget_ids(connection);
    ngtcp2_conn_del(connection->quic);
    gnutls_deinit(connection->tls);
    while (connection->streams != NULL) {
        struct stream *stream = connection->streams;
        connection->streams = stream->next;
        stream_free(stream);
    }
    free(connection);
}

struct stream *connection_add_stream(struct connection *connection, int64_t id) {
    struct stream **link = &connection->streams;
    while (*link != NULL) {
        link = &(*link)->next;
    }
    return *link = stream_new(id);
}

/* What ngtcp2 calls. */

static void on_random(uint8_t *bytes, size_t len, const ngtcp2_rand_ctx *context) {
    (void)context;
    if (gnutls_rnd(GNUTLS_RND_NONCE, bytes, len) != 0) {
        die("no randomness");
    }
}

static int on_id_wanted(ngtcp2_conn *quic, ngtcp2_cid *id, uint8_t *token, size_t len, void *user) {
    (void)quic;
    struct connection *connection = user;
    const struct options *options = connection->endpoint->options;
    id->datalen = len;
    on_random(id->data, len, NULL);
    if (options->reset_key_len == 0) {
        on_random(token, NGTCP2_STATELESS_RESET_TOKENLEN, NULL);
    } else if (ngtcp2_crypto_generate_stateless_reset_token(token, options->reset_key,
                                                            options->reset_key_len, id) != 0) {
        return NGTCP2_ERR_CALLBACK_FAILURE;
    }
    endpoint_add_id(connection->endpoint, id, connection);
    return 0;
}

static int on_id_retired(ngtcp2_conn *quic, const ngtcp2_cid *id, void *user) {
    (void)quic;
    endpoint_remove_id(((struct connection *)user)->endpoint, id);
    return 0;
}

static int on_stream_opened(ngtcp2_conn *quic, int64_t id, void *user) {
    struct stream *stream = connection_add_stream(user, id);
    stream->begins_with_line = true;
    ngtcp2_conn_set_stream_user_data(quic, id, stream);
    return 0;
}

static int on_stream_data(ngtcp2_conn *quic, uint32_t flags, int64_t id, uint64_t offset,
                          const uint8_t *data, size_t len, void *user, void *stream_user) {
    (void)offset;
    struct stream *stream = stream_user;
    ((struct connection *)user)->bytes_under_key += len;
    stream_receive(stream, data, len);
    if (flags & NGTCP2_STREAM_DATA_FLAG_FIN) {
        stream_finish(stream);
    }
    ngtcp2_conn_extend_max_offset(quic, len);
    int result = ngtcp2_conn_extend_max_stream_offset(quic, id, len);
    return result == 0 ? 0 : NGTCP2_ERR_CALLBACK_FAILURE;
}

static int on_stream_reset(ngtcp2_conn *quic, int64_t id, uint64_t final_size, uint64_t error,
                           void *user, void *stream_user) {
    (void)quic, (void)id, (void)final_size, (void)error, (void)user;
    ((struct stream *)stream_user)->is_reset = true;
    return 0;
}

/* A client looks at its answers later. */
static int on_stream_closed(ngtcp2_conn *quic, uint32_t flags, int64_t id, uint64_t error,
                            void *user, void *stream_user) {
    (void)flags, (void)error;
    struct connection *connection = user;
    if (ngtcp2_conn_is_local_stream(quic, id)) {
        return 0;
    }
    struct stream **link = &connection->streams;
    while (*link != stream_user) {
        link = &(*link)->next;
    }
    *link = (*link)->next;
    stream_free(stream_user);
    ngtcp2_conn_extend_max_streams_bidi(quic, 1);
    return 0;
}

static int give_token(struct connection *connection) {
    uint8_t token[NGTCP2_CRYPTO_MAX_REGULAR_TOKENLEN];
    const ngtcp2_path *path = ngtcp2_conn_get_path(connection->quic);
    const uint8_t *key = connection->endpoint->token_key;
    ngtcp2_ssize len = ngtcp2_crypto_generate_regular_token(
        token, key, sizeof connection->endpoint->token_key, path->remote.addr,
        path->remote.addrlen, now());
    if (len < 0) {
        return -1;
    }
    return ngtcp2_conn_submit_new_token(connection->quic, token, (size_t)len);
}

static int on_handshake_complete(ngtcp2_conn *quic, void *user) {
    struct connection *connection = user;
    int result = 0;
    if (ngtcp2_conn_is_server(quic)) {
        tls_send_ticket(connection);
        result = give_token(connection);
    } else if (connection->is_early && !tls_took_early_data(connection)) {
        connection->is_early_refused = true;
        result = ngtcp2_conn_early_data_rejected(quic);
    }
    return result == 0 ? 0 : NGTCP2_ERR_CALLBACK_FAILURE;
}

static int on_reset(ngtcp2_conn *quic, const ngtcp2_pkt_stateless_reset *reset, void *user) {
    (void)quic, (void)reset;
    ((struct connection *)user)->was_reset = true;
    return 0;
}

static int on_path_validated(ngtcp2_conn *quic, uint32_t flags, const ngtcp2_path *path,
                             ngtcp2_path_validation_result result, void *user) {
    (void)quic, (void)flags, (void)path;
    if (result == NGTCP2_PATH_VALIDATION_RESULT_SUCCESS) {
        ((struct connection *)user)->has_moved = true;
    }
    return 0;
}

static int on_token(ngtcp2_conn *quic, const ngtcp2_vec *token, void *user) {
    (void)quic, (void)user;
    client_keep_token(token);
    return 0;
}

void connection_fill_callbacks(ngtcp2_callbacks *callbacks, bool is_server) {
    *callbacks = (ngtcp2_callbacks){
        .recv_crypto_data = ngtcp2_crypto_recv_crypto_data_cb,
        .handshake_completed = on_handshake_complete,
        .encrypt = ngtcp2_crypto_encrypt_cb,
        .decrypt = ngtcp2_crypto_decrypt_cb,
        .hp_mask = ngtcp2_crypto_hp_mask_cb,
        .recv_stream_data = on_stream_data,
        .stream_open = on_stream_opened,
        .stream_close = on_stream_closed,
        .stream_reset = on_stream_reset,
        .recv_stateless_reset = on_reset,
        .rand = on_random,
        .get_new_connection_id = on_id_wanted,
        .remove_connection_id = on_id_retired,
        .update_key = ngtcp2_crypto_update_key_cb,
        .path_validation = on_path_validated,
        .delete_crypto_aead_ctx = ngtcp2_crypto_delete_crypto_aead_ctx_cb,
        .delete_crypto_cipher_ctx = ngtcp2_crypto_delete_crypto_cipher_ctx_cb,
        .get_path_challenge_data = ngtcp2_crypto_get_path_challenge_data_cb,
        .version_negotiation = ngtcp2_crypto_version_negotiation_cb,
    };
    if (is_server) {
        callbacks->recv_client_initial = ngtcp2_crypto_recv_client_initial_cb;
    } else {
        callbacks->client_initial = ngtcp2_crypto_client_initial_cb;
        callbacks->recv_retry = ngtcp2_crypto_recv_retry_cb;
        callbacks->recv_new_token = on_token;
    }
}

void connection_fill_settings(ngtcp2_settings *settings, ngtcp2_transport_params *params,
                              bool is_server) {
    ngtcp2_settings_default(settings);
    settings->initial_ts = now();
    settings->max_tx_udp_payload_size = DATAGRAM_MAX;
    settings->max_window = WINDOW_MAX;
    settings->max_stream_window = WINDOW_MAX;
    ngtcp2_transport_params_default(params);
    params->initial_max_data = 4 * WINDOW;
    params->initial_max_stream_data_bidi_local = WINDOW;
    params->initial_max_stream_data_bidi_remote = WINDOW;
    params->initial_max_streams_bidi = is_server ? STREAMS_MAX : 0;
    params->max_idle_timeout = 20 * NGTCP2_SECONDS;
    params->active_connection_id_limit = 7;
}

/* The end of a connection. */

static void end(struct connection *connection, const char *text) {
    if (connection->has_ended) {
        return;
    }
    connection->has_ended = true;
    snprintf(connection->end, sizeof connection->end, "%s", text);
    /* RFC 9000, section 10.2. */
    connection->forgotten_at = now() + 3 * ngtcp2_conn_get_pto(connection->quic);
}

static struct sockaddr_in *address_of(const ngtcp2_addr *address) {
    return (struct sockaddr_in *)(void *)address->addr;
}

static void send_close(struct connection *connection, const ngtcp2_connection_close_error *error) {
    uint8_t bytes[DATAGRAM_MAX];
    ngtcp2_path_storage at;
    ngtcp2_pkt_info info;
    ngtcp2_path_storage_zero(&at);
    ngtcp2_ssize len = ngtcp2_conn_write_connection_close(connection->quic, &at.path, &info, bytes,
                                                          sizeof bytes, error, now());
    if (len > 0) {
        endpoint_send(connection->endpoint, address_of(&at.path.local), address_of(&at.path.remote),
                      info.ecn, bytes, (size_t)len);
    }
}

static void fail(struct connection *connection, int result) {
    ngtcp2_connection_close_error error;
    uint8_t alert = ngtcp2_conn_get_tls_alert(connection->quic);
    char text[128];
    if (result == NGTCP2_ERR_CRYPTO && alert != 0) {
        ngtcp2_connection_close_error_set_transport_error_tls_alert(&error, alert, NULL, 0);
        snprintf(text, sizeof text, "failed by itself: alert %u", alert);
    } else {
        ngtcp2_connection_close_error_set_transport_error_liberr(&error, result, NULL, 0);
        snprintf(text, sizeof text, "failed by itself: %s", ngtcp2_strerror(result));
    }
    fprintf(stderr, "a connection %s\n", text);
    /* After these there is nothing to say, or to say it with. */
    bool is_silent = result == NGTCP2_ERR_IDLE_CLOSE || result == NGTCP2_ERR_DROP_CONN ||
                     result == NGTCP2_ERR_RETRY || ngtcp2_err_is_fatal(result);
    if (!is_silent) {
        send_close(connection, &error);
    }
    end(connection, text);
    if (is_silent) {
        connection->forgotten_at = 0;
    }
}

static void was_closed(struct connection *connection) {
    ngtcp2_connection_close_error error;
    char text[192];
    if (connection->was_reset) {
        end(connection, "stateless reset");
        return;
    }
    ngtcp2_conn_get_connection_close_error(connection->quic, &error);
    snprintf(text, sizeof text, "closed by the other side: error %llu of type %d, %.*s",
             (unsigned long long)error.error_code, (int)error.type,
             (int)(error.reasonlen < 128 ? error.reasonlen : 128),
             error.reason == NULL ? "" : (char *)error.reason);
    end(connection, text);
}

void connection_close(struct connection *connection) {
    ngtcp2_connection_close_error error;
    if (!connection->has_ended) {
        ngtcp2_connection_close_error_set_application_error(&error, 0, (uint8_t *)"done", 4);
        send_close(connection, &error);
        end(connection, "closed");
    }
}

/* What comes, and what goes out. */

ngtcp2_path path_between(const struct sockaddr_in *local, const struct sockaddr_in *remote) {
    return (ngtcp2_path){
        .local = {(ngtcp2_sockaddr *)(void *)local, sizeof *local},
        .remote = {(ngtcp2_sockaddr *)(void *)remote, sizeof *remote},
    };
}

void connection_read(struct connection *connection, const struct datagram *datagram) {
    if (connection->has_ended) {
        return;
    }
    ngtcp2_path path = path_between(&datagram->local, &datagram->remote);
    int result = ngtcp2_conn_read_pkt(connection->quic, &path, &datagram->info, datagram->bytes,
                                      datagram->len, now());
    if (result == NGTCP2_ERR_DRAINING) {
        was_closed(connection);
    } else if (result != 0) {
        fail(connection, result);
    }
    if (result == NGTCP2_ERR_RETRY) {
        server_retry(connection->endpoint, datagram);
    }
}

static struct stream *next_to_send(struct connection *connection) {
    for (struct stream *stream = connection->streams; stream != NULL; stream = stream->next) {
        if (stream->is_ready && !stream->is_all_sent && !stream->is_blocked) {
            return stream;
        }
    }
    return NULL;
}

/* Where a datagram goes, and how. */
struct way {
    ngtcp2_path_storage at;
    ngtcp2_pkt_info info;
};

/* Adds bytes of a stream, if there is one, to a datagram; as ngtcp2_conn_writev_stream. */
static ngtcp2_ssize add(struct connection *connection, struct stream *stream, struct way *way,
                        uint8_t *bytes, ngtcp2_tstamp at) {
    bool is_last = false;
    ngtcp2_vec data = {0};
    uint32_t flags = NGTCP2_WRITE_STREAM_FLAG_NONE;
    if (stream != NULL) {
        data = stream_next_bytes(stream, &is_last);
        flags = NGTCP2_WRITE_STREAM_FLAG_MORE;
        flags |= is_last ? NGTCP2_WRITE_STREAM_FLAG_FIN : 0;
    }
    ngtcp2_ssize taken = -1;
    ngtcp2_ssize result = ngtcp2_conn_writev_stream(
        connection->quic, &way->at.path, &way->info, bytes, DATAGRAM_MAX, &taken, flags,
        stream == NULL ? -1 : stream->id, &data, stream == NULL ? 0 : 1, at);
    if (stream != NULL && taken >= 0) {
        stream_has_sent(stream, (uint64_t)taken);
        connection->bytes_under_key += (uint64_t)taken;
    }
    return result;
}

/* The next datagram; its length, zero if nothing can be sent now, or an error. */
static ngtcp2_ssize fill(struct connection *connection, struct way *way, uint8_t *bytes,
                         ngtcp2_tstamp at) {
    ngtcp2_path_storage_zero(&way->at);
    way->info.ecn = NGTCP2_ECN_NOT_ECT;
    for (;;) {
        struct stream *stream = next_to_send(connection);
        ngtcp2_ssize result = add(connection, stream, way, bytes, at);
        if (result >= 0) {
            return result;
        } else if (result == NGTCP2_ERR_STREAM_DATA_BLOCKED) {
            stream->is_blocked = true;
        } else if (result == NGTCP2_ERR_STREAM_SHUT_WR || result == NGTCP2_ERR_STREAM_NOT_FOUND) {
            stream->is_all_sent = true;
        } else if (result != NGTCP2_ERR_WRITE_MORE) {
            return result;
        }
    }
}

static void update_keys_if_due(struct connection *connection) {
    bool is_due = connection->endpoint->is_server && connection->bytes_under_key >= BYTES_PER_KEY;
    if (is_due && ngtcp2_conn_get_handshake_completed(connection->quic) &&
        ngtcp2_conn_initiate_key_update(connection->quic, now()) == 0) {
        connection->bytes_under_key = 0;
    }
}

bool connection_write(struct connection *connection) {
    if (connection->has_ended) {
        return false;
    }
    update_keys_if_due(connection);
    for (struct stream *stream = connection->streams; stream != NULL; stream = stream->next) {
        stream->is_blocked = false;
    }
    uint8_t bytes[DATAGRAM_MAX];
    size_t burst = ngtcp2_conn_get_send_quantum(connection->quic) / DATAGRAM_MAX;
    burst = burst == 0 ? 1 : burst;
    ngtcp2_tstamp at = now();
    size_t count = 0;
    while (count < burst) {
        struct way way;
        ngtcp2_ssize len = fill(connection, &way, bytes, at);
        if (len < 0) {
            fail(connection, (int)len);
            return false;
        } else if (len == 0) {
            break;
        }
        endpoint_send(connection->endpoint, address_of(&way.at.path.local),
                      address_of(&way.at.path.remote), way.info.ecn, bytes, (size_t)len);
        count++;
    }
    ngtcp2_conn_update_pkt_tx_time(connection->quic, now());
    return count == burst;
}

ngtcp2_tstamp connection_wakes_at(const struct connection *connection) {
    if (connection->has_ended) {
        return connection->endpoint->is_server ? connection->forgotten_at : UINT64_MAX;
    }
    return ngtcp2_conn_get_expiry(connection->quic);
}

void connection_wake(struct connection *connection) {
    ngtcp2_tstamp at = now();
    if (connection->has_ended || ngtcp2_conn_get_expiry(connection->quic) > at) {
        return;
    }
    int result = ngtcp2_conn_handle_expiry(connection->quic, at);
    if (result != 0) {
        fail(connection, result);
    }
}
