// A translation unit of the shared library: y = scale · x + y, and how often it was computed.
#include "hip_api.h"

__device__ unsigned sample_axpy_calls;

extern "C" __global__ void sample_axpy_kernel(double scale, const double *x, double *y, unsigned count) {
  unsigned i = global_index();
  if (i < count)
    y[i] += scale * x[i];
  if (i == 0)
    sample_axpy_calls += 1;
}
