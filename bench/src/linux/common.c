/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A program of many parts. It runs the part that its argument names as often as each input line says, and prints the
   nanoseconds that this took. Its other files follow. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096L

/* The arguments after the part's name. */
static char **words;

static void check(int is_well, const char *what)
{
    if (!is_well) {
        perror(what);
        exit(1);
    }
}

