// The extension module's own translation unit: a polynomial at many places, coefficients from the constant on.
#include "hip_api.h"

extern "C" __global__ void sample_polynomial_kernel(const double *coefficients, unsigned degree, double *x,
                                                    unsigned count) {
  unsigned i = global_index();
  if (i >= count)
    return;
  double value = 0;
  for (unsigned k = degree + 1; k > 0; --k)
    value = value * x[i] + coefficients[k - 1];
  x[i] = value;
}
