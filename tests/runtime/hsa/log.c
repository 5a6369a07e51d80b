/* The log: one JSON object a line, written at once, so that it survives a crash. */
#define _GNU_SOURCE
#include "rig.h"
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void rig_log(const char *format, ...) {
  const char *path = getenv("KPACK_TEST_GPU_LOG");
  if (!path)
    return;
  char *line;
  va_list arguments;
  va_start(arguments, format);
  int length = vasprintf(&line, format, arguments);
  va_end(arguments);
  int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (length < 0 || file < 0)
    abort();
  line[length] = '\n'; /* in place of the end of the string */
  if (write(file, line, (size_t)length + 1) != length + 1)
    abort();
  close(file);
  free(line);
}

hsa_status_t rig_refuse(const char *function, int attribute) {
  rig_log("{\"kind\": \"refused\", \"function\": \"%s\", \"attribute\": %d}", function, attribute);
  return HSA_STATUS_ERROR_INVALID_ARGUMENT;
}

void *rig_zeroed(size_t size) {
  void *memory = aligned_alloc(64, (size + 63) / 64 * 64);
  if (!memory)
    abort();
  __builtin_memset(memory, 0, (size + 63) / 64 * 64);
  return memory;
}
