/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Fills as many MiB as its argument says and becomes a template. The first instruction of each clone gives up the CPU,
   which the measuring thread observes; then the clone prints a line. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int count, char **words)
{
    size_t bytes = strtoul(words[count - 1], NULL, 10) << 20;
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int device = open("/dev/pando", O_RDWR | O_CLOEXEC);
    unsigned long result;
    if (memory == MAP_FAILED || device < 0)
        return 1;
    for (size_t page = 0; page < bytes; page += 4096)
        *(size_t *)(memory + page) = page;
    if (write(device, "ready", 5) != 5)
        return 1;
    __asm__ volatile("out %%al, %[port]" : "=a"(result) : "a"((unsigned long)RELINQUISH), [port] "i"(PORT) : "rcx", "r11", "memory");
    printf("%d\n", memory[0] + memory[bytes - 4096]);
    fflush(stdout);
    for (;;)
        pause();
}
