/* The extension module `kpack_sample._core`, in Python's stable ABI. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdlib.h>

#include "sample.h"

extern const void *const sample_polynomial_kernel;

/* Return the numbers of a sequence in memory of PyMem_Malloc, NULL with an exception set. */
static double *numbers_of(PyObject *sequence, unsigned *count) {
  Py_ssize_t length = PySequence_Length(sequence);
  if (length < 0)
    return NULL;
  if (length > 1 << 28) {
    PyErr_SetString(PyExc_ValueError, "too many numbers");
    return NULL;
  }
  double *numbers = PyMem_Malloc((length ? length : 1) * sizeof *numbers);
  if (!numbers) {
    PyErr_NoMemory();
    return NULL;
  }
  for (Py_ssize_t i = 0; i < length; ++i) {
    PyObject *item = PySequence_GetItem(sequence, i);
    numbers[i] = item ? PyFloat_AsDouble(item) : -1.0;
    Py_XDECREF(item);
    if (PyErr_Occurred()) {
      PyMem_Free(numbers);
      return NULL;
    }
  }
  *count = (unsigned)length;
  return numbers;
}

/* Return a list of the numbers. */
static PyObject *list_of(const double *numbers, unsigned count) {
  PyObject *list = PyList_New(count);
  for (unsigned i = 0; list && i < count; ++i) {
    PyObject *item = PyFloat_FromDouble(numbers[i]);
    if (!item || PyList_SetItem(list, i, item) < 0) {
      Py_DECREF(list);
      return NULL;
    }
  }
  return list;
}

static PyObject *devices(PyObject *module, PyObject *unused) {
  (void)module, (void)unused;
  return PyLong_FromLong(sample_devices());
}

static PyObject *axpy(PyObject *module, PyObject *arguments) {
  (void)module;
  double scale;
  PyObject *left, *right, *result = NULL;
  if (!PyArg_ParseTuple(arguments, "dOO:axpy", &scale, &left, &right))
    return NULL;
  unsigned count = 0, other = 0;
  double *x = numbers_of(left, &count), *y = x ? numbers_of(right, &other) : NULL;
  if (y && count != other) {
    PyErr_SetString(PyExc_ValueError, "x and y differ in length");
  } else if (y) {
    sample_axpy(scale, x, y, count);
    result = list_of(y, count);
  }
  PyMem_Free(x);
  PyMem_Free(y);
  return result;
}

static PyObject *multiply(PyObject *module, PyObject *arguments) {
  (void)module;
  PyObject *left, *right, *result = NULL;
  unsigned width, first = 0, second = 0;
  if (!PyArg_ParseTuple(arguments, "OOI:multiply", &left, &right, &width))
    return NULL;
  double *a = numbers_of(left, &first), *b = a ? numbers_of(right, &second) : NULL;
  if (b && (width > 1 << 14 || first != width * width || second != width * width)) {
    PyErr_SetString(PyExc_ValueError, "a and b are not matrices of that width");
  } else if (b) {
    double *out = PyMem_Malloc((first ? first : 1) * sizeof *out);
    if (out) {
      sample_multiply(a, b, out, width);
      result = list_of(out, first);
    } else {
      PyErr_NoMemory();
    }
    PyMem_Free(out);
  }
  PyMem_Free(a);
  PyMem_Free(b);
  return result;
}

static void evaluate(double *coefficients, unsigned terms, double *x, unsigned count) {
  unsigned degree = terms - 1;
  struct sample_launch launch = {
      &sample_polynomial_kernel,
      count,
      {{coefficients, terms * sizeof *coefficients, NULL}, {x, count * sizeof *x, NULL}}};
  void *arguments[] = {&launch.buffers[0].device, &degree, &launch.buffers[1].device, &count};
  if (sample_run(&launch, arguments) == 0)
    return;
  for (unsigned i = 0; i < count; ++i) {
    double value = 0;
    for (unsigned k = terms; k > 0; --k)
      value = value * x[i] + coefficients[k - 1];
    x[i] = value;
  }
}

static PyObject *polynomial(PyObject *module, PyObject *arguments) {
  (void)module;
  PyObject *left, *right, *result = NULL;
  if (!PyArg_ParseTuple(arguments, "OO:polynomial", &left, &right))
    return NULL;
  unsigned terms = 0, count = 0;
  double *coefficients = numbers_of(left, &terms), *x = coefficients ? numbers_of(right, &count) : NULL;
  if (x && !terms) {
    PyErr_SetString(PyExc_ValueError, "a polynomial has at least one coefficient");
  } else if (x) {
    evaluate(coefficients, terms, x, count);
    result = list_of(x, count);
  }
  PyMem_Free(coefficients);
  PyMem_Free(x);
  return result;
}

static PyMethodDef methods[] = {
    {"devices", devices, METH_NOARGS, "devices() -> number of GPUs that HIP sees"},
    {"axpy", axpy, METH_VARARGS, "axpy(scale, x, y) -> scale * x + y"},
    {"multiply", multiply, METH_VARARGS, "multiply(a, b, width) -> product of two square matrices"},
    {"polynomial", polynomial, METH_VARARGS, "polynomial(coefficients, x) -> the polynomial at each x"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_core", "The compiled part of kpack_sample.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__core(void) { return PyModule_Create(&definition); }
