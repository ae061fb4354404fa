/* ngtcp2 0.12.1, that of Debian 12, as a peer: see ../README.md for protocol and arguments. */
#ifndef PEER_H
#define PEER_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <ngtcp2/ngtcp2.h>
#include <ngtcp2/ngtcp2_crypto.h>

#if NGTCP2_VERSION_NUM != 0x000c01
#error "this program is written for ngtcp2 0.12.1; later versions have another interface"
#endif

/* Of our connection IDs, in bytes. */
#define ID_LEN 12

/* The longest datagram that we send: that of a link of 1500 bytes over IPv4. */
#define DATAGRAM_MAX 1472

#define HASH_LEN 32
#define HEX_LEN (2 * HASH_LEN)

#define SECONDS(n) ((ngtcp2_tstamp)(n) * NGTCP2_SECONDS)

/* A client gives up what it waits for after this time. */
#define PATIENCE SECONDS(5)

struct options {
    const char *cert, *key, *ca, *server;
    uint16_t port;
    bool retry;
    uint8_t reset_key[64];
    size_t reset_key_len;
    char **steps;
    size_t step_count;
};

/* main.c: the end of the program, the clock, and events. */

_Noreturn void die(const char *format, ...) __attribute__((format(printf, 1, 2)));
ngtcp2_tstamp now(void);
void say(const char *event);
void say_listening(unsigned port);
void say_connected(bool is_resumed, bool is_early);
void say_result(const char *event, uint64_t bytes, const char *hex, ngtcp2_tstamp begun);
void say_unsupported(const char *text);
void say_closed(bool is_reset, const char *text);

/* stream.c: one stream of the test protocol, in either direction. */

struct stream {
    struct stream *next;
    int64_t id;
    /* What goes out: the bytes of `first`, and then the pattern. */
    char first[HEX_LEN + 1];
    uint64_t first_len, pattern_len, sent;
    bool is_ready, is_all_sent, is_blocked;
    /* What comes: a server's stream begins with a line; the rest is hashed. */
    bool begins_with_line;
    char line[64];
    size_t line_len;
    gnutls_hash_hd_t hash;
    uint64_t received;
    uint8_t digest[HASH_LEN];
    char kept[HEX_LEN + 1];
    bool is_finished, is_reset;
};

void make_pattern(void);
void to_hex(const uint8_t *bytes, size_t len, char *hex);
struct stream *stream_new(int64_t id);
void stream_free(struct stream *stream);
void stream_ask(struct stream *stream, const char *verb, uint64_t count, uint64_t upload);
ngtcp2_vec stream_next_bytes(const struct stream *stream, bool *is_last);
void stream_has_sent(struct stream *stream, uint64_t len);
void stream_receive(struct stream *stream, const uint8_t *data, size_t len);
void stream_finish(struct stream *stream);

/* endpoint.c: sockets, the datagrams on them, and the connections that these belong to. */

#define SOCKETS_MAX 8

struct socket {
    int fd;
    /* The address for ngtcp2. It stays the same when a client pretends that a NAT has moved it. */
    struct sockaddr_in local;
};

struct datagram {
    const uint8_t *bytes;
    size_t len;
    struct sockaddr_in local, remote;
    ngtcp2_pkt_info info;
};

struct connection;

/* Which connection has an ID of ours. */
struct id {
    ngtcp2_cid id;
    struct connection *connection;
};

struct endpoint {
    const struct options *options;
    bool is_server;
    struct socket sockets[SOCKETS_MAX];
    size_t socket_count;
    struct connection *connections;
    struct id *ids;
    size_t id_count, id_capacity;
    /* The connection of a datagram; NULL if there is none. */
    struct connection *(*find)(struct endpoint *endpoint, const struct datagram *datagram);
    gnutls_certificate_credentials_t credentials;
    gnutls_datum_t ticket_key;
    gnutls_anti_replay_t anti_replay;
    /* For tokens of addresses. */
    uint8_t token_key[32];
};

struct socket *endpoint_open(struct endpoint *endpoint, uint16_t port);
void endpoint_rebind(struct socket *socket);
void endpoint_close(struct endpoint *endpoint);
void endpoint_send(struct endpoint *endpoint, const struct sockaddr_in *local,
                   const struct sockaddr_in *remote, uint32_t ecn, const uint8_t *bytes,
                   size_t len);
/* Sends, waits for something to happen, and receives. True if standard input is to be read. */
bool endpoint_turn(struct endpoint *endpoint, bool watches_input);
void endpoint_add_id(struct endpoint *endpoint, const ngtcp2_cid *id,
                     struct connection *connection);
void endpoint_remove_id(struct endpoint *endpoint, const ngtcp2_cid *id);
struct connection *endpoint_find_id(const struct endpoint *endpoint, const ngtcp2_cid *id);

/* connection.c: a connection and its streams. */

struct connection {
    struct connection *next;
    struct endpoint *endpoint;
    ngtcp2_conn *quic;
    gnutls_session_t tls;
    ngtcp2_crypto_conn_ref ref;
    struct stream *streams;
    /* Bytes of streams that came and went since a server's last key update. */
    uint64_t bytes_under_key;
    bool is_early, is_early_refused, has_moved;
    /* It ends with a text. A server forgets it some time later. */
    bool has_ended, was_reset;
    char end[256];
    ngtcp2_tstamp forgotten_at;
};

struct connection *connection_new(struct endpoint *endpoint);
void connection_free(struct connection *connection);
void connection_fill_callbacks(ngtcp2_callbacks *callbacks, bool is_server);
void connection_fill_settings(ngtcp2_settings *settings, ngtcp2_transport_params *params,
                              bool is_server);
struct stream *connection_add_stream(struct connection *connection, int64_t id);
void connection_read(struct connection *connection, const struct datagram *datagram);
/* True if it could send more at once. */
bool connection_write(struct connection *connection);
ngtcp2_tstamp connection_wakes_at(const struct connection *connection);
void connection_wake(struct connection *connection);
void connection_close(struct connection *connection);
ngtcp2_path path_between(const struct sockaddr_in *local, const struct sockaddr_in *remote);
void random_id(ngtcp2_cid *id);

/* tls.c: GnuTLS. */

void tls_init(struct endpoint *endpoint);
void tls_end(struct endpoint *endpoint);
void tls_begin(struct connection *connection);
void tls_use_session(struct connection *connection, const gnutls_datum_t *session);
void tls_send_ticket(struct connection *connection);
bool tls_took_early_data(const struct connection *connection);

/* server.c and client.c: the two roles. */

void run_server(const struct options *options);
void run_client(const struct options *options);
/* ngtcp2 wants a Retry when the second part of a ClientHello arrives first. */
void server_retry(struct endpoint *endpoint, const struct datagram *datagram);
/* What a client keeps for its next connection. */
void client_keep_session(gnutls_session_t session);
void client_keep_token(const ngtcp2_vec *token);

#endif
