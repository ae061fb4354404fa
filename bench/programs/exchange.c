/* A server that sends back what it gets, and a client that compares: exchange serve PORT, or exchange ADDRESS PORT
   FILE. For musl and a static binary; IPv4. One client at a time. */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void write_all(int fd, const char *data, size_t size) {
    while (size) {
        ssize_t done = write(fd, data, size);
        if (done < 0) fail("write");
        data += done;
        size -= done;
    }
}

static void serve(struct sockaddr_in *address) {
    int listener = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    address->sin_addr.s_addr = htonl(INADDR_ANY);
    if (bind(listener, (struct sockaddr *)address, sizeof *address) || listen(listener, 8)) fail("listen");
    for (;;) {
        static char buffer[1 << 16];
        int fd = accept(listener, NULL, NULL);
        ssize_t got;
        if (fd < 0) fail("accept");
        while ((got = read(fd, buffer, sizeof buffer)) > 0) write_all(fd, buffer, got);
        if (got < 0) fail("read");
        close(fd);
    }
}

static char *contents(const char *name, size_t *size) {
    FILE *file = fopen(name, "rb");
    char *data;
    if (!file || fseek(file, 0, SEEK_END)) fail(name);
    *size = ftell(file);
    rewind(file);
    data = malloc(*size + 1);
    if (!data || fread(data, 1, *size, file) != *size) fail(name);
    fclose(file);
    return data;
}

/* Sends and receives at the same time, with a socket that does not block. */
static int exchange(struct sockaddr_in *address, const char *name) {
    size_t size, sent = 0, arrived = 0;
    char *data = contents(name, &size), *answer = malloc(size + 1);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (!answer || connect(fd, (struct sockaddr *)address, sizeof *address)) fail("connect");
    for (;;) {
        struct pollfd ready = {.fd = fd, .events = POLLIN | (sent < size ? POLLOUT : 0)};
        if (poll(&ready, 1, -1) < 0) fail("poll");
        if (sent < size && ready.revents & POLLOUT) {
            ssize_t done = send(fd, data + sent, size - sent, MSG_DONTWAIT);
            if (done < 0 && errno != EAGAIN) fail("send");
            if (done > 0) sent += done;
            if (sent == size && shutdown(fd, SHUT_WR)) fail("shutdown");
        }
        if (ready.revents & (POLLIN | POLLHUP | POLLERR)) {
            ssize_t got = recv(fd, answer + arrived, size + 1 - arrived, MSG_DONTWAIT);
            if (got < 0 && errno != EAGAIN) fail("recv");
            if (got == 0) break;
            if (got > 0) arrived += got;
            if (arrived > size) break;
        }
    }
    return arrived == size && !memcmp(data, answer, size) ? 0 : 1;
}

int main(int count, char **arguments) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    if (count < 3) return 2;
    address.sin_port = htons(atoi(arguments[2]));
    if (!strcmp(arguments[1], "serve")) serve(&address);
    if (count < 4 || inet_pton(AF_INET, arguments[1], &address.sin_addr) != 1) return 2;
    return exchange(&address, arguments[3]);
}
