/* For slow_start.py: each call that asks a file system for a path below SLOW_PREFIX takes SLOW_US microseconds longer.
   SLOW_COUNT names a file: a process appends the number of these calls there when it ends. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

static const char *prefix;
static size_t length;
static long delay_us, calls;

__attribute__((constructor)) static void begin(void) {
  const char *given = getenv("SLOW_US");
  prefix = getenv("SLOW_PREFIX");
  length = prefix ? strlen(prefix) : 0;
  delay_us = given ? atol(given) : 0;
}

__attribute__((destructor)) static void end(void) {
  const char *path = getenv("SLOW_COUNT");
  FILE *file = path ? fopen(path, "a") : NULL;
  if (file) {
    fprintf(file, "%ld\n", calls);
    fclose(file);
  }
}

static void wait_for(const char *path) {
  if (!length || !path || strncmp(path, prefix, length)) return;
  struct timespec pause = {delay_us / 1000000, delay_us % 1000000 * 1000};
  __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
  nanosleep(&pause, NULL);
}

#define ORIGINAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

#define OPENER(name)                                      \
  int name(const char *path, int flags, ...) {            \
    va_list rest;                                         \
    va_start(rest, flags);                                \
    mode_t mode = va_arg(rest, mode_t);                   \
    va_end(rest);                                         \
    wait_for(path);                                       \
    return ORIGINAL(name)(path, flags, mode);             \
  }
OPENER(open)
OPENER(open64)

#define LOOKER(name, kind)                                \
  int name(const char *path, struct kind *found) {        \
    wait_for(path);                                       \
    return ORIGINAL(name)(path, found);                   \
  }
LOOKER(stat, stat)
LOOKER(lstat, stat)
LOOKER(stat64, stat64)
LOOKER(lstat64, stat64)
