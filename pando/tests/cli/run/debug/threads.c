/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Three threads that add to a number, and a child process that does as well. */
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int total;

static void add(int value)
{
    pthread_mutex_lock(&lock);
    total += value;
    pthread_mutex_unlock(&lock);
}

static void *work(void *argument)
{
    add(*(int *)argument);
    return NULL;
}

int main(void)
{
    pthread_t threads[3];
    int numbers[3] = { 1, 2, 3 };
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, work, &numbers[i]);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    pid_t child = fork();
    if (child == 0) {
        add(100);
        _exit(total);
    }
    int status;
    waitpid(child, &status, 0);
    printf("total %d, child %d\n", total, WEXITSTATUS(status));
    return 0;
}
