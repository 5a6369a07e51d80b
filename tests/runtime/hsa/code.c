/* Code objects: each that HIP hands down is checked, written to KPACK_TEST_GPU_CODE, and laid out in memory, so that
   its kernels and variables can be found by their names. */
#include "rig.h"
#include <elf.h>
#include <hsa/hsa_ext_amd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct reader {
  const void *data;
  size_t size;
};

/* A kernel's descriptor or a variable. */
struct symbol {
  const char *name;
  uint64_t address, size;
  int is_kernel;
};

/* One code object on one GPU. */
struct loaded {
  hsa_agent_t gpu;
  char *image;
  char *names;
  struct symbol *symbols;
  size_t count;
  struct loaded *next, *next_of_all;
};

struct executable {
  struct loaded *first;
};

static struct loaded *everything;

hsa_status_t hsa_code_object_reader_create_from_memory(const void *data, size_t size,
                                                       hsa_code_object_reader_t *reader) {
  if (!data || !size)
    return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  struct reader *memory = rig_zeroed(sizeof *memory);
  *memory = (struct reader){data, size};
  reader->handle = (uintptr_t)memory;
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_code_object_reader_destroy(hsa_code_object_reader_t reader) {
  free((void *)(uintptr_t)reader.handle);
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_executable_create_alt(hsa_profile_t profile, hsa_default_float_rounding_mode_t mode,
                                       const char *options, hsa_executable_t *executable) {
  (void)profile, (void)mode, (void)options;
  executable->handle = (uintptr_t)rig_zeroed(sizeof(struct executable));
  return HSA_STATUS_SUCCESS;
}

/* What was loaded stays, for launches that are still to be named. */
hsa_status_t hsa_executable_destroy(hsa_executable_t executable) {
  free((void *)(uintptr_t)executable.handle);
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_executable_freeze(hsa_executable_t executable, const char *options) {
  (void)executable, (void)options;
  return HSA_STATUS_SUCCESS;
}

static void write_code(int number, const struct reader *code) {
  const char *directory = getenv("KPACK_TEST_GPU_CODE");
  if (!directory)
    return;
  char path[4096];
  snprintf(path, sizeof path, "%s/%d", directory, number);
  FILE *file = fopen(path, "wb");
  if (!file || fwrite(code->data, 1, code->size, file) != code->size || fclose(file))
    abort();
}

/* Copy the segments to where they belong; a healthy code object fits into its own size of them. */
static char *lay_out(const char *code) {
  const Elf64_Ehdr *header = (const void *)code;
  const Elf64_Phdr *segments = (const void *)(code + header->e_phoff);
  uint64_t end = 0;
  for (int i = 0; i < header->e_phnum; ++i)
    if (segments[i].p_type == PT_LOAD && segments[i].p_vaddr + segments[i].p_memsz > end)
      end = segments[i].p_vaddr + segments[i].p_memsz;
  char *image = rig_zeroed(end + 1);
  for (int i = 0; i < header->e_phnum; ++i)
    if (segments[i].p_type == PT_LOAD)
      memcpy(image + segments[i].p_vaddr, code + segments[i].p_offset, segments[i].p_filesz);
  return image;
}

static const Elf64_Shdr *symbol_section(const char *code) {
  const Elf64_Ehdr *header = (const void *)code;
  const Elf64_Shdr *sections = (const void *)(code + header->e_shoff);
  for (int i = 0; i < header->e_shnum; ++i)
    if (sections[i].sh_type == SHT_DYNSYM)
      return &sections[i];
  return NULL;
}

/* A kernel's descriptor is an object whose name ends so. */
static int is_descriptor(const char *name) {
  size_t length = strlen(name);
  return length > 3 && !strcmp(name + length - 3, ".kd");
}

static void read_symbols(struct loaded *loaded, const char *code) {
  const Elf64_Shdr *section = symbol_section(code);
  if (!section)
    return;
  const Elf64_Shdr *strings = (const Elf64_Shdr *)(code + ((const Elf64_Ehdr *)code)->e_shoff) + section->sh_link;
  const Elf64_Sym *symbols = (const void *)(code + section->sh_offset);
  size_t all = section->sh_size / sizeof *symbols;
  loaded->names = rig_zeroed(strings->sh_size + 1); /* HIP may give the code's own memory back */
  memcpy(loaded->names, code + strings->sh_offset, strings->sh_size);
  loaded->symbols = rig_zeroed((all + 1) * sizeof *loaded->symbols);
  for (size_t i = 0; i < all; ++i) {
    const char *name = loaded->names + symbols[i].st_name;
    int type = ELF64_ST_TYPE(symbols[i].st_info);
    if (symbols[i].st_shndx == SHN_UNDEF || (type != STT_OBJECT && !is_descriptor(name)))
      continue;
    loaded->symbols[loaded->count++] = (struct symbol){
        name, (uintptr_t)loaded->image + symbols[i].st_value, symbols[i].st_size, is_descriptor(name)};
  }
}

static void log_symbols(int number, const struct loaded *loaded) {
  for (size_t i = 0; i < loaded->count; ++i) {
    const struct symbol *symbol = &loaded->symbols[i];
    int length = (int)strlen(symbol->name) - (symbol->is_kernel ? 3 : 0);
    rig_log("{\"kind\": \"symbol\", \"number\": %d, \"type\": \"%s\", \"name\": \"%.*s\"}", number,
            symbol->is_kernel ? "kernel" : "variable", length, symbol->name);
  }
}

hsa_status_t hsa_executable_load_agent_code_object(hsa_executable_t executable, hsa_agent_t agent,
                                                   hsa_code_object_reader_t reader, const char *options,
                                                   hsa_loaded_code_object_t *code) {
  (void)options;
  static int loads;
  const struct reader *memory = (const struct reader *)(uintptr_t)reader.handle;
  if (!memory)
    return HSA_STATUS_ERROR_INVALID_CODE_OBJECT_READER;
  int number = __atomic_fetch_add(&loads, 1, __ATOMIC_RELAXED);
  char target[NAME];
  hsa_status_t status = rig_code_target(memory->data, memory->size, target);
  if (status == HSA_STATUS_SUCCESS && !rig_runs_on(target, rig_target(agent)))
    status = HSA_STATUS_ERROR_INCOMPATIBLE_ARGUMENTS;
  write_code(number, memory);
  rig_log("{\"kind\": \"code\", \"number\": %d, \"gpu\": %d, \"target\": \"%s\", \"status\": %d}", number,
          (int)agent.handle - FIRST_GPU, target, status);
  if (status != HSA_STATUS_SUCCESS)
    return status;
  struct executable *owner = (struct executable *)(uintptr_t)executable.handle;
  struct loaded *loaded = rig_zeroed(sizeof *loaded);
  loaded->gpu = agent;
  loaded->image = lay_out(memory->data);
  read_symbols(loaded, memory->data);
  log_symbols(number, loaded);
  loaded->next = owner->first;
  owner->first = loaded;
  loaded->next_of_all = __atomic_load_n(&everything, __ATOMIC_ACQUIRE);
  while (!__atomic_compare_exchange_n(&everything, &loaded->next_of_all, loaded, 0, __ATOMIC_ACQ_REL,
                                      __ATOMIC_ACQUIRE))
    ;
  if (code)
    code->handle = (uintptr_t)loaded;
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_executable_get_symbol_by_name(hsa_executable_t executable, const char *name, const hsa_agent_t *agent,
                                               hsa_executable_symbol_t *symbol) {
  const struct executable *owner = (const struct executable *)(uintptr_t)executable.handle;
  for (struct loaded *loaded = owner->first; loaded; loaded = loaded->next)
    for (size_t i = 0; (!agent || agent->handle == loaded->gpu.handle) && i < loaded->count; ++i)
      if (!strcmp(loaded->symbols[i].name, name)) {
        symbol->handle = (uintptr_t)&loaded->symbols[i];
        return HSA_STATUS_SUCCESS;
      }
  return HSA_STATUS_ERROR_INVALID_SYMBOL_NAME;
}

hsa_status_t hsa_executable_symbol_get_info(hsa_executable_symbol_t handle, hsa_executable_symbol_info_t attribute,
                                            void *value) {
  const struct symbol *symbol = (const struct symbol *)(uintptr_t)handle.handle;
  switch ((int)attribute) {
  case HSA_EXECUTABLE_SYMBOL_INFO_TYPE:
    return ANSWER(hsa_symbol_kind_t, symbol->is_kernel ? HSA_SYMBOL_KIND_KERNEL : HSA_SYMBOL_KIND_VARIABLE);
  case HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_OBJECT:
  case HSA_EXECUTABLE_SYMBOL_INFO_VARIABLE_ADDRESS:
    return ANSWER(uint64_t, symbol->address);
  case HSA_EXECUTABLE_SYMBOL_INFO_VARIABLE_SIZE:
    return ANSWER(uint32_t, symbol->size);
  case HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_DYNAMIC_CALLSTACK:
    return ANSWER(bool, false);
  default:
    return rig_refuse(__func__, attribute);
  }
}

const char *rig_kernel_at(hsa_agent_t gpu, uint64_t descriptor) {
  for (struct loaded *loaded = __atomic_load_n(&everything, __ATOMIC_ACQUIRE); loaded; loaded = loaded->next_of_all)
    for (size_t i = 0; loaded->gpu.handle == gpu.handle && i < loaded->count; ++i)
      if (loaded->symbols[i].is_kernel && loaded->symbols[i].address == descriptor)
        return loaded->symbols[i].name;
  return NULL;
}
