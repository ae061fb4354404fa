/* Measures two ranks of MPI: ranks latency | bandwidth SECONDS | allreduce. Rank 0 prints lines of words.
 *
 * latency    median of half of the round trips, by message size
 * bandwidth  rank 0 sends windows of 64 messages of 64 KiB, and rank 1 answers each window
 * allreduce  sums of known data, each element compared
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = 64, MESSAGE = 64 << 10, TAG = 7 };

static int rank;

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void exchange(char *bytes, int len) {
    if (rank == 0) {
        MPI_Send(bytes, len, MPI_CHAR, 1, TAG, MPI_COMM_WORLD);
        MPI_Recv(bytes, len, MPI_CHAR, 1, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(bytes, len, MPI_CHAR, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(bytes, len, MPI_CHAR, 0, TAG, MPI_COMM_WORLD);
    }
}

static void latency(void) {
    for (int len = 8; len <= 4 << 20; len *= 8) {
        int count = len > 1 << 16 ? 40 : 1000;
        char *bytes = calloc(len, 1);
        double *spent = malloc(count * sizeof *spent);
        for (int i = 0; i < count / 10; i++)
            exchange(bytes, len);
        for (int i = 0; i < count; i++) {
            double begun = MPI_Wtime();
            exchange(bytes, len);
            spent[i] = (MPI_Wtime() - begun) / 2;
        }
        qsort(spent, count, sizeof *spent, compare);
        if (rank == 0)
            printf("latency %d %.3f\n", len, spent[count / 2] * 1e6);
        free(bytes);
        free(spent);
    }
}

static void bandwidth(double seconds) {
    char *bytes = calloc(MESSAGE, WINDOW);
    MPI_Request requests[WINDOW];
    double begun = 0, now = 0, sent = 0;
    int goes_on = 1;
    /* The first fifth of the time does not count. */
    for (double start = MPI_Wtime(); goes_on;) {
        for (int i = 0; i < WINDOW; i++) {
            char *part = bytes + (size_t)i * MESSAGE;
            if (rank == 0)
                MPI_Isend(part, MESSAGE, MPI_CHAR, 1, TAG, MPI_COMM_WORLD, &requests[i]);
            else
                MPI_Irecv(part, MESSAGE, MPI_CHAR, 0, TAG, MPI_COMM_WORLD, &requests[i]);
        }
        MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
        if (rank == 0) {
            now = MPI_Wtime();
            goes_on = now < start + seconds;
            if (begun > 0)
                sent += (double)WINDOW * MESSAGE;
            else if (now >= start + seconds / 5)
                begun = now;
            MPI_Send(&goes_on, 1, MPI_INT, 1, TAG, MPI_COMM_WORLD);
        } else {
            MPI_Recv(&goes_on, 1, MPI_INT, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
    }
    if (rank == 0)
        printf("bandwidth %.3f\n", sent * 8 / (now - begun) / 1e6);
    free(bytes);
}

/* Each rank gives (i * 7 + rank * 3) % 1001 as element i. */
static long known(long i, int of) { return (i * 7 + of * 3L) % 1001; }

static void allreduce(int ranks) {
    long checked = 0, wrong = 0;
    for (long len = 1; len <= 1 << 20; len *= 4) {
        long *ours = malloc(len * sizeof *ours), *sums = malloc(len * sizeof *sums);
        for (int round = 0; round < 4; round++) {
            for (long i = 0; i < len; i++)
                ours[i] = known(i + round, rank);
            memset(sums, 0xff, len * sizeof *sums);
            MPI_Allreduce(ours, sums, len, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
            for (long i = 0; i < len; i++) {
                long expected = 0;
                for (int of = 0; of < ranks; of++)
                    expected += known(i + round, of);
                wrong += sums[i] != expected;
            }
            checked += len;
        }
        free(ours);
        free(sums);
    }
    long all[2] = {checked, wrong}, of_all[2];
    MPI_Reduce(all, of_all, 2, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("allreduce %ld %ld\n", of_all[0], of_all[1]);
}

int main(int argc, char **argv) {
    int ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "latency"))
        latency();
    else if (!strcmp(what, "bandwidth") && argc > 2)
        bandwidth(atof(argv[2]));
    else if (!strcmp(what, "allreduce"))
        allreduce(ranks);
    else
        MPI_Abort(MPI_COMM_WORLD, 2);
    MPI_Finalize();
    return 0;
}
