/* Which code runs on which GPU: the flags of a code object against the GPU's target id.

   The numbers are those of LLVM's "User Guide for AMDGPU Backend" (AMDGPU ELF Header e_flags, Generic Processors). What
   cannot be code for any GPU gets the status that ROCm's loader of code objects gives. */
#include "rig.h"
#include <elf.h>
#include <stdio.h>
#include <string.h>

static const char *const names[256] = {
    [0x20] = "gfx600", [0x21] = "gfx601", [0x22] = "gfx700", [0x23] = "gfx701", [0x24] = "gfx702", [0x25] = "gfx703",
    [0x26] = "gfx704", [0x2b] = "gfx810", [0x3a] = "gfx602", [0x3b] = "gfx705", [0x3c] = "gfx805",
    [0x28] = "gfx801", [0x29] = "gfx802", [0x2a] = "gfx803", [0x2c] = "gfx900", [0x2d] = "gfx902",
    [0x2e] = "gfx904", [0x2f] = "gfx906", [0x30] = "gfx908", [0x31] = "gfx909", [0x32] = "gfx90c",
    [0x33] = "gfx1010", [0x34] = "gfx1011", [0x35] = "gfx1012", [0x36] = "gfx1030", [0x37] = "gfx1031",
    [0x38] = "gfx1032", [0x39] = "gfx1033", [0x3d] = "gfx1035", [0x3e] = "gfx1034", [0x3f] = "gfx90a",
    [0x40] = "gfx940", [0x41] = "gfx1100", [0x42] = "gfx1013", [0x43] = "gfx1150", [0x44] = "gfx1103",
    [0x45] = "gfx1036", [0x46] = "gfx1101", [0x47] = "gfx1102", [0x48] = "gfx1200", [0x49] = "gfx1250",
    [0x4a] = "gfx1151", [0x4b] = "gfx941", [0x4c] = "gfx942", [0x4e] = "gfx1201", [0x4f] = "gfx950",
    [0x51] = "gfx9-generic", [0x52] = "gfx10-1-generic", [0x53] = "gfx10-3-generic", [0x54] = "gfx11-generic",
    [0x55] = "gfx1152", [0x58] = "gfx1153", [0x59] = "gfx12-generic", [0x5a] = "gfx1251", [0x5f] = "gfx9-4-generic",
};

/* Generic processors, and those that their code runs on. */
static const struct {
  const char *name, *members;
} generics[] = {
    {"gfx9-generic", "gfx900 gfx902 gfx904 gfx906 gfx909 gfx90c"},
    {"gfx10-1-generic", "gfx1010 gfx1011 gfx1012 gfx1013"},
    {"gfx10-3-generic", "gfx1030 gfx1031 gfx1032 gfx1033 gfx1034 gfx1035 gfx1036"},
    {"gfx11-generic", "gfx1100 gfx1101 gfx1102 gfx1103 gfx1150 gfx1151 gfx1152 gfx1153"},
    {"gfx12-generic", "gfx1200 gfx1201"},
    {"gfx9-4-generic", "gfx942 gfx950"},
};

enum { MACHINE_AMDGPU = 224, OS_HSA = 64, ABI_V3 = 1, OFF = 2, ON = 3 };

static void add_feature(char *target, const char *name, unsigned state) {
  if (state == OFF || state == ON)
    snprintf(target + strlen(target), NAME - strlen(target), ":%s%c", name, state == ON ? '+' : '-');
}

hsa_status_t rig_code_target(const void *code, size_t size, char target[NAME]) {
  const Elf64_Ehdr *header = code;
  target[0] = 0;
  if (size < sizeof *header || memcmp(header->e_ident, ELFMAG, SELFMAG) || header->e_ident[EI_CLASS] != ELFCLASS64 ||
      header->e_ident[EI_OSABI] != OS_HSA || header->e_machine != MACHINE_AMDGPU)
    return HSA_STATUS_ERROR_INVALID_CODE_OBJECT;
  unsigned flags = header->e_flags, xnack = flags >> 8 & 3, sramecc = flags >> 10 & 3;
  if (header->e_ident[EI_ABIVERSION] == ABI_V3) { /* on, or not said */
    xnack = flags >> 8 & 1 ? ON : 0;
    sramecc = flags >> 9 & 1 ? ON : 0;
  }
  if (!names[flags & 0xff])
    return HSA_STATUS_ERROR_INVALID_ISA_NAME;
  snprintf(target, NAME, "%s", names[flags & 0xff]);
  add_feature(target, "sramecc", sramecc);
  add_feature(target, "xnack", xnack);
  return HSA_STATUS_SUCCESS;
}

/* Whether `word`, of which `length` bytes count, is one of the words in `words`; these may be NULL. */
static int has_word(const char *words, const char *word, size_t length) {
  for (const char *at = words; at; at = strchr(at, ' ') ? strchr(at, ' ') + 1 : NULL)
    if (!strncmp(at, word, length) && (at[length] == ' ' || !at[length]))
      return 1;
  return 0;
}

static const char *members_of(const char *name, size_t length) {
  for (size_t i = 0; i < sizeof generics / sizeof *generics; ++i)
    if (has_word(generics[i].name, name, length))
      return generics[i].members;
  return NULL;
}

int rig_runs_on(const char *code, const char *gpu) {
  size_t length = strcspn(code, ":"), gpu_length = strcspn(gpu, ":");
  int same = length == gpu_length && !strncmp(code, gpu, length);
  if (!same && !has_word(members_of(code, length), gpu, gpu_length))
    return 0;
  for (const char *feature = strchr(code, ':'); feature; feature = strchr(feature + 1, ':')) {
    char name[NAME];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(feature + 1, ":") + 1, feature);
    if (!strstr(gpu, name))
      return 0;
  }
  return 1;
}
