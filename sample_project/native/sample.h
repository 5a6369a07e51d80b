/* What the shared library offers to the extension module.

   Each computation runs on the GPU if there is one that has the code for it, else on the CPU, with the same result.
*/
#pragma once

#include "hip_api.h"

#define SAMPLE_API __attribute__((visibility("default")))

/* The number of GPUs that HIP sees; 0 if it sees none or does not work. */
SAMPLE_API int sample_devices(void);

/* y = scale · x + y, over count numbers. */
SAMPLE_API void sample_axpy(double scale, const double *x, double *y, unsigned count);

/* out = a · b, for square matrices of width × width numbers. */
SAMPLE_API void sample_multiply(const double *a, const double *b, double *out, unsigned width);

/* Copies of host memory on the GPU, for one launch. */
enum { SAMPLE_BUFFERS = 3 };
struct sample_launch {
  const void *kernel;
  unsigned threads;
  struct {
    void *host;
    size_t size;
    void *device;
  } buffers[SAMPLE_BUFFERS];
};

/* Copy the buffers to the GPU, launch with these arguments (`arguments[i]` may point to `buffers[k].device`), copy
   them back. Returns 0, or HIP's error with the host memory as it was. */
SAMPLE_API int sample_run(struct sample_launch *launch, void **arguments);
