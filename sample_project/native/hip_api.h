/* The few declarations of HIP that the sample needs.

   ROCm's own headers declare the same. They are not used, so that the sample can be built on a machine without
   ROCm, by any clang that has the AMDGPU back end. */
#pragma once

#include <stddef.h>

#ifdef __HIP__
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __constant__ __attribute__((constant))

static inline __device__ unsigned global_index(void) {
  return __builtin_amdgcn_workgroup_id_x() * __builtin_amdgcn_workgroup_size_x() +
         __builtin_amdgcn_workitem_id_x();
}
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  unsigned x, y, z;
} dim3;

typedef struct ihipStream_t *hipStream_t;

enum { hipSuccess = 0, hipErrorNoDevice = 100, hipMemcpyHostToDevice = 1, hipMemcpyDeviceToHost = 2 };

int hipGetDeviceCount(int *count);
int hipMalloc(void **memory, size_t size);
int hipFree(void *memory);
int hipMemcpy(void *to, const void *from, size_t size, int kind);
int hipDeviceSynchronize(void);
int hipLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **arguments, size_t shared, hipStream_t stream);
int __hipPushCallConfiguration(dim3 grid, dim3 block, size_t shared, hipStream_t stream);
int __hipPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, hipStream_t *stream);

#ifdef __cplusplus
}
#endif
