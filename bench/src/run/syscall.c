/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A small program that prints a line. Then it makes as many system calls as each input line says, and prints the
   nanoseconds that this took. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static long nanoseconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000L + now.tv_nsec;
}

int main(void)
{
    char line[64];

    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        long calls = atol(line);
        long start = nanoseconds();

        for (long call = 0; call < calls; call++)
            getppid();
        printf("%ld\n", nanoseconds() - start);
        fflush(stdout);
    }
    return 0;
}
