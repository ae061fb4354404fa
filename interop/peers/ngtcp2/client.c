#include "peer.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TOKEN_MAX 512

/* What the newest connections have left for the next one. */
static struct {
    gnutls_datum_t session;
    ngtcp2_transport_params params;
    uint8_t token[TOKEN_MAX];
    size_t token_len;
} kept;

struct client {
    const struct options *options;
    struct sockaddr_in server;
    struct endpoint endpoint;
    /* The only one of the endpoint. */
    struct connection *connection;
};

void client_keep_session(gnutls_session_t session) {
    gnutls_free(kept.session.data);
    if (gnutls_session_get_data2(session, &kept.session) != 0) {
        die("a ticket without a session");
    }
}

/* A longer token than ours is left out: it is not needed. */
void client_keep_token(const ngtcp2_vec *token) {
    if (token->len <= TOKEN_MAX) {
        memcpy(kept.token, token->base, token->len);
        kept.token_len = token->len;
    }
}

static void keep_params(const struct client *client) {
    kept.params = *ngtcp2_conn_get_remote_transport_params(client->connection->quic);
    /* Points into the connection, and is not needed. */
    kept.params.version_info_present = 0;
    kept.params.version_info = (ngtcp2_version_info){0};
}

/* Runs until the next event. False if the connection has ended. */
static bool turn(struct client *client) {
    endpoint_turn(&client->endpoint, false);
    return !client->connection->has_ended;
}

static bool give_up(struct client *client, const char *text) {
    connection_close(client->connection);
    snprintf(client->connection->end, sizeof client->connection->end, "%s", text);
    return false;
}

static struct connection *find(struct endpoint *endpoint, const struct datagram *datagram) {
    (void)datagram;
    return endpoint->connections;
}

static void begin(struct client *client) {
    struct endpoint *endpoint = &client->endpoint;
    struct socket *socket = endpoint_open(endpoint, 0);
    struct connection *connection = connection_new(endpoint);
    ngtcp2_callbacks callbacks;
    ngtcp2_settings settings;
    ngtcp2_transport_params params;
    ngtcp2_cid theirs, ours;
    connection_fill_callbacks(&callbacks, false);
    connection_fill_settings(&settings, &params, false);
    settings.token = (ngtcp2_vec){kept.token, kept.token_len};
    /* A token is for one connection (RFC 9000, section 8.1.3). */
    kept.token_len = 0;
    random_id(&theirs);
    random_id(&ours);
    ngtcp2_path path = path_between(&socket->local, &client->server);
    if (ngtcp2_conn_client_new(&connection->quic, &theirs, &ours, &path, NGTCP2_PROTO_VER_V1,
                               &callbacks, &settings, &params, NULL, connection) != 0) {
        die("no memory for a connection");
    }
    client->connection = connection;
    tls_begin(connection);
}

static bool connected(struct client *client) {
    struct connection *connection = client->connection;
    while (!ngtcp2_conn_get_handshake_completed(connection->quic)) {
        if (!turn(client)) {
            return false;
        }
    }
    keep_params(client);
    say_connected(gnutls_session_is_resumed(connection->tls) != 0,
                  connection->is_early && !connection->is_early_refused);
    return true;
}

/* Closes, and begins again with what the old connection has left. */
static bool begin_again(struct client *client) {
    ngtcp2_tstamp deadline = now() + PATIENCE;
    while (kept.session.data == NULL && now() < deadline) {
        if (!turn(client)) {
            return false;
        }
    }
    if (kept.session.data == NULL) {
        return give_up(client, "the server has sent no ticket");
    }
    connection_close(client->connection);
    endpoint_close(&client->endpoint);
    begin(client);
    tls_use_session(client->connection, &kept.session);
    /* A ticket is for one connection, too (RFC 8446, appendix C.4). */
    gnutls_free(kept.session.data);
    kept.session.data = NULL;
    return true;
}

/* Opens a stream as soon as the server allows one. */
static struct stream *request(struct client *client, const char *verb, uint64_t count,
                              uint64_t upload) {
    int64_t id;
    while (ngtcp2_conn_open_bidi_stream(client->connection->quic, &id, NULL) != 0) {
        if (!turn(client)) {
            return NULL;
        }
    }
    struct stream *stream = connection_add_stream(client->connection, id);
    ngtcp2_conn_set_stream_user_data(client->connection->quic, id, stream);
    stream_ask(stream, verb, count, upload);
    return stream;
}

