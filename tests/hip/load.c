/* Load the libraries named on the command line, each on its own, and say which could not be. */
#include <dlfcn.h>
#include <stdio.h>

int main(int count, char **names) {
  for (int i = 1; i < count; ++i)
    printf("%s\t%s\n", names[i], dlopen(names[i], RTLD_NOW) ? "" : dlerror());
  return 0;
}
