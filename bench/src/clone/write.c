/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Writes random bytes over its pages, becomes a template, writes again to a percentage of them, and prints the nanoseconds
   that this took. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static void fill(uint64_t *memory, size_t pages, size_t of_hundred)
{
    static uint64_t random = 88172645463325252;

    for (size_t i = 0; i < pages * 512; i++) {
        if (i / 512 * of_hundred % 100 >= of_hundred)
            continue;
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        memory[i] = random;
    }
}

static uint64_t now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ull + time.tv_nsec;
}

int main(int count, char **words)
{
    size_t pages = strtoul(words[count - 2], NULL, 10), of_hundred = strtoul(words[count - 1], NULL, 10);
    uint64_t *memory = mmap(NULL, pages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int device = open("/dev/pando", O_RDWR | O_CLOEXEC);
    uint64_t start;

    if (memory == MAP_FAILED)
        return 1;
    now();
    fill(memory, pages, 100);
    if (write(device, "ready", 5) != 5)
        return 1;
    start = now();
    fill(memory, pages, of_hundred);
    printf("%llu\n", (unsigned long long)(now() - start));
    fflush(stdout);
    for (;;)
        pause();
}
