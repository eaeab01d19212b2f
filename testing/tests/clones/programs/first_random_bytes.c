/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Prints the random bytes that the kernel gave this process at its start (AT_RANDOM). */
#include <stdio.h>
#include <sys/auxv.h>

int main(void)
{
    const unsigned char *bytes = (const unsigned char *)getauxval(AT_RANDOM);

    for (int i = 0; i < 16; i++)
        printf("%02x", bytes[i]);
    putchar('\n');
    return 0;
}
