#include "peer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Datagrams read from one socket before connections have their turn to send. */
#define DATAGRAMS_PER_TURN 64

/* A client that waits for something else than a datagram looks after this time. */
#define TURN_MAX (10 * NGTCP2_MILLISECONDS)

#define SOCKET_BUFFER_BYTES (4 << 20)

static void set(int fd, int level, int name, int value) {
    if (setsockopt(fd, level, name, &value, sizeof value) != 0) {
        die("a socket has no option %d: %s", name, strerror(errno));
    }
}

/* A socket on loopback with this port, and the address that it got. */
static int open_socket(uint16_t port, struct sockaddr_in *address) {
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        die("no socket: %s", strerror(errno));
    }
    set(fd, SOL_SOCKET, SO_RCVBUF, SOCKET_BUFFER_BYTES);
    set(fd, SOL_SOCKET, SO_SNDBUF, SOCKET_BUFFER_BYTES);
    set(fd, IPPROTO_IP, IP_RECVTOS, 1);
    /* Datagrams must not be fragmented (RFC 9000, section 14). */
    set(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE);
    socklen_t len = sizeof *address;
    *address = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port)};
    address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(fd, (struct sockaddr *)address, len) != 0 ||
        getsockname(fd, (struct sockaddr *)address, &len) != 0) {
        die("port %u: %s", port, strerror(errno));
    }
    return fd;
}

struct socket *endpoint_open(struct endpoint *endpoint, uint16_t port) {
    if (endpoint->socket_count == SOCKETS_MAX) {
        die("too many sockets");
    }
    struct socket *socket = &endpoint->sockets[endpoint->socket_count++];
    socket->fd = open_socket(port, &socket->local);
    return socket;
}

void endpoint_rebind(struct socket *socket) {
    struct sockaddr_in unseen;
    close(socket->fd);
    socket->fd = open_socket(0, &unseen);
}

void endpoint_close(struct endpoint *endpoint) {
    while (endpoint->connections != NULL) {
        struct connection *connection = endpoint->connections;
        endpoint->connections = connection->next;
        connection_free(connection);
    }
    while (endpoint->socket_count > 0) {
        close(endpoint->sockets[--endpoint->socket_count].fd);
    }
    free(endpoint->ids);
    endpoint->ids = NULL;
    endpoint->id_count = endpoint->id_capacity = 0;
}

static struct socket *socket_at(struct endpoint *endpoint, const struct sockaddr_in *local) {
    for (size_t i = 0; i < endpoint->socket_count; i++) {
        if (endpoint->sockets[i].local.sin_port == local->sin_port) {
            return &endpoint->sockets[i];
        }
    }
    return NULL;
}

void endpoint_send(struct endpoint *endpoint, const struct sockaddr_in *local,
                   const struct sockaddr_in *remote, uint32_t ecn, const uint8_t *bytes,
                   size_t len) {
    struct socket *socket = socket_at(endpoint, local);
    if (socket == NULL) {
        die("no socket for a path");
    }
    struct iovec data = {(void *)bytes, len};
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct msghdr message = {
        .msg_name = (void *)remote,
        .msg_namelen = sizeof *remote,
        .msg_iov = &data,
        .msg_iovlen = 1,
        .msg_control = &control,
        .msg_controllen = sizeof control,
    };
    struct cmsghdr *mark = CMSG_FIRSTHDR(&message);
    int tos = (int)ecn;
    mark->cmsg_level = IPPROTO_IP;
    mark->cmsg_type = IP_TOS;
    mark->cmsg_len = CMSG_LEN(sizeof tos);
    memcpy(CMSG_DATA(mark), &tos, sizeof tos);
    /* A datagram that the socket does not take is lost. */
    (void)!sendmsg(socket->fd, &message, 0);
}

static uint32_t mark_of(struct msghdr *message) {
    for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part != NULL;
         part = CMSG_NXTHDR(message, part)) {
        if (part->cmsg_level == IPPROTO_IP && part->cmsg_type == IP_TOS) {
            return *CMSG_DATA(part) & NGTCP2_ECN_MASK;
        }
    }
    return NGTCP2_ECN_NOT_ECT;
}

