/* A stand-in for the library below HIP (libhsa-runtime64): GPUs of any target, none of which is there.

   KPACK_TEST_GPUS lists their target ids between commas. HIP finds them, chooses a code object for each, and hands it
   down to load it. Each one that it hands down is written to a file in the directory KPACK_TEST_GPU_CODE, named by its
   number in the order of loading and the GPU's: `<number>-<gpu>`. Kernels are found by any name; none runs.

   The interface is that of hsa.h and hsa_ext_amd.h; attributes newer than those headers are given by number. What HIP
   asks for was found by watching it. A function that it has no need for here fails. */
#include <hsa/hsa.h>
#include <hsa/hsa_ext_amd.h>
#include <hsa/hsa_ven_amd_loader.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_GPUS = 16, CPU = 1, FIRST_GPU = 2, NAME = 64 };

/* Pools: the CPU's fine-grained, kernel argument and coarse-grained memory; each GPU's memory and group segment. */
enum { POOL_FINE = 1, POOL_KERNARG, POOL_COARSE, POOL_GPU, POOL_GROUP };

static char targets[MAX_GPUS][NAME];
static int gpus;
static int loaded;

struct reader {
  const void *data;
  size_t size;
};

static void *zeroed(size_t size) {
  void *memory = calloc(1, size);
  if (!memory)
    abort();
  return memory;
}

