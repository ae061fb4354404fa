#include "peer.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A Retry is answered at once; a token is for later connections. */
#define RETRY_VALID SECONDS(10)
#define TOKEN_VALID SECONDS(3600)

/* RFC 9000, section 14.1: the shortest datagram of a client that is answered before it is known. */
#define FIRST_DATAGRAM_MIN 1200

/* RFC 9000, section 10.3: a reset is shorter than what it answers, and has at most this length. */
#define RESET_MAX 42
#define RESET_MIN (NGTCP2_MIN_STATELESS_RESET_RANDLEN + NGTCP2_STATELESS_RESET_TOKENLEN)

static void reply(struct endpoint *endpoint, const struct datagram *to, const uint8_t *bytes,
                  ngtcp2_ssize len) {
    if (len > 0) {
        endpoint_send(endpoint, &to->local, &to->remote, NGTCP2_ECN_NOT_ECT, bytes, (size_t)len);
    }
}

static void offer_versions(struct endpoint *endpoint, const struct datagram *datagram,
                           const ngtcp2_version_cid *header) {
    const uint32_t versions[] = {NGTCP2_PROTO_VER_V1};
    uint8_t bytes[DATAGRAM_MAX], random;
    if (datagram->len < FIRST_DATAGRAM_MIN ||
        gnutls_rnd(GNUTLS_RND_NONCE, &random, sizeof random) != 0) {
        return;
    }
    ngtcp2_ssize len = ngtcp2_pkt_write_version_negotiation(
        bytes, sizeof bytes, random | 0x40, header->scid, header->scidlen, header->dcid,
        header->dcidlen, versions, 1);
    reply(endpoint, datagram, bytes, len);
}

/* For packets of connections that a server before us had. */
static void reset(struct endpoint *endpoint, const struct datagram *datagram,
                  const ngtcp2_cid *id) {
    const struct options *options = endpoint->options;
    uint8_t token[NGTCP2_STATELESS_RESET_TOKENLEN], random[RESET_MAX], bytes[RESET_MAX];
    size_t len = datagram->len - 1 < RESET_MAX ? datagram->len - 1 : RESET_MAX;
    bool is_possible = len >= RESET_MIN && options->reset_key_len > 0 &&
                       ngtcp2_crypto_generate_stateless_reset_token(
                           token, options->reset_key, options->reset_key_len, id) == 0 &&
                       gnutls_rnd(GNUTLS_RND_NONCE, random, sizeof random) == 0;
    if (is_possible) {
        reply(endpoint, datagram, bytes,
              ngtcp2_pkt_write_stateless_reset(bytes, len, token, random, len - sizeof token));
    }
}

static void retry(struct endpoint *endpoint, const struct datagram *datagram,
                  const ngtcp2_pkt_hd *header) {
    uint8_t token[NGTCP2_CRYPTO_MAX_RETRY_TOKENLEN], bytes[DATAGRAM_MAX];
    ngtcp2_path path = path_between(&datagram->local, &datagram->remote);
    ngtcp2_cid id;
    random_id(&id);
    ngtcp2_ssize token_len = ngtcp2_crypto_generate_retry_token(
        token, endpoint->token_key, sizeof endpoint->token_key, header->version, path.remote.addr,
        path.remote.addrlen, &id, &header->dcid, now());
    if (token_len < 0) {
        return;
    }
    ngtcp2_ssize len =
        ngtcp2_crypto_write_retry(bytes, sizeof bytes, header->version, &header->scid, &id,
                                  &header->dcid, token, (size_t)token_len);
    reply(endpoint, datagram, bytes, len);
}

void server_retry(struct endpoint *endpoint, const struct datagram *datagram) {
    ngtcp2_pkt_hd header;
    if (ngtcp2_accept(&header, datagram->bytes, datagram->len) == 0) {
        retry(endpoint, datagram, &header);
    }
}

static void refuse_token(struct endpoint *endpoint, const struct datagram *datagram,
                         const ngtcp2_pkt_hd *header) {
    uint8_t bytes[DATAGRAM_MAX];
    ngtcp2_ssize len =
        ngtcp2_crypto_write_connection_close(bytes, sizeof bytes, header->version, &header->scid,
                                             &header->dcid, NGTCP2_INVALID_TOKEN, NULL, 0);
    reply(endpoint, datagram, bytes, len);
}

static bool has_token(const ngtcp2_pkt_hd *header, uint8_t kind) {
    return header->token.len > 0 && header->token.base[0] == kind;
}

/* The client's first connection ID, if its token is that of a Retry. */
static bool is_retry_answer(const struct endpoint *endpoint, const struct datagram *datagram,
                            const ngtcp2_pkt_hd *header, ngtcp2_cid *first_id) {
    ngtcp2_path path = path_between(&datagram->local, &datagram->remote);
    return ngtcp2_crypto_verify_retry_token(
               first_id, header->token.base, header->token.len, endpoint->token_key,
               sizeof endpoint->token_key, header->version, path.remote.addr, path.remote.addrlen,
               &header->dcid, RETRY_VALID, now()) == 0;
}

