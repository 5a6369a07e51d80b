/* Signals and queues. Whatever is put into a queue is done when its doorbell rings, and every copy at once; so a wait
   is over when it begins. Kernels do nothing. */
#include "rig.h"
#include <hsa/amd_hsa_signal.h>
#include <hsa/hsa_ext_amd.h>
#include <stdlib.h>
#include <string.h>

/* Its handle is its address; what HIP may look at comes first, as the hardware wants it. */
struct signal {
  amd_signal_t amd;
  struct rig_queue *queue;
};

struct rig_queue {
  hsa_queue_t hsa;
  hsa_agent_t gpu;
  uint64_t read, write;
};

static struct signal *signal_of(hsa_signal_t handle) { return (struct signal *)(uintptr_t)handle.handle; }

static struct rig_queue *queue_of(const hsa_queue_t *queue) { return (struct rig_queue *)queue; }

hsa_status_t hsa_signal_create(hsa_signal_value_t value, uint32_t count, const hsa_agent_t *agents,
                               hsa_signal_t *signal) {
  (void)count, (void)agents;
  struct signal *memory = rig_zeroed(sizeof *memory);
  memory->amd.kind = AMD_SIGNAL_KIND_USER;
  memory->amd.value = value;
  signal->handle = (uintptr_t)memory;
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_amd_signal_create(hsa_signal_value_t value, uint32_t count, const hsa_agent_t *agents,
                                   uint64_t attributes, hsa_signal_t *signal) {
  (void)attributes;
  return hsa_signal_create(value, count, agents, signal);
}

hsa_status_t hsa_signal_destroy(hsa_signal_t signal) {
  free(signal_of(signal));
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_amd_signal_value_pointer(hsa_signal_t signal, volatile hsa_signal_value_t **pointer) {
  *pointer = &signal_of(signal)->amd.value;
  return HSA_STATUS_SUCCESS;
}

hsa_signal_value_t hsa_signal_load_relaxed(hsa_signal_t signal) {
  return __atomic_load_n(&signal_of(signal)->amd.value, __ATOMIC_ACQUIRE);
}

void hsa_signal_silent_store_relaxed(hsa_signal_t signal, hsa_signal_value_t value) {
  __atomic_store_n(&signal_of(signal)->amd.value, value, __ATOMIC_RELEASE);
}

void hsa_signal_store_relaxed(hsa_signal_t signal, hsa_signal_value_t value) {
  hsa_signal_silent_store_relaxed(signal, value);
  if (signal_of(signal)->queue)
    rig_ring(signal_of(signal)->queue);
}

void hsa_signal_store_screlease(hsa_signal_t signal, hsa_signal_value_t value) {
  hsa_signal_store_relaxed(signal, value);
}

void hsa_signal_add_relaxed(hsa_signal_t signal, hsa_signal_value_t value) {
  __atomic_add_fetch(&signal_of(signal)->amd.value, value, __ATOMIC_ACQ_REL);
}

void hsa_signal_subtract_relaxed(hsa_signal_t signal, hsa_signal_value_t value) {
  hsa_signal_add_relaxed(signal, -value);
}

hsa_signal_value_t hsa_signal_wait_scacquire(hsa_signal_t signal, hsa_signal_condition_t condition,
                                             hsa_signal_value_t value, uint64_t timeout, hsa_wait_state_t state) {
  (void)condition, (void)value, (void)timeout, (void)state;
  return hsa_signal_load_relaxed(signal);
}

void rig_connect(hsa_signal_t doorbell, struct rig_queue *queue) { signal_of(doorbell)->queue = queue; }

static void complete(hsa_signal_t signal) {
  if (signal.handle)
    hsa_signal_subtract_relaxed(signal, 1);
}

/* Queues. */
hsa_status_t hsa_queue_create(hsa_agent_t gpu, uint32_t size, hsa_queue_type32_t type,
                              void (*failed)(hsa_status_t, hsa_queue_t *, void *), void *data, uint32_t private_size,
                              uint32_t group_size, hsa_queue_t **made) {
  (void)failed, (void)data, (void)private_size, (void)group_size;
  static uint64_t number;
  struct rig_queue *queue = rig_zeroed(sizeof *queue);
  queue->gpu = gpu;
  queue->hsa.type = type;
  queue->hsa.features = HSA_QUEUE_FEATURE_KERNEL_DISPATCH;
  queue->hsa.size = size;
  queue->hsa.id = __atomic_fetch_add(&number, 1, __ATOMIC_RELAXED);
  queue->hsa.base_address = rig_zeroed(size * sizeof(hsa_kernel_dispatch_packet_t));
  hsa_signal_create(0, 0, NULL, &queue->hsa.doorbell_signal);
  rig_connect(queue->hsa.doorbell_signal, queue);
  *made = &queue->hsa;
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_queue_destroy(hsa_queue_t *queue) {
  hsa_signal_destroy(queue->doorbell_signal);
  free(queue->base_address);
  free(queue_of(queue));
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_amd_queue_get_info(hsa_queue_t *queue, int attribute, void *value) {
  (void)queue, (void)value;
  return rig_refuse(__func__, attribute);
}

hsa_status_t hsa_amd_profiling_set_profiler_enabled(hsa_queue_t *queue, int enable) {
  (void)queue, (void)enable;
  return HSA_STATUS_SUCCESS;
}

uint64_t hsa_queue_add_write_index_screlease(const hsa_queue_t *queue, uint64_t count) {
  return __atomic_fetch_add(&queue_of(queue)->write, count, __ATOMIC_ACQ_REL);
}

uint64_t hsa_queue_load_write_index_relaxed(const hsa_queue_t *queue) {
  return __atomic_load_n(&queue_of(queue)->write, __ATOMIC_ACQUIRE);
}

uint64_t hsa_queue_load_write_index_scacquire(const hsa_queue_t *queue) {
  return hsa_queue_load_write_index_relaxed(queue);
}

uint64_t hsa_queue_load_read_index_relaxed(const hsa_queue_t *queue) {
  return __atomic_load_n(&queue_of(queue)->read, __ATOMIC_ACQUIRE);
}

uint64_t hsa_queue_load_read_index_scacquire(const hsa_queue_t *queue) {
  return hsa_queue_load_read_index_relaxed(queue);
}

/* Packets of all kinds have the same size, their kind in the first byte, and the signal of completion at the end. */
void rig_ring(struct rig_queue *queue) {
  hsa_kernel_dispatch_packet_t *ring = queue->hsa.base_address;
  while (queue->read < queue->write) {
    hsa_kernel_dispatch_packet_t *packet = &ring[queue->read & (queue->hsa.size - 1)];
    if ((packet->header & 0xff) == HSA_PACKET_TYPE_INVALID)
      return; /* not filled in yet: its writer rings again */
    if ((packet->header & 0xff) == HSA_PACKET_TYPE_KERNEL_DISPATCH) {
      const char *name = rig_kernel_at(queue->gpu, packet->kernel_object);
      rig_log("{\"kind\": \"launch\", \"gpu\": %d, \"name\": \"%s\"}", (int)queue->gpu.handle - FIRST_GPU,
              name ? name : "");
    }
    hsa_signal_t done = packet->completion_signal;
    packet->header = HSA_PACKET_TYPE_INVALID;
    __atomic_add_fetch(&queue->read, 1, __ATOMIC_ACQ_REL);
    complete(done);
  }
}

/* Copies. */
hsa_status_t hsa_memory_copy(void *to, const void *from, size_t size) {
  memcpy(to, from, size);
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_amd_memory_async_copy(void *to, hsa_agent_t to_agent, const void *from, hsa_agent_t from_agent,
                                       size_t size, uint32_t count, const hsa_signal_t *before, hsa_signal_t done) {
  (void)to_agent, (void)from_agent, (void)count, (void)before;
  memcpy(to, from, size);
  complete(done);
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_amd_memory_async_copy_on_engine(void *to, hsa_agent_t to_agent, const void *from,
                                                 hsa_agent_t from_agent, size_t size, uint32_t count,
                                                 const hsa_signal_t *before, hsa_signal_t done, uint32_t engine,
                                                 bool force) {
  (void)engine, (void)force;
  return hsa_amd_memory_async_copy(to, to_agent, from, from_agent, size, count, before, done);
}
