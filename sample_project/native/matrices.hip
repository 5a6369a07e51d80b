// A translation unit of the shared library: the product of two square matrices, row by row.
#include "hip_api.h"

extern "C" __global__ void sample_multiply_kernel(const double *a, const double *b, double *out, unsigned width) {
  unsigned i = global_index();
  if (i >= width * width)
    return;
  double sum = 0;
  for (unsigned k = 0; k < width; ++k)
    sum += a[i / width * width + k] * b[k * width + i % width];
  out[i] = sum;
}