static bool is_known_address(const struct endpoint *endpoint, const struct datagram *datagram,
                             const ngtcp2_pkt_hd *header) {
    ngtcp2_path path = path_between(&datagram->local, &datagram->remote);
    return has_token(header, NGTCP2_CRYPTO_TOKEN_MAGIC_REGULAR) &&
           ngtcp2_crypto_verify_regular_token(
               header->token.base, header->token.len, endpoint->token_key,
               sizeof endpoint->token_key, path.remote.addr, path.remote.addrlen, TOKEN_VALID,
               now()) == 0;
}

/* Begins a connection; `first_id` is that of the client before a Retry, if there was one. */
static struct connection *begin(struct endpoint *endpoint, const struct datagram *datagram,
                                const ngtcp2_pkt_hd *header, const ngtcp2_cid *first_id,
                                bool is_validated) {
    struct connection *connection = connection_new(endpoint);
    ngtcp2_callbacks callbacks;
    ngtcp2_settings settings;
    ngtcp2_transport_params params;
    ngtcp2_cid id;
    connection_fill_callbacks(&callbacks, true);
    connection_fill_settings(&settings, &params, true);
    random_id(&id);
    params.original_dcid = first_id == NULL ? header->dcid : *first_id;
    params.retry_scid = header->dcid;
    params.retry_scid_present = first_id != NULL;
    params.stateless_reset_token_present =
        endpoint->options->reset_key_len > 0 &&
        ngtcp2_crypto_generate_stateless_reset_token(
            params.stateless_reset_token, endpoint->options->reset_key,
            endpoint->options->reset_key_len, &id) == 0;
    if (is_validated) {
        settings.token = header->token;
    }
    ngtcp2_path path = path_between(&datagram->local, &datagram->remote);
    if (ngtcp2_conn_server_new(&connection->quic, &header->scid, &id, &path, header->version,
                               &callbacks, &settings, &params, NULL, connection) != 0) {
        die("no memory for a connection");
    }
    tls_begin(connection);
    /* The client uses the other ID until it has our first packet. */
    endpoint_add_id(endpoint, &id, connection);
    endpoint_add_id(endpoint, &header->dcid, connection);
    return connection;
}

/* Takes a first packet, if its token is right or not needed. */
static struct connection *accept_first(struct endpoint *endpoint, const struct datagram *datagram) {
    ngtcp2_pkt_hd header;
    if (ngtcp2_accept(&header, datagram->bytes, datagram->len) != 0) {
        return NULL;
    }
    if (has_token(&header, NGTCP2_CRYPTO_TOKEN_MAGIC_RETRY)) {
        ngtcp2_cid first_id;
        if (is_retry_answer(endpoint, datagram, &header, &first_id)) {
            return begin(endpoint, datagram, &header, &first_id, true);
        }
        refuse_token(endpoint, datagram, &header);
        return NULL;
    }
    bool is_known = is_known_address(endpoint, datagram, &header);
    if (endpoint->options->retry && !is_known) {
        retry(endpoint, datagram, &header);
        return NULL;
    }
    return begin(endpoint, datagram, &header, NULL, is_known);
}

static struct connection *find(struct endpoint *endpoint, const struct datagram *datagram) {
    ngtcp2_version_cid header;
    int result =
        ngtcp2_pkt_decode_version_cid(&header, datagram->bytes, datagram->len, ID_LEN);
    if (result != 0 && result != NGTCP2_ERR_VERSION_NEGOTIATION) {
        return NULL;
    }
    bool is_short = result == 0 && header.version == 0;
    if (!is_short && header.version != NGTCP2_PROTO_VER_V1) {
        offer_versions(endpoint, datagram, &header);
        return NULL;
    }
    if (header.dcidlen > NGTCP2_MAX_CIDLEN) {
        return NULL;
    }
    ngtcp2_cid id;
    ngtcp2_cid_init(&id, header.dcid, header.dcidlen);
    struct connection *connection = endpoint_find_id(endpoint, &id);
    if (connection == NULL && is_short) {
        reset(endpoint, datagram, &id);
    } else if (connection == NULL) {
        connection = accept_first(endpoint, datagram);
    }
    return connection;
}

/* False at the end of standard input. */
static bool has_input(void) {
    char ignored[256];
    return read(STDIN_FILENO, ignored, sizeof ignored) > 0;
}

void run_server(const struct options *options) {
    struct endpoint endpoint = {.options = options, .is_server = true, .find = find};
    tls_init(&endpoint);
    struct socket *socket = endpoint_open(&endpoint, options->port);
    say_listening(ntohs(socket->local.sin_port));
    while (!endpoint_turn(&endpoint, true) || has_input()) {
    }
    for (struct connection *connection = endpoint.connections; connection != NULL;
         connection = connection->next) {
        connection_close(connection);
    }
    endpoint_close(&endpoint);
    tls_end(&endpoint);
}
