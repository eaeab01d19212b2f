/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Fills a number of MiB, prints a line, and then writes to some pages of it again and again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    unsigned long megabytes = argc > 1 ? strtoul(argv[1], NULL, 10) : 1;
    unsigned long bytes = megabytes << 20, seed = 88172645463325252ul, round;
    unsigned long *memory = malloc(bytes);

    if (!memory)
        return 1;
    /* Not compressible, and each page another. */
    for (unsigned long word = 0; word < bytes / 8; word++) {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        memory[word] = seed;
    }
    for (round = 0;; round++) {
        printf("%lu\n", round);
        fflush(stdout);
        for (unsigned long page = 0; page < 64; page++)
            memory[(round * 64 + page) * 512 % (bytes / 8)]++;
        usleep(10000);
    }
}
