/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A small program that prints a line, and then waits for a line to answer. */
#include <stdio.h>

int main(void)
{
    char line[256];
    unsigned answered = 0;

    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        printf("%u\n", ++answered);
        fflush(stdout);
    }
    return 0;
}
