/* The shared library's host part. */
#include "sample.h"

enum { BLOCK = 256 };

/* A kernel's handle. The compiler of the HIP sources, or registration.c, defines it and tells HIP its address. */
extern const void *const sample_axpy_kernel;
extern const void *const sample_multiply_kernel;

int sample_devices(void) {
  int count = 0;
  return hipGetDeviceCount(&count) == hipSuccess && count > 0 ? count : 0;
}

static int copy(struct sample_launch *launch, int kind) {
  for (int i = 0; i < SAMPLE_BUFFERS; ++i) {
    void *host = launch->buffers[i].host, *device = launch->buffers[i].device;
    size_t size = launch->buffers[i].size;
    int error = 0;
    if (size)
      error = kind == hipMemcpyHostToDevice ? hipMemcpy(device, host, size, kind) : hipMemcpy(host, device, size, kind);
    if (error)
      return error;
  }
  return 0;
}

static int allocate(struct sample_launch *launch) {
  for (int i = 0; i < SAMPLE_BUFFERS; ++i) {
    int error = launch->buffers[i].size ? hipMalloc(&launch->buffers[i].device, launch->buffers[i].size) : 0;
    if (error)
      return error;
  }
  return 0;
}

int sample_run(struct sample_launch *launch, void **arguments) {
  if (!sample_devices())
    return hipErrorNoDevice;
  dim3 grid = {(launch->threads + BLOCK - 1) / BLOCK, 1, 1}, block = {BLOCK, 1, 1};
  int error = allocate(launch);
  if (!error)
    error = copy(launch, hipMemcpyHostToDevice);
  if (!error)
    error = hipLaunchKernel(launch->kernel, grid, block, arguments, 0, NULL);
  if (!error)
    error = hipDeviceSynchronize();
  if (!error)
    error = copy(launch, hipMemcpyDeviceToHost);
  for (int i = 0; i < SAMPLE_BUFFERS; ++i)
    if (launch->buffers[i].device)
      hipFree(launch->buffers[i].device);
  return error;
}

void sample_axpy(double scale, const double *x, double *y, unsigned count) {
  size_t size = count * sizeof *x;
  struct sample_launch launch = {&sample_axpy_kernel, count, {{(void *)x, size, NULL}, {y, size, NULL}}};
  void *arguments[] = {&scale, &launch.buffers[0].device, &launch.buffers[1].device, &count};
  if (sample_run(&launch, arguments) == 0)
    return;
  for (unsigned i = 0; i < count; ++i)
    y[i] += scale * x[i];
}

void sample_multiply(const double *a, const double *b, double *out, unsigned width) {
  size_t size = (size_t)width * width * sizeof *a;
  struct sample_launch launch = {
      &sample_multiply_kernel, width * width, {{(void *)a, size, NULL}, {(void *)b, size, NULL}, {out, size, NULL}}};
  void *arguments[] = {&launch.buffers[0].device, &launch.buffers[1].device, &launch.buffers[2].device, &width};
  if (sample_run(&launch, arguments) == 0)
    return;
  for (unsigned i = 0; i < width * width; ++i) {
    double sum = 0;
    for (unsigned k = 0; k < width; ++k)
      sum += a[i / width * width + k] * b[k * width + i % width];
    out[i] = sum;
  }
}