/* False if there is no datagram. */
static bool receive_one(struct endpoint *endpoint, const struct socket *socket) {
    static uint8_t buffer[65536];
    struct datagram datagram = {.bytes = buffer, .local = socket->local};
    struct iovec data = {buffer, sizeof buffer};
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct msghdr message = {
        .msg_name = &datagram.remote,
        .msg_namelen = sizeof datagram.remote,
        .msg_iov = &data,
        .msg_iovlen = 1,
        .msg_control = &control,
        .msg_controllen = sizeof control,
    };
    ssize_t len = recvmsg(socket->fd, &message, 0);
    if (len < 0) {
        return false;
    }
    datagram.len = (size_t)len;
    datagram.info.ecn = mark_of(&message);
    struct connection *connection = endpoint->find(endpoint, &datagram);
    if (connection != NULL) {
        connection_read(connection, &datagram);
    }
    return true;
}

static void receive(struct endpoint *endpoint, const struct socket *socket) {
    for (int i = 0; i < DATAGRAMS_PER_TURN; i++) {
        if (!receive_one(endpoint, socket)) {
            return;
        }
    }
}

static void wake_and_forget(struct endpoint *endpoint) {
    struct connection **link = &endpoint->connections;
    while (*link != NULL) {
        struct connection *connection = *link;
        connection_wake(connection);
        /* A client looks why its connection has ended, and forgets it by itself. */
        if (endpoint->is_server && connection->has_ended && now() >= connection->forgotten_at) {
            *link = connection->next;
            connection_free(connection);
        } else {
            link = &connection->next;
        }
    }
}

/* Sends, and returns how long there is nothing more to do. */
static ngtcp2_duration send_all(struct endpoint *endpoint) {
    ngtcp2_tstamp at = now(), wake_at = at + TURN_MAX;
    for (struct connection *connection = endpoint->connections; connection != NULL;
         connection = connection->next) {
        if (connection_write(connection)) {
            return 0;
        }
        ngtcp2_tstamp wakes_at = connection_wakes_at(connection);
        wake_at = wakes_at < wake_at ? wakes_at : wake_at;
    }
    return wake_at > at ? wake_at - at : 0;
}

bool endpoint_turn(struct endpoint *endpoint, bool watches_input) {
    ngtcp2_duration wait = send_all(endpoint);
    struct timespec time = {(time_t)(wait / NGTCP2_SECONDS), (long)(wait % NGTCP2_SECONDS)};
    struct pollfd files[SOCKETS_MAX + 1];
    size_t count = endpoint->socket_count;
    for (size_t i = 0; i < count; i++) {
        files[i] = (struct pollfd){.fd = endpoint->sockets[i].fd, .events = POLLIN};
    }
    files[count] = (struct pollfd){.fd = watches_input ? STDIN_FILENO : -1, .events = POLLIN};
    if (ppoll(files, count + 1, &time, NULL) < 0) {
        die("waiting: %s", strerror(errno));
    }
    for (size_t i = 0; i < count; i++) {
        if (files[i].revents != 0) {
            receive(endpoint, &endpoint->sockets[i]);
        }
    }
    wake_and_forget(endpoint);
    return files[count].revents != 0;
}

void endpoint_add_id(struct endpoint *endpoint, const ngtcp2_cid *id,
                     struct connection *connection) {
    if (endpoint->id_count == endpoint->id_capacity) {
        endpoint->id_capacity = 2 * endpoint->id_capacity + 16;
        endpoint->ids = realloc(endpoint->ids, endpoint->id_capacity * sizeof *endpoint->ids);
        if (endpoint->ids == NULL) {
            die("no memory for connection IDs");
        }
    }
    endpoint->ids[endpoint->id_count++] = (struct id){*id, connection};
}

void endpoint_remove_id(struct endpoint *endpoint, const ngtcp2_cid *id) {
    for (size_t i = 0; i < endpoint->id_count; i++) {
        if (ngtcp2_cid_eq(&endpoint->ids[i].id, id)) {
            endpoint->ids[i] = endpoint->ids[--endpoint->id_count];
            return;
        }
    }
}

struct connection *endpoint_find_id(const struct endpoint *endpoint, const ngtcp2_cid *id) {
    for (size_t i = 0; i < endpoint->id_count; i++) {
        if (ngtcp2_cid_eq(&endpoint->ids[i].id, id)) {
            return endpoint->ids[i].connection;
        }
    }
    return NULL;
}
