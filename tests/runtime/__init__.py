"""The real HIP runtime on GPUs of any kind, none of which is there: a stand-in for the library below it."""