/* Waits for the whole answer. */
static bool answered(struct client *client, const struct stream *stream) {
    while (!stream->is_finished) {
        if (stream->is_reset) {
            return give_up(client, "the stream was reset");
        } else if (!turn(client)) {
            return false;
        }
    }
    return true;
}

static void report(const char *event, const struct stream *stream, ngtcp2_tstamp begun) {
    char hex[HEX_LEN + 1];
    to_hex(stream->digest, HASH_LEN, hex);
    say_result(event, stream->received, hex, begun);
}

/* The steps. Each is false if the connection has ended. */

static bool get(struct client *client, uint64_t count) {
    ngtcp2_tstamp begun = now();
    struct stream *stream = request(client, "GET", count, 0);
    if (stream == NULL || !answered(client, stream)) {
        return false;
    }
    report("get", stream, begun);
    return true;
}

static bool put(struct client *client, uint64_t count) {
    ngtcp2_tstamp begun = now();
    struct stream *stream = request(client, "PUT", count, count);
    if (stream == NULL || !answered(client, stream)) {
        return false;
    }
    say_result("put", count, stream->kept, begun);
    return true;
}

static bool get_all(struct client *client, struct stream **streams, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) {
        streams[i] = request(client, "GET", 1000, 0);
        if (streams[i] == NULL) {
            return false;
        }
    }
    for (uint64_t i = 0; i < count; i++) {
        if (!answered(client, streams[i])) {
            return false;
        }
    }
    return true;
}

static void report_all(struct stream **streams, uint64_t count, ngtcp2_tstamp begun) {
    uint8_t digest[HASH_LEN];
    char hex[HEX_LEN + 1];
    gnutls_hash_hd_t hash;
    uint64_t bytes = 0;
    if (gnutls_hash_init(&hash, GNUTLS_DIG_SHA256) != 0) {
        die("no hash");
    }
    for (uint64_t i = 0; i < count; i++) {
        bytes += streams[i]->received;
        gnutls_hash(hash, streams[i]->digest, HASH_LEN);
    }
    gnutls_hash_deinit(hash, digest);
    to_hex(digest, HASH_LEN, hex);
    say_result("streams", bytes, hex, begun);
}

static bool many(struct client *client, uint64_t count) {
    ngtcp2_tstamp begun = now();
    struct stream **streams = calloc(count + 1, sizeof(struct stream *));
    if (streams == NULL) {
        die("no memory for %llu streams", (unsigned long long)count);
    }
    bool is_done = get_all(client, streams, count);
    if (is_done) {
        report_all(streams, count, begun);
    }
    free(streams);
    return is_done;
}

/* Begins to probe a path from a new socket, as soon as the server has sent an ID for it. */
static bool begin_migration(struct client *client) {
    struct socket *socket = endpoint_open(&client->endpoint, 0);
    ngtcp2_path path = path_between(&socket->local, &client->server);
    ngtcp2_tstamp deadline = now() + PATIENCE;
    for (;;) {
        int result = ngtcp2_conn_initiate_migration(client->connection->quic, &path, now());
        if (result == 0) {
            return true;
        } else if (now() >= deadline) {
            return give_up(client, ngtcp2_strerror(result));
        } else if (!turn(client)) {
            return false;
        }
    }
}

static bool migrate(struct client *client) {
    client->connection->has_moved = false;
    if (!begin_migration(client)) {
        return false;
    }
    ngtcp2_tstamp deadline = now() + PATIENCE;
    while (!client->connection->has_moved) {
        if (now() >= deadline) {
            return give_up(client, "the new path did not answer");
        } else if (!turn(client)) {
            return false;
        }
    }
    return true;
}

static bool rebind(struct client *client) {
    endpoint_rebind(&client->endpoint.sockets[client->endpoint.socket_count - 1]);
    return true;
}

static bool get_moving(struct client *client, const char *name, uint64_t count,
                       bool (*move)(struct client *)) {
    ngtcp2_tstamp begun = now();
    struct stream *stream = request(client, "GET", count, 0);
    if (stream == NULL) {
        return false;
    }
    while (!stream->is_finished && !stream->is_reset && stream->received < count / 4) {
        if (!turn(client)) {
            return false;
        }
    }
    if (!move(client) || !answered(client, stream)) {
        return false;
    }
    report(name, stream, begun);
    return true;
}

