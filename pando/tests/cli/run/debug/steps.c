/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A program of one thread: calls, a variable that changes, signals, and an end with a status or by a signal. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

static int seen;
static double half = 0.5;

static int twice(int value)
{
    half *= value;
    return value * 2;
}

static void handler(int number)
{
    seen += number;
}

int main(int argc, char **argv)
{
    int sum = 0;
    for (int i = 1; i < 4; i++)
        sum += twice(i);
    printf("sum %d\n", sum);
    if (argc < 2)
        return sum;
    signal(SIGUSR1, handler);
    raise(SIGUSR1);
    printf("seen %d\n", seen);
    fflush(stdout);
    if (strcmp(argv[1], "fault") == 0)
        *(volatile int *)16 = 1;
    if (strcmp(argv[1], "loop") == 0)
        while (*(volatile int *)&seen != 77)
            half = half * 1.0000001;
    return 0;
}
