#include "peer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void die(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

ngtcp2_tstamp now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return SECONDS(time.tv_sec) + (ngtcp2_tstamp)time.tv_nsec;
}

/* Each event is a line of JSON, which the runner must see at once. */

static void print_text(const char *text) {
    putchar('"');
    for (; *text != '\0'; text++) {
        unsigned char byte = (unsigned char)*text;
        if (byte == '"' || byte == '\\') {
            printf("\\%c", byte);
        } else if (byte < 0x20 || byte > 0x7e) {
            printf("\\u%04x", byte);
        } else {
            putchar(byte);
        }
    }
    putchar('"');
}

static void end_event(void) {
    puts("}");
    fflush(stdout);
}

void say(const char *event) {
    printf("{\"event\":\"%s\"", event);
    end_event();
}

void say_listening(unsigned port) {
    printf("{\"event\":\"listening\",\"port\":%u", port);
    end_event();
}

void say_connected(bool is_resumed, bool is_early) {
    printf("{\"event\":\"connected\",\"resumed\":%s,\"early\":%s,\"version\":1",
           is_resumed ? "true" : "false", is_early ? "true" : "false");
    end_event();
}

void say_result(const char *event, uint64_t bytes, const char *hex, ngtcp2_tstamp begun) {
    printf("{\"event\":\"%s\",\"bytes\":%llu,\"sha256\":", event, (unsigned long long)bytes);
    print_text(hex);
    printf(",\"seconds\":%.6f", (double)(now() - begun) / 1e9);
    end_event();
}

void say_unsupported(const char *text) {
    printf("{\"event\":\"unsupported\",\"text\":");
    print_text(text);
    end_event();
}

void say_closed(bool is_reset, const char *text) {
    printf("{\"event\":\"closed\",\"kind\":\"%s\",\"text\":", is_reset ? "reset" : "other");
    print_text(text);
    end_event();
}

static void parse_key(struct options *options, const char *hex) {
    size_t len = strlen(hex) / 2;
    if (len == 0 || len > sizeof options->reset_key) {
        die("a key has 1 to %zu bytes", sizeof options->reset_key);
    }
    for (size_t i = 0; i < len; i++) {
        unsigned byte;
        if (sscanf(hex + 2 * i, "%2x", &byte) != 1) {
            die("%s is no key", hex);
        }
        options->reset_key[i] = (uint8_t)byte;
    }
    options->reset_key_len = len;
}

/* What ngtcp2 0.12.1 calls version 2 is a draft, with another number and other keys. */
static void parse_versions(const char *list) {
    if (strcmp(list, "1") != 0) {
        die("this program has version 1 alone, and not %s", list);
    }
}

/* Takes an option with its value. */
static void parse_option(struct options *options, const char *name, const char *value) {
    if (value == NULL) {
        die("%s has no value", name);
    } else if (strcmp(name, "--cert") == 0) {
        options->cert = value;
    } else if (strcmp(name, "--key") == 0) {
        options->key = value;
    } else if (strcmp(name, "--ca") == 0) {
        options->ca = value;
    } else if (strcmp(name, "--server") == 0) {
        options->server = value;
    } else if (strcmp(name, "--port") == 0) {
        options->port = (uint16_t)atoi(value);
    } else if (strcmp(name, "--reset-key") == 0) {
        parse_key(options, value);
    } else if (strcmp(name, "--versions") == 0) {
        parse_versions(value);
    } else {
        die("there is no option %s", name);
    }
}

static struct options parse(char **arguments) {
    struct options options = {0};
    for (; *arguments != NULL && strncmp(*arguments, "--", 2) == 0; arguments++) {
        if (strcmp(*arguments, "--retry") == 0) {
            options.retry = true;
        } else {
            parse_option(&options, arguments[0], arguments[1]);
            arguments++;
        }
    }
    options.steps = arguments;
    while (arguments[options.step_count] != NULL) {
        options.step_count++;
    }
    return options;
}

int main(int count, char **arguments) {
    if (count < 2) {
        die("usage: %s server|client ...", arguments[0]);
    }
    make_pattern();
    struct options options = parse(arguments + 2);
    if (strcmp(arguments[1], "server") == 0) {
        run_server(&options);
    } else if (strcmp(arguments[1], "client") == 0) {
        run_client(&options);
    } else {
        die("there is no role %s", arguments[1]);
    }
    return 0;
}
