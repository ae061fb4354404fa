#include "peer.h"

#include <ngtcp2/ngtcp2_crypto_gnutls.h>

/* TLS 1.3 without the changes that middleboxes of TCP need (RFC 9001, section 8.4). */
static const char priorities[] =
    "NORMAL:-VERS-ALL:+VERS-TLS1.3:-CIPHER-ALL:+AES-128-GCM:+CHACHA20-POLY1305"
    ":-GROUP-ALL:+GROUP-X25519:+GROUP-SECP256R1:%DISABLE_TLS13_COMPAT_MODE";

static const gnutls_datum_t alpn = {(unsigned char *)"litz-interop", 12};

/* RFC 9001, section 4.6.1: the only value of QUIC. */
#define EARLY_DATA_MAX 0xffffffff

static void check(int result, const char *what) {
    if (result < 0) {
        die("%s: %s", what, gnutls_strerror(result));
    }
}

/* A test may replay. Without this, GnuTLS takes no early data. */
static int allow_replay(void *table, time_t expires, const gnutls_datum_t *key,
                        const gnutls_datum_t *data) {
    (void)table, (void)expires, (void)key, (void)data;
    return 0;
}

static void init_server(struct endpoint *endpoint) {
    const struct options *options = endpoint->options;
    if (options->cert == NULL || options->key == NULL) {
        die("--cert and --key are needed");
    }
    check(gnutls_certificate_set_x509_key_file(endpoint->credentials, options->cert, options->key,
                                               GNUTLS_X509_FMT_PEM),
          "the certificate");
    check(gnutls_session_ticket_key_generate(&endpoint->ticket_key), "the key of tickets");
    check(gnutls_anti_replay_init(&endpoint->anti_replay), "early data");
    gnutls_anti_replay_set_add_function(endpoint->anti_replay, allow_replay);
    check(gnutls_rnd(GNUTLS_RND_KEY, endpoint->token_key, sizeof endpoint->token_key),
          "the key of tokens");
}

void tls_init(struct endpoint *endpoint) {
    check(gnutls_certificate_allocate_credentials(&endpoint->credentials), "credentials");
    if (endpoint->is_server) {
        init_server(endpoint);
        return;
    }
    if (endpoint->options->ca == NULL) {
        die("--ca is needed");
    }
    check(gnutls_certificate_set_x509_trust_file(endpoint->credentials, endpoint->options->ca,
                                                 GNUTLS_X509_FMT_PEM),
          "the trusted certificate");
}

void tls_end(struct endpoint *endpoint) {
    gnutls_certificate_free_credentials(endpoint->credentials);
    if (endpoint->is_server) {
        gnutls_anti_replay_deinit(endpoint->anti_replay);
        gnutls_free(endpoint->ticket_key.data);
    }
}

static ngtcp2_conn *quic_of(ngtcp2_crypto_conn_ref *ref) {
    return ((struct connection *)ref->user_data)->quic;
}

static int on_ticket(gnutls_session_t session, unsigned type, unsigned when, unsigned incoming,
                     const gnutls_datum_t *message) {
    (void)type, (void)when, (void)incoming, (void)message;
    client_keep_session(session);
    return 0;
}

static void begin_server(struct connection *connection) {
    struct endpoint *endpoint = connection->endpoint;
    gnutls_session_t tls = connection->tls;
    check(gnutls_session_ticket_enable_server(tls, &endpoint->ticket_key), "tickets");
    gnutls_anti_replay_enable(tls, endpoint->anti_replay);
    check(gnutls_record_set_max_early_data_size(tls, EARLY_DATA_MAX), "early data");
    if (ngtcp2_crypto_gnutls_configure_server_session(tls) != 0) {
        die("ngtcp2 does not take the session");
    }
}

static void begin_client(struct connection *connection) {
    gnutls_session_t tls = connection->tls;
    gnutls_handshake_set_hook_function(tls, GNUTLS_HANDSHAKE_NEW_SESSION_TICKET, GNUTLS_HOOK_POST,
                                       on_ticket);
    check(gnutls_server_name_set(tls, GNUTLS_NAME_DNS, "localhost", 9), "the server's name");
    gnutls_session_set_verify_cert(tls, "localhost", 0);
    if (ngtcp2_crypto_gnutls_configure_client_session(tls) != 0) {
        die("ngtcp2 does not take the session");
    }
}

void tls_begin(struct connection *connection) {
    bool is_server = connection->endpoint->is_server;
    /* A server sends its tickets when the handshake is complete. QUIC has no EndOfEarlyData. */
    unsigned flags = GNUTLS_ENABLE_EARLY_DATA | GNUTLS_NO_END_OF_EARLY_DATA;
    flags |= is_server ? GNUTLS_SERVER | GNUTLS_NO_AUTO_SEND_TICKET : GNUTLS_CLIENT;
    check(gnutls_init(&connection->tls, flags), "a session");
    check(gnutls_priority_set_direct(connection->tls, priorities, NULL), "the priorities");
    check(gnutls_credentials_set(connection->tls, GNUTLS_CRD_CERTIFICATE,
                                 connection->endpoint->credentials),
          "the credentials");
    check(gnutls_alpn_set_protocols(connection->tls, &alpn, 1, GNUTLS_ALPN_MANDATORY), "ALPN");
    connection->ref.get_conn = quic_of;
    connection->ref.user_data = connection;
    gnutls_session_set_ptr(connection->tls, &connection->ref);
    if (is_server) {
        begin_server(connection);
    } else {
        begin_client(connection);
    }
    ngtcp2_conn_set_tls_native_handle(connection->quic, connection->tls);
}

void tls_use_session(struct connection *connection, const gnutls_datum_t *session) {
    check(gnutls_session_set_data(connection->tls, session->data, session->size), "the session");
}

void tls_send_ticket(struct connection *connection) {
    check(gnutls_session_ticket_send(connection->tls, 1, 0), "a ticket");
}

bool tls_took_early_data(const struct connection *connection) {
    return (gnutls_session_get_flags(connection->tls) & GNUTLS_SFLAGS_EARLY_DATA) != 0;
}
