/* Shifts the wall clock of a program by FAKE_CLOCK_OFFSET seconds, if it is loaded before libc. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *time) {
    int outcome = (int)syscall(SYS_clock_gettime, clock, time);
    const char *offset = getenv("FAKE_CLOCK_OFFSET");
    if (outcome == 0 && clock == CLOCK_REALTIME && offset != NULL) time->tv_sec += atoll(offset);
    return outcome;
}