static bool update_key(struct client *client) {
    ngtcp2_conn *quic = client->connection->quic;
    ngtcp2_tstamp deadline = now() + PATIENCE;
    /* An earlier update of the server is complete when it has acknowledged something of ours. */
    ngtcp2_conn_set_keep_alive_timeout(quic, 20 * NGTCP2_MILLISECONDS);
    while (ngtcp2_conn_initiate_key_update(quic, now()) != 0) {
        if (now() >= deadline) {
            return give_up(client, "no key update is possible");
        } else if (!turn(client)) {
            return false;
        }
    }
    ngtcp2_conn_set_keep_alive_timeout(quic, 0);
    say("key-update");
    return true;
}

/* The connection goes on meanwhile. */
static bool wait_for_line(struct client *client) {
    say("paused");
    for (;;) {
        char byte = '\n';
        if (endpoint_turn(&client->endpoint, true) &&
            (read(STDIN_FILENO, &byte, 1) <= 0 || byte == '\n')) {
            return !client->connection->has_ended;
        } else if (client->connection->has_ended) {
            return false;
        }
    }
}

static bool early(struct client *client, uint64_t count) {
    if (!begin_again(client)) {
        return false;
    }
    ngtcp2_tstamp begun = now();
    struct connection *connection = client->connection;
    ngtcp2_conn_set_early_remote_transport_params(connection->quic, &kept.params);
    connection->is_early = true;
    struct stream *stream = request(client, "GET", count, 0);
    if (stream == NULL || !connected(client)) {
        return false;
    }
    if (connection->is_early_refused) {
        return get(client, count);
    } else if (!answered(client, stream)) {
        return false;
    }
    report("get", stream, begun);
    return true;
}

static bool step(struct client *client, const char *text) {
    const char *sign = strchr(text, '=');
    int len = sign == NULL ? (int)strlen(text) : (int)(sign - text);
    uint64_t count = sign == NULL ? 0 : strtoull(sign + 1, NULL, 10);
    char name[32];
    snprintf(name, sizeof name, "%.*s", len, text);
    if (strcmp(name, "get") == 0) {
        return get(client, count);
    } else if (strcmp(name, "put") == 0) {
        return put(client, count);
    } else if (strcmp(name, "streams") == 0) {
        return many(client, count);
    } else if (strcmp(name, "migrate") == 0) {
        return get_moving(client, name, count, migrate);
    } else if (strcmp(name, "rebind") == 0) {
        return get_moving(client, name, count, rebind);
    } else if (strcmp(name, "key-update") == 0) {
        return update_key(client);
    } else if (strcmp(name, "pause") == 0) {
        return wait_for_line(client);
    } else if (strcmp(name, "reconnect") == 0) {
        return begin_again(client) && connected(client);
    } else if (strcmp(name, "early") == 0) {
        return early(client, count);
    }
    say_unsupported(text);
    return true;
}

static struct sockaddr_in parse_address(const char *text) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    const char *colon = text == NULL ? NULL : strrchr(text, ':');
    char host[INET_ADDRSTRLEN];
    if (colon == NULL) {
        die("--server needs an address with a port");
    }
    snprintf(host, sizeof host, "%.*s", (int)(colon - text), text);
    address.sin_port = htons((uint16_t)atoi(colon + 1));
    if (inet_pton(AF_INET, host, &address.sin_addr) != 1) {
        die("%s is no address", text);
    }
    return address;
}

static bool take_steps(struct client *client) {
    begin(client);
    if (!connected(client)) {
        return false;
    }
    for (size_t i = 0; i < client->options->step_count; i++) {
        if (!step(client, client->options->steps[i])) {
            return false;
        }
    }
    return true;
}

void run_client(const struct options *options) {
    struct client client = {.options = options, .server = parse_address(options->server)};
    client.endpoint = (struct endpoint){.options = options, .find = find};
    tls_init(&client.endpoint);
    if (!take_steps(&client)) {
        say_closed(client.connection->was_reset, client.connection->end);
    }
    connection_close(client.connection);
    endpoint_close(&client.endpoint);
    tls_end(&client.endpoint);
    gnutls_free(kept.session.data);
}
