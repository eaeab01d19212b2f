/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A thread counts. The first thread obeys its input. A child process, which the counter starts on request, counts as well. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int total, wants_child, has_ended;
static volatile int *may_count;

static int tick(int value)
{
    total += value;
    return total;
}

static void count_in_child(void)
{
    while (!*may_count)
        usleep(1000);
    for (int i = 0; i < 10; i++)
        tick(100);
    _exit(5);
}

static void *count(void *unused)
{
    (void)unused;
    for (;;) {
        usleep(1000);
        tick(1);
        if (wants_child) {
            wants_child = 0;
            if (fork() == 0)
                count_in_child();
        }
        if (has_ended)
            exit(3);
    }
}

int main(void)
{
    char line[80];
    pthread_t counter;
    may_count = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_create(&counter, NULL, count, NULL);
    puts("begun");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) != NULL) {
        if (strcmp(line, "count\n") == 0) {
            int before = total;
            while (total < before + 10)
                usleep(1000);
            puts("counted");
        } else if (strcmp(line, "child\n") == 0) {
            int status;
            *may_count = 1;
            wait(&status);
            printf("child %d\n", status);
        } else if (strcmp(line, "compute\n") == 0) {
            while (!has_ended)
                ;
        } else {
            exit(7);
        }
        fflush(stdout);
    }
    return 0;
}
