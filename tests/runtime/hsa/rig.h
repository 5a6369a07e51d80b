/* What the parts of the stand-in share. */
#pragma once
#include <hsa/hsa.h>
#include <stddef.h>
#include <stdint.h>

/* Answer a question whose answer goes to `value`. */
#define ANSWER(type, ...) (*(type *)value = (__VA_ARGS__), HSA_STATUS_SUCCESS)

enum { MAX_GPUS = 16, CPU = 1, FIRST_GPU = 2, NAME = 64 };

/* The target id of a GPU, as "gfx90a:sramecc+:xnack-". */
const char *rig_target(hsa_agent_t gpu);

/* The kernel whose descriptor is at an address and that was loaded for this GPU, or NULL. */
const char *rig_kernel_at(hsa_agent_t gpu, uint64_t descriptor);

/* Read which target a code object is for. */
hsa_status_t rig_code_target(const void *code, size_t size, char target[NAME]);

/* Whether code of one target runs on a GPU of another. */
int rig_runs_on(const char *code, const char *gpu);

/* All packets of the queue that this signal is the doorbell of are done at once. */
struct rig_queue;
void rig_ring(struct rig_queue *queue);

/* A signal that rings for a queue when a value is stored. */
void rig_connect(hsa_signal_t doorbell, struct rig_queue *queue);

/* Append a line to the log named by KPACK_TEST_GPU_LOG, in one piece. */
void rig_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Name a question that is not answered in the log, and give the status for it. */
hsa_status_t rig_refuse(const char *function, int attribute);

void *rig_zeroed(size_t size);
