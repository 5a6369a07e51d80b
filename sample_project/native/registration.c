/* What clang makes of a HIP translation unit on the host side, written out for a machine that has no such clang.

   Compiled once for each unit, with its code objects in a bundle: -DKERNEL=<name>, -DBUNDLE="<path>". The wrapper,
   the two sections and the calls are those of clang's CodeGen/CGCUDANV.cpp. */
#include <stddef.h>

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

struct fat_binary_wrapper {
  unsigned magic, version;
  const void *bundle;
  void *unused;
};

void **__hipRegisterFatBinary(const void *wrapper);
void __hipRegisterFunction(void **module, const void *handle, char *device_name, const char *name, int threads,
                           void *tid, void *bid, void *block, void *grid, int *size);
void __hipUnregisterFatBinary(void **module);

__asm__(".section .hip_fatbin,\"a\",@progbits\n"
        ".p2align 12\n"
        "sample_bundle:\n"
        ".incbin \"" BUNDLE "\"\n"
        ".previous\n");

extern const char sample_bundle[] __attribute__((visibility("hidden")));

static const struct fat_binary_wrapper wrapper __attribute__((section(".hipFatBinSegment"), used, aligned(8))) = {
    0x48495046, 1, sample_bundle, NULL};

/* The kernel's handle: HIP knows a kernel by this address. */
const void *const KERNEL __attribute__((visibility("hidden"))) = &KERNEL;

static void **module;

__attribute__((constructor)) static void load(void) {
  module = __hipRegisterFatBinary(&wrapper);
  __hipRegisterFunction(module, &KERNEL, TEXT(KERNEL), TEXT(KERNEL), -1, NULL, NULL, NULL, NULL, NULL);
}

__attribute__((destructor)) static void unload(void) { __hipUnregisterFatBinary(module); }
