/* A HIP library to link against where there is none: only its name and its symbols matter.

   The program that is linked with it runs with the real one, or, without a HIP runtime, does not load this part. */
#define SYMBOL(name)                                                                                                   \
  int name(void) { return 100; }

SYMBOL(hipGetDeviceCount)
SYMBOL(hipMalloc)
SYMBOL(hipFree)
SYMBOL(hipMemcpy)
SYMBOL(hipDeviceSynchronize)
SYMBOL(hipLaunchKernel)
SYMBOL(__hipPushCallConfiguration)
SYMBOL(__hipPopCallConfiguration)
SYMBOL(__hipRegisterFatBinary)
SYMBOL(__hipRegisterFunction)
SYMBOL(__hipRegisterVar)
SYMBOL(__hipUnregisterFatBinary)
