"""Adapters to build systems, one module each (import package `kpack_build.hooks`)."""
