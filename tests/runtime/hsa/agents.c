/* The machine: its GPUs, whose target ids KPACK_TEST_GPUS lists between commas, one CPU, and their memory.

   The interface is that of hsa.h and hsa_ext_amd.h; attributes newer than those headers are given by number. What HIP
   asks for was found by watching it; what is not answered here is refused, and named in the log. */
#include "rig.h"
#include <hsa/hsa_ext_amd.h>
#include <hsa/hsa_ven_amd_loader.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Pools: the CPU's fine-grained, kernel argument and coarse-grained memory; each GPU's memory and group segment. */
enum { POOL_FINE = 1, POOL_KERNARG, POOL_COARSE, POOL_GPU, POOL_GROUP };

static char targets[MAX_GPUS][NAME];
static int gpus;
const char *rig_target(hsa_agent_t gpu) { return targets[gpu.handle - FIRST_GPU]; }

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
    return ANSWER(uint64_t, 100000000);
  case HSA_SYSTEM_INFO_SIGNAL_MAX_WAIT:
    return ANSWER(uint64_t, UINT64_MAX);
  case 0x204: /* dmabuf */
  case 0x205: /* virtual memory */
  case 0x206: /* xnack */
  case HSA_AMD_SYSTEM_INFO_SVM_SUPPORTED:
  case HSA_AMD_SYSTEM_INFO_SVM_ACCESSIBLE_BY_DEFAULT:
    return ANSWER(bool, false);
  case HSA_SYSTEM_INFO_VERSION_MAJOR:
  case 0x207: /* version of the extensions, major */
    return ANSWER(uint16_t, 1);
  case HSA_SYSTEM_INFO_VERSION_MINOR:
  case 0x208: /* … minor */
    return ANSWER(uint16_t, 8);
  default:
    return rig_refuse(__func__, attribute);
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
  return agent.handle == CPU ? HSA_STATUS_SUCCESS : visit((hsa_isa_t){agent.handle}, data);
}

hsa_status_t hsa_isa_get_info_alt(hsa_isa_t isa, hsa_isa_info_t attribute, void *value) {
  char name[NAME + 32];
  snprintf(name, sizeof name, "amdgcn-amd-amdhsa--%s", targets[isa.handle - FIRST_GPU]);
  if (attribute == HSA_ISA_INFO_NAME_LENGTH)
    *(uint32_t *)value = strlen(name) + 1;
  else if (attribute == HSA_ISA_INFO_NAME)
    strcpy(value, name);
  else
    return rig_refuse(__func__, attribute);
  return HSA_STATUS_SUCCESS;
}

