/* Stands in front of the HIP library (LD_PRELOAD) and writes down what is registered with it and what it answers.

   Each call appends one line of tab-separated fields to the file named by KPACK_TEST_HIP_LOG, at once, so that the
   record survives a crash:

     binary    <wrapper's address> <magic> <version> <pointer> <last word> <handle> <file of the wrapper>
     function  <handle> <device name> <address on the host>
     variable  <handle> <name> <address on the host>
*/
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct wrapper {
  uint32_t magic, version;
  uint64_t pointer, last;
};

static void record(const char *line, int length) {
  const char *path = getenv("KPACK_TEST_HIP_LOG");
  if (!path)
    return;
  int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0 || write(file, line, (size_t)length) != length)
    abort();
  close(file);
}

static int is_hip(struct dl_phdr_info *info, size_t size, void *path) {
  (void)size;
  const char *name = strrchr(info->dlpi_name, '/');
  if (!name || strncmp(name, "/libamdhip64", 12) != 0)
    return 0;
  snprintf(path, PATH_MAX, "%s", info->dlpi_name);
  return 1;
}

/* The HIP library need not be in the global scope: Python loads extension modules locally. */
static void *real(const char *name) {
  char path[PATH_MAX];
  if (!dl_iterate_phdr(is_hip, path))
    return NULL;
  void *hip = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  return hip ? dlsym(hip, name) : NULL;
}

void **__hipRegisterFatBinary(const void *data) {
  const struct wrapper *wrapper = data;
  void **(*next)(const void *) = real("__hipRegisterFatBinary");
  void **handle = next ? next(data) : NULL;
  char line[PATH_MAX + 256];
  Dl_info info;
  const char *file = dladdr(data, &info) && info.dli_fname ? info.dli_fname : "";
  int length = snprintf(line, sizeof line, "binary\t%llu\t%u\t%u\t%llu\t%llu\t%llu\t%s\n",
                        (unsigned long long)(uintptr_t)data, wrapper->magic, wrapper->version,
                        (unsigned long long)wrapper->pointer, (unsigned long long)wrapper->last,
                        (unsigned long long)(uintptr_t)handle, file);
  record(line, length);
  return handle;
}

static void record_name(const char *kind, void **handle, const char *name, const void *host) {
  char line[8192];
  int length = snprintf(line, sizeof line, "%s\t%llu\t%s\t%llu\n", kind, (unsigned long long)(uintptr_t)handle, name,
                        (unsigned long long)(uintptr_t)host);
  if (length < (int)sizeof line)
    record(line, length);
}

void __hipRegisterFunction(void **module, const void *host, char *device, const char *name, unsigned limit, void *tid,
                           void *bid, void *block, void *grid, int *wave) {
  void (*next)(void **, const void *, char *, const char *, unsigned, void *, void *, void *, void *, int *) =
      real("__hipRegisterFunction");
  record_name("function", module, name, host);
  /* A handle that is no handle is what the caller passes on after a refusal; the real library would follow it. */
  if (next && module)
    next(module, host, device, name, limit, tid, bid, block, grid, wave);
}

void __hipRegisterVar(void **module, void *host, char *host_name, char *name, int external, size_t size, int constant,
                      int global) {
  void (*next)(void **, void *, char *, char *, int, size_t, int, int) = real("__hipRegisterVar");
  record_name("variable", module, name, host);
  if (next && module)
    next(module, host, host_name, name, external, size, constant, global);
}