hsa_status_t hsa_init(void) {
  char list[MAX_GPUS * NAME];
  const char *text = getenv("KPACK_TEST_GPUS");
  snprintf(list, sizeof list, "%s", text ? text : "");
  gpus = 0;
  for (char *rest = NULL, *name = strtok_r(list, ",", &rest); name && gpus < MAX_GPUS;
       name = strtok_r(NULL, ",", &rest))
    snprintf(targets[gpus++], NAME, "%s", name);
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_shut_down(void) { return HSA_STATUS_SUCCESS; }

hsa_status_t hsa_status_string(hsa_status_t status, const char **text) {
  (void)status;
  *text = "a status of the stand-in";
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_system_get_info(hsa_system_info_t attribute, void *value) {
  switch ((int)attribute) {
  case HSA_SYSTEM_INFO_TIMESTAMP_FREQUENCY:
    *(uint64_t *)value = 100000000;
    return HSA_STATUS_SUCCESS;
  case HSA_SYSTEM_INFO_SIGNAL_MAX_WAIT:
    *(uint64_t *)value = UINT64_MAX;
    return HSA_STATUS_SUCCESS;
  case 0x204: /* dmabuf */
  case 0x205: /* virtual memory */
  case 0x206: /* xnack */
  case HSA_AMD_SYSTEM_INFO_SVM_SUPPORTED:
  case HSA_AMD_SYSTEM_INFO_SVM_ACCESSIBLE_BY_DEFAULT:
    *(bool *)value = false;
    return HSA_STATUS_SUCCESS;
  case HSA_SYSTEM_INFO_VERSION_MAJOR:
  case 0x207: /* version of the extensions, major */
    *(uint16_t *)value = 1;
    return HSA_STATUS_SUCCESS;
  case HSA_SYSTEM_INFO_VERSION_MINOR:
  case 0x208: /* … minor */
    *(uint16_t *)value = 8;
    return HSA_STATUS_SUCCESS;
  default:
    return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  }
}

hsa_status_t hsa_iterate_agents(hsa_status_t (*visit)(hsa_agent_t, void *), void *data) {
  for (uint64_t handle = CPU; handle < (uint64_t)FIRST_GPU + gpus; ++handle) {
    hsa_status_t status = visit((hsa_agent_t){handle}, data);
    if (status != HSA_STATUS_SUCCESS)
      return status;
  }
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_agent_iterate_isas(hsa_agent_t agent, hsa_status_t (*visit)(hsa_isa_t, void *), void *data) {
  return visit((hsa_isa_t){agent.handle}, data);
}

hsa_status_t hsa_isa_get_info_alt(hsa_isa_t isa, hsa_isa_info_t attribute, void *value) {
  char name[NAME + 32];
  snprintf(name, sizeof name, "amdgcn-amd-amdhsa--%s", targets[isa.handle - FIRST_GPU]);
  if (attribute == HSA_ISA_INFO_NAME_LENGTH)
    *(uint32_t *)value = strlen(name) + 1;
  else if (attribute == HSA_ISA_INFO_NAME)
    strcpy(value, name);
  else
    return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  return HSA_STATUS_SUCCESS;
}

/* The attributes that are one number of 32 bits. */
static int number_of(int attribute, uint32_t *value) {
  static const struct {
    int attribute;
    uint32_t value;
  } numbers[] = {
      {HSA_AGENT_INFO_WAVEFRONT_SIZE, 64},
      {HSA_AGENT_INFO_WORKGROUP_MAX_SIZE, 1024},
      {HSA_AGENT_INFO_GRID_MAX_SIZE, UINT32_MAX},
      {HSA_AGENT_INFO_QUEUES_MAX, 128},
      {HSA_AGENT_INFO_QUEUE_MAX_SIZE, 131072},
      {HSA_AGENT_INFO_QUEUE_MIN_SIZE, 64},
      {HSA_AGENT_INFO_NODE, 1},
      {HSA_EXT_AGENT_INFO_MAX_SAMPLER_HANDLERS, 16},
      {HSA_AMD_AGENT_INFO_CHIP_ID, 0x7400},
      {HSA_AMD_AGENT_INFO_CACHELINE_SIZE, 64},
      {HSA_AMD_AGENT_INFO_COMPUTE_UNIT_COUNT, 8},
      {HSA_AMD_AGENT_INFO_MAX_CLOCK_FREQUENCY, 1000},
      {HSA_AMD_AGENT_INFO_DRIVER_NODE_ID, 1},
      {HSA_AMD_AGENT_INFO_MAX_ADDRESS_WATCH_POINTS, 4},
      {HSA_AMD_AGENT_INFO_MEMORY_WIDTH, 256},
      {HSA_AMD_AGENT_INFO_MEMORY_MAX_FREQUENCY, 1000},
      {HSA_AMD_AGENT_INFO_MAX_WAVES_PER_CU, 32},
      {HSA_AMD_AGENT_INFO_NUM_SIMDS_PER_CU, 4},
      {HSA_AMD_AGENT_INFO_NUM_SHADER_ENGINES, 1},
      {HSA_AMD_AGENT_INFO_NUM_SHADER_ARRAYS_PER_SE, 1},
      {HSA_AMD_AGENT_INFO_DOMAIN, 0},
      {HSA_AMD_AGENT_INFO_ASIC_REVISION, 1},
      {0xA014, 8}, /* compute units for cooperative queues */
      {0xA107, 0}, /* ASIC family */
      {0xA108, 1}, /* microcode */
      {0xA109, 1}, /* microcode of the copy engines */
      {0xA10A, 2}, /* copy engines */
      {0xA10B, 0}, /* … to other GPUs */
      {0xA111, 1}, /* XCCs */
      {0xA112, 0}, /* driver */
  };
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; ++i)
    if (numbers[i].attribute == attribute) {
      *value = numbers[i].value;
      return 1;
    }
  return 0;
}

static hsa_status_t agent_text(hsa_agent_t agent, int attribute, char *value) {
  const char *target = agent.handle == CPU ? "a CPU" : targets[agent.handle - FIRST_GPU];
  switch (attribute) {
  case HSA_AGENT_INFO_NAME: /* the processor, without its features */
    snprintf(value, NAME, "%.*s", (int)strcspn(target, ":"), target);
    return HSA_STATUS_SUCCESS;
  case HSA_AGENT_INFO_VENDOR_NAME:
    snprintf(value, NAME, "%s", agent.handle == CPU ? "CPU" : "AMD");
    return HSA_STATUS_SUCCESS;
  case HSA_AMD_AGENT_INFO_PRODUCT_NAME:
    snprintf(value, NAME, "Made-up %s", target);
    return HSA_STATUS_SUCCESS;
  case HSA_AMD_AGENT_INFO_UUID:
    snprintf(value, 21, "GPU-%016llx", (unsigned long long)agent.handle);
    return HSA_STATUS_SUCCESS;
  default:
    return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  }
}

hsa_status_t hsa_agent_get_info(hsa_agent_t agent, hsa_agent_info_t attribute, void *value) {
  uint32_t number;
  switch ((int)attribute) {
  case HSA_AGENT_INFO_DEVICE:
    *(hsa_device_type_t *)value = agent.handle == CPU ? HSA_DEVICE_TYPE_CPU : HSA_DEVICE_TYPE_GPU;
    return HSA_STATUS_SUCCESS;
  case HSA_AGENT_INFO_FEATURE:
    *(hsa_agent_feature_t *)value = HSA_AGENT_FEATURE_KERNEL_DISPATCH;
    return HSA_STATUS_SUCCESS;
  case HSA_AGENT_INFO_PROFILE:
    *(hsa_profile_t *)value = HSA_PROFILE_BASE;
    return HSA_STATUS_SUCCESS;
  case HSA_AGENT_INFO_ISA:
    *(hsa_isa_t *)value = (hsa_isa_t){agent.handle};
    return HSA_STATUS_SUCCESS;
  case HSA_AGENT_INFO_WORKGROUP_MAX_DIM:
    for (int i = 0; i < 3; ++i)
      ((uint16_t *)value)[i] = 1024;
    return HSA_STATUS_SUCCESS;
  case HSA_AGENT_INFO_GRID_MAX_DIM:
    *(hsa_dim3_t *)value = (hsa_dim3_t){UINT32_MAX, UINT32_MAX, UINT32_MAX};
    return HSA_STATUS_SUCCESS;
  case HSA_AGENT_INFO_CACHE_SIZE:
    for (int i = 0; i < 4; ++i)
      ((uint32_t *)value)[i] = 16384;
    return HSA_STATUS_SUCCESS;
  case HSA_AGENT_INFO_EXTENSIONS:
    memset(value, 0, 128);
    return HSA_STATUS_SUCCESS;
  case HSA_AGENT_INFO_VERSION_MAJOR:
  case HSA_AGENT_INFO_VERSION_MINOR:
    *(uint16_t *)value = 1;
    return HSA_STATUS_SUCCESS;
  case HSA_EXT_AGENT_INFO_IMAGE_1D_MAX_ELEMENTS:
  case HSA_EXT_AGENT_INFO_IMAGE_1DA_MAX_ELEMENTS:
  case HSA_EXT_AGENT_INFO_IMAGE_1DB_MAX_ELEMENTS:
  case HSA_EXT_AGENT_INFO_IMAGE_ARRAY_MAX_LAYERS:
    *(uint32_t *)value = 16384;
    return HSA_STATUS_SUCCESS;
  case HSA_EXT_AGENT_INFO_IMAGE_2D_MAX_ELEMENTS:
  case HSA_EXT_AGENT_INFO_IMAGE_2DA_MAX_ELEMENTS:
    ((uint32_t *)value)[0] = ((uint32_t *)value)[1] = 16384;
    return HSA_STATUS_SUCCESS;
  case HSA_EXT_AGENT_INFO_IMAGE_3D_MAX_ELEMENTS:
    for (int i = 0; i < 3; ++i)
      ((uint32_t *)value)[i] = 2048;
    return HSA_STATUS_SUCCESS;
  case HSA_AMD_AGENT_INFO_BDFID:
    *(uint32_t *)value = (uint32_t)agent.handle << 8;
    return HSA_STATUS_SUCCESS;
  case HSA_AMD_AGENT_INFO_HDP_FLUSH:
    memset(value, 0, sizeof(hsa_amd_hdp_flush_t));
    return HSA_STATUS_SUCCESS;
  case HSA_AMD_AGENT_INFO_COOPERATIVE_QUEUES:
  case HSA_AMD_AGENT_INFO_SVM_DIRECT_HOST_ACCESS:
  case HSA_AGENT_INFO_FAST_F16_OPERATION:
  case 0xA110: /* IOMMU */
    *(bool *)value = false;
    return HSA_STATUS_SUCCESS;
  case 0xA015: /* memory available */
    *(uint64_t *)value = 1ull << 33;
    return HSA_STATUS_SUCCESS;
  case 0xA016: /* frequency of the time stamps */
    *(uint64_t *)value = 100000000;
    return HSA_STATUS_SUCCESS;
  case 0xA113: /* the nearest CPU */
    *(hsa_agent_t *)value = (hsa_agent_t){CPU};
    return HSA_STATUS_SUCCESS;
  case 0xA114: /* properties of the memory */
  case 0xA115: /* extensions of the queues */
    memset(value, 0, 8);
    return HSA_STATUS_SUCCESS;
  case 0xA116: /* scratch memory: the limit, … */
  case 0xA117: /* … and what it is now */
    *(uint64_t *)value = 1ull << 30;
    return HSA_STATUS_SUCCESS;
  case 0xA119: /* emulation of older packets */
    *(uint32_t *)value = 0;
    return HSA_STATUS_SUCCESS;
  default:
    if (!number_of((int)attribute, &number))
      return agent_text(agent, (int)attribute, value);
    *(uint32_t *)value = number;
    return HSA_STATUS_SUCCESS;
  }
}

hsa_status_t hsa_amd_agent_iterate_memory_pools(hsa_agent_t agent, hsa_status_t (*visit)(hsa_amd_memory_pool_t, void *),
                                                void *data) {
  uint64_t first = agent.handle == CPU ? POOL_FINE : POOL_GPU, last = agent.handle == CPU ? POOL_COARSE : POOL_GROUP;
  for (uint64_t pool = first; pool <= last; ++pool) {
    hsa_status_t status = visit((hsa_amd_memory_pool_t){agent.handle << 8 | pool}, data);
    if (status != HSA_STATUS_SUCCESS)
      return status;
  }
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_amd_memory_pool_get_info(hsa_amd_memory_pool_t pool, hsa_amd_memory_pool_info_t attribute,
                                          void *value) {
  int kind = pool.handle & 0xff;
  switch ((int)attribute) {
  case HSA_AMD_MEMORY_POOL_INFO_SEGMENT:
    *(hsa_amd_segment_t *)value = kind == POOL_GROUP ? HSA_AMD_SEGMENT_GROUP : HSA_AMD_SEGMENT_GLOBAL;
    return HSA_STATUS_SUCCESS;
  case HSA_AMD_MEMORY_POOL_INFO_GLOBAL_FLAGS:
    *(uint32_t *)value = kind == POOL_KERNARG ? HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_KERNARG_INIT |
                                                    HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_FINE_GRAINED
                         : kind == POOL_FINE ? HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_FINE_GRAINED
                                             : HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_COARSE_GRAINED;
    return HSA_STATUS_SUCCESS;
  case HSA_AMD_MEMORY_POOL_INFO_SIZE:
  case HSA_AMD_MEMORY_POOL_INFO_ALLOC_MAX_SIZE:
    *(size_t *)value = kind == POOL_GROUP ? 65536 : 1ull << 33;
    return HSA_STATUS_SUCCESS;
  case HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_ALLOWED:
  case HSA_AMD_MEMORY_POOL_INFO_ACCESSIBLE_BY_ALL:
    *(bool *)value = kind != POOL_GROUP;
    return HSA_STATUS_SUCCESS;
  case HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_GRANULE:
  case HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_ALIGNMENT:
  case 18: /* the granule that is recommended */
    *(size_t *)value = 4096;
    return HSA_STATUS_SUCCESS;
  case 17: /* where it lies: 0 for the CPU's, 1 for a GPU's */
    *(uint32_t *)value = kind >= POOL_GPU;
    return HSA_STATUS_SUCCESS;
  default:
    return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  }
}

hsa_status_t hsa_amd_agent_memory_pool_get_info(hsa_agent_t agent, hsa_amd_memory_pool_t pool,
                                                hsa_amd_agent_memory_pool_info_t attribute, void *value) {
  int own = pool.handle >> 8 == agent.handle;
  switch (attribute) {
  case HSA_AMD_AGENT_MEMORY_POOL_INFO_ACCESS:
    *(hsa_amd_memory_pool_access_t *)value =
        own ? HSA_AMD_MEMORY_POOL_ACCESS_ALLOWED_BY_DEFAULT : HSA_AMD_MEMORY_POOL_ACCESS_DISALLOWED_BY_DEFAULT;
    return HSA_STATUS_SUCCESS;
  case HSA_AMD_AGENT_MEMORY_POOL_INFO_NUM_LINK_HOPS:
    *(uint32_t *)value = !own;
    return HSA_STATUS_SUCCESS;
  case HSA_AMD_AGENT_MEMORY_POOL_INFO_LINK_INFO:
    memset(value, 0, sizeof(hsa_amd_memory_pool_link_info_t));
    ((hsa_amd_memory_pool_link_info_t *)value)->link_type = HSA_AMD_LINK_INFO_TYPE_PCIE;
    return HSA_STATUS_SUCCESS;
  default:
    return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  }
}

hsa_status_t hsa_amd_memory_pool_allocate(hsa_amd_memory_pool_t pool, size_t size, uint32_t flags, void **memory) {
  (void)pool, (void)flags;
  *memory = aligned_alloc(4096, (size + 4095) / 4096 * 4096);
  return *memory ? HSA_STATUS_SUCCESS : HSA_STATUS_ERROR_OUT_OF_RESOURCES;
}

hsa_status_t hsa_amd_memory_pool_free(void *memory) {
  free(memory);
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_amd_pointer_info(const void *memory, hsa_amd_pointer_info_t *info, void *(*allocate)(size_t),
                                  uint32_t *count, hsa_agent_t **agents) {
  (void)memory, (void)allocate, (void)agents;
  info->type = HSA_EXT_POINTER_TYPE_UNKNOWN;
  if (count)
    *count = 0;
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_amd_memory_copy_engine_status(hsa_agent_t to, hsa_agent_t from, uint32_t *engines) {
  (void)to, (void)from;
  *engines = 1;
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_amd_memory_get_preferred_copy_engine(hsa_agent_t to, hsa_agent_t from, uint32_t *engines) {
  return hsa_amd_memory_copy_engine_status(to, from, engines);
}

hsa_status_t hsa_memory_copy(void *to, const void *from, size_t size) {
  memcpy(to, from, size);
  return HSA_STATUS_SUCCESS;
}

/* Signals: a number each. Nothing changes one but HIP, so a wait is over at once. */
hsa_status_t hsa_signal_create(hsa_signal_value_t value, uint32_t count, const hsa_agent_t *agents,
                               hsa_signal_t *signal) {
  (void)count, (void)agents;
  hsa_signal_value_t *memory = zeroed(64);
  *memory = value;
  signal->handle = (uintptr_t)memory;
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_amd_signal_create(hsa_signal_value_t value, uint32_t count, const hsa_agent_t *agents,
                                   uint64_t attributes, hsa_signal_t *signal) {
  (void)attributes;
  return hsa_signal_create(value, count, agents, signal);
}

hsa_status_t hsa_signal_destroy(hsa_signal_t signal) {
  free((void *)(uintptr_t)signal.handle);
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_amd_signal_value_pointer(hsa_signal_t signal, volatile hsa_signal_value_t **pointer) {
  *pointer = (volatile hsa_signal_value_t *)(uintptr_t)signal.handle;
  return HSA_STATUS_SUCCESS;
}

hsa_signal_value_t hsa_signal_load_relaxed(hsa_signal_t signal) {
  return *(hsa_signal_value_t *)(uintptr_t)signal.handle;
}

void hsa_signal_store_relaxed(hsa_signal_t signal, hsa_signal_value_t value) {
  *(hsa_signal_value_t *)(uintptr_t)signal.handle = value;
}

void hsa_signal_store_screlease(hsa_signal_t signal, hsa_signal_value_t value) {
  hsa_signal_store_relaxed(signal, value);
}

void hsa_signal_silent_store_relaxed(hsa_signal_t signal, hsa_signal_value_t value) {
  hsa_signal_store_relaxed(signal, value);
}

void hsa_signal_add_relaxed(hsa_signal_t signal, hsa_signal_value_t value) {
  *(hsa_signal_value_t *)(uintptr_t)signal.handle += value;
}

void hsa_signal_subtract_relaxed(hsa_signal_t signal, hsa_signal_value_t value) {
  *(hsa_signal_value_t *)(uintptr_t)signal.handle -= value;
}

hsa_signal_value_t hsa_signal_wait_scacquire(hsa_signal_t signal, hsa_signal_condition_t condition,
                                             hsa_signal_value_t value, uint64_t timeout, hsa_wait_state_t state) {
  (void)condition, (void)value, (void)timeout, (void)state;
  return hsa_signal_load_relaxed(signal);
}

/* Code objects. */
hsa_status_t hsa_code_object_reader_create_from_memory(const void *data, size_t size,
                                                       hsa_code_object_reader_t *reader) {
  struct reader *memory = zeroed(sizeof *memory);
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
  executable->handle = (uintptr_t)zeroed(1);
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_executable_destroy(hsa_executable_t executable) {
  free((void *)(uintptr_t)executable.handle);
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_executable_load_agent_code_object(hsa_executable_t executable, hsa_agent_t agent,
                                                   hsa_code_object_reader_t reader, const char *options,
                                                   hsa_loaded_code_object_t *code) {
  (void)executable, (void)options;
  const struct reader *memory = (const struct reader *)(uintptr_t)reader.handle;
  const char *directory = getenv("KPACK_TEST_GPU_CODE");
  if (directory) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%d-%llu", directory, loaded++, (unsigned long long)agent.handle - FIRST_GPU);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(memory->data, 1, memory->size, file) != memory->size || fclose(file))
      abort();
  }
  if (code)
    code->handle = reader.handle;
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_executable_freeze(hsa_executable_t executable, const char *options) {
  (void)executable, (void)options;
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_executable_get_symbol_by_name(hsa_executable_t executable, const char *name, const hsa_agent_t *agent,
                                               hsa_executable_symbol_t *symbol) {
  (void)name, (void)agent;
  symbol->handle = executable.handle;
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_executable_symbol_get_info(hsa_executable_symbol_t symbol, hsa_executable_symbol_info_t attribute,
                                            void *value) {
  static char kernel[256] __attribute__((aligned(64)));
  (void)symbol;
  switch ((int)attribute) {
  case HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_OBJECT:
  case HSA_EXECUTABLE_SYMBOL_INFO_VARIABLE_ADDRESS:
    *(uint64_t *)value = (uintptr_t)kernel;
    return HSA_STATUS_SUCCESS;
  default:
    memset(value, 0, 4);
    return HSA_STATUS_SUCCESS;
  }
}

/* HIP calls these, and has no need for what they do. */
hsa_status_t hsa_system_get_major_extension_table(uint16_t extension, uint16_t major, size_t size, void *table) {
  (void)extension, (void)major;
  memset(table, 0, size);
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_amd_register_system_event_handler(hsa_amd_system_event_callback_t call, void *data) {
  (void)call, (void)data;
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_amd_agents_allow_access(uint32_t count, const hsa_agent_t *agents, const uint32_t *flags,
                                         const void *memory) {
  (void)count, (void)agents, (void)flags, (void)memory;
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_amd_profiling_async_copy_enable(bool enable) {
  (void)enable;
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_amd_coherency_set_type(hsa_agent_t agent, hsa_amd_coherency_type_t type) {
  (void)agent, (void)type;
  return HSA_STATUS_SUCCESS;
}