/* The attributes that are one number of 32 bits. */
static int number_of(int attribute, uint32_t *value) {
  static const struct {
    int attribute;
    uint32_t value;
  } numbers[] = {
      {HSA_AGENT_INFO_WAVEFRONT_SIZE, 64}, {HSA_AGENT_INFO_WORKGROUP_MAX_SIZE, 1024},
      {HSA_AGENT_INFO_GRID_MAX_SIZE, UINT32_MAX}, {HSA_AGENT_INFO_QUEUES_MAX, 128},
      {HSA_AGENT_INFO_QUEUE_MAX_SIZE, 131072}, {HSA_AGENT_INFO_QUEUE_MIN_SIZE, 64}, {HSA_AGENT_INFO_NODE, 1},
      {HSA_EXT_AGENT_INFO_MAX_SAMPLER_HANDLERS, 16}, {HSA_EXT_AGENT_INFO_IMAGE_1D_MAX_ELEMENTS, 16384},
      {HSA_EXT_AGENT_INFO_IMAGE_1DA_MAX_ELEMENTS, 16384}, {HSA_EXT_AGENT_INFO_IMAGE_1DB_MAX_ELEMENTS, 16384},
      {HSA_EXT_AGENT_INFO_IMAGE_ARRAY_MAX_LAYERS, 16384}, {HSA_AMD_AGENT_INFO_CHIP_ID, 0x7400},
      {HSA_AMD_AGENT_INFO_CACHELINE_SIZE, 64}, {HSA_AMD_AGENT_INFO_COMPUTE_UNIT_COUNT, 8},
      {HSA_AMD_AGENT_INFO_MAX_CLOCK_FREQUENCY, 1000}, {HSA_AMD_AGENT_INFO_DRIVER_NODE_ID, 1},
      {HSA_AMD_AGENT_INFO_MAX_ADDRESS_WATCH_POINTS, 4}, {HSA_AMD_AGENT_INFO_MEMORY_WIDTH, 256},
      {HSA_AMD_AGENT_INFO_MEMORY_MAX_FREQUENCY, 1000}, {HSA_AMD_AGENT_INFO_MAX_WAVES_PER_CU, 32},
      {HSA_AMD_AGENT_INFO_NUM_SIMDS_PER_CU, 4}, {HSA_AMD_AGENT_INFO_NUM_SHADER_ENGINES, 1},
      {HSA_AMD_AGENT_INFO_NUM_SHADER_ARRAYS_PER_SE, 1}, {HSA_AMD_AGENT_INFO_DOMAIN, 0},
      {HSA_AMD_AGENT_INFO_ASIC_REVISION, 1},
      {0xA014, 8}, /* compute units for cooperative queues */
      {0xA107, 0}, /* ASIC family */
      {0xA108, 1}, /* microcode */
      {0xA109, 1}, /* microcode of the copy engines */
      {0xA10A, 2}, /* copy engines */
      {0xA10B, 0}, /* … to other GPUs */
      {0xA111, 1}, /* XCCs */
      {0xA112, 0}, /* driver */
      {0xA119, 0}, /* emulation of older packets */
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
    return rig_refuse("hsa_agent_get_info", attribute);
  }
}

hsa_status_t hsa_agent_get_info(hsa_agent_t agent, hsa_agent_info_t attribute, void *value) {
  uint32_t number;
  switch ((int)attribute) {
  case HSA_AGENT_INFO_DEVICE:
    return ANSWER(hsa_device_type_t, agent.handle == CPU ? HSA_DEVICE_TYPE_CPU : HSA_DEVICE_TYPE_GPU);
  case HSA_AGENT_INFO_FEATURE:
    return ANSWER(hsa_agent_feature_t, HSA_AGENT_FEATURE_KERNEL_DISPATCH);
  case HSA_AGENT_INFO_PROFILE:
    return ANSWER(hsa_profile_t, HSA_PROFILE_BASE);
  case HSA_AGENT_INFO_ISA:
    return ANSWER(hsa_isa_t, (hsa_isa_t){agent.handle});
  case HSA_AGENT_INFO_WORKGROUP_MAX_DIM:
    for (int i = 0; i < 3; ++i)
      ((uint16_t *)value)[i] = 1024;
    return HSA_STATUS_SUCCESS;
  case HSA_AGENT_INFO_GRID_MAX_DIM:
    return ANSWER(hsa_dim3_t, (hsa_dim3_t){UINT32_MAX, UINT32_MAX, UINT32_MAX});
  case HSA_AGENT_INFO_CACHE_SIZE:
    for (int i = 0; i < 4; ++i)
      ((uint32_t *)value)[i] = 16384;
    return HSA_STATUS_SUCCESS;
  case HSA_AGENT_INFO_EXTENSIONS:
    memset(value, 0, 128);
    return HSA_STATUS_SUCCESS;
  case HSA_AGENT_INFO_VERSION_MAJOR:
  case HSA_AGENT_INFO_VERSION_MINOR:
    return ANSWER(uint16_t, 1);
  case HSA_EXT_AGENT_INFO_IMAGE_2D_MAX_ELEMENTS:
  case HSA_EXT_AGENT_INFO_IMAGE_2DA_MAX_ELEMENTS:
    ((uint32_t *)value)[0] = ((uint32_t *)value)[1] = 16384;
    return HSA_STATUS_SUCCESS;
  case HSA_EXT_AGENT_INFO_IMAGE_3D_MAX_ELEMENTS:
    for (int i = 0; i < 3; ++i)
      ((uint32_t *)value)[i] = 2048;
    return HSA_STATUS_SUCCESS;
  case HSA_AMD_AGENT_INFO_BDFID:
    return ANSWER(uint32_t, agent.handle << 8);
  case HSA_AMD_AGENT_INFO_HDP_FLUSH:
    memset(value, 0, sizeof(hsa_amd_hdp_flush_t));
    return HSA_STATUS_SUCCESS;
  case HSA_AMD_AGENT_INFO_COOPERATIVE_QUEUES:
  case HSA_AMD_AGENT_INFO_SVM_DIRECT_HOST_ACCESS:
  case HSA_AGENT_INFO_FAST_F16_OPERATION:
  case 0xA110: /* IOMMU */
    return ANSWER(bool, false);
  case 0xA015: /* memory available */
    return ANSWER(uint64_t, 1ull << 33);
  case 0xA016: /* frequency of the time stamps */
    return ANSWER(uint64_t, 100000000);
  case 0xA113: /* the nearest CPU */
    return ANSWER(hsa_agent_t, (hsa_agent_t){CPU});
  case 0xA114: /* properties of the memory */
  case 0xA115: /* extensions of the queues */
    memset(value, 0, 8);
    return HSA_STATUS_SUCCESS;
  case 0xA116: /* scratch memory: the limit, … */
  case 0xA117: /* … and what it is now */
    return ANSWER(uint64_t, 1ull << 30);
  default:
    if (!number_of((int)attribute, &number))
      return agent_text(agent, (int)attribute, value);
    return ANSWER(uint32_t, number);
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
    return ANSWER(hsa_amd_segment_t, kind == POOL_GROUP ? HSA_AMD_SEGMENT_GROUP : HSA_AMD_SEGMENT_GLOBAL);
  case HSA_AMD_MEMORY_POOL_INFO_GLOBAL_FLAGS:
    *(uint32_t *)value = kind == POOL_KERNARG ? HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_KERNARG_INIT |
                                                    HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_FINE_GRAINED
                         : kind == POOL_FINE ? HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_FINE_GRAINED
                                             : HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_COARSE_GRAINED;
    return HSA_STATUS_SUCCESS;
  case HSA_AMD_MEMORY_POOL_INFO_SIZE:
  case HSA_AMD_MEMORY_POOL_INFO_ALLOC_MAX_SIZE:
    return ANSWER(size_t, kind == POOL_GROUP ? 65536 : 1ull << 33);
  case HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_ALLOWED:
  case HSA_AMD_MEMORY_POOL_INFO_ACCESSIBLE_BY_ALL:
    return ANSWER(bool, kind != POOL_GROUP);
  case HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_GRANULE:
  case HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_ALIGNMENT:
  case 18: /* the granule that is recommended */
    return ANSWER(size_t, 4096);
  case 17: /* where it lies: 0 for the CPU's, 1 for a GPU's */
    return ANSWER(uint32_t, kind >= POOL_GPU);
  default:
    return rig_refuse(__func__, attribute);
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
    return ANSWER(uint32_t, !own);
  case HSA_AMD_AGENT_MEMORY_POOL_INFO_LINK_INFO:
    memset(value, 0, sizeof(hsa_amd_memory_pool_link_info_t));
    ((hsa_amd_memory_pool_link_info_t *)value)->link_type = HSA_AMD_LINK_INFO_TYPE_PCIE;
    return HSA_STATUS_SUCCESS;
  default:
    return rig_refuse(__func__, attribute);
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

/* HIP calls these, and has no need for what they do. */
hsa_status_t hsa_system_get_major_extension_table(uint16_t extension, uint16_t major, size_t size, void *table) {
  if (extension != HSA_EXTENSION_AMD_LOADER || major != 1)
    return rig_refuse(__func__, extension);
  memset(table, 0, size); /* no function of it is called */
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
