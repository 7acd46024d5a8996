// All kernels, as one module.
#include "bits.cu"
#include "bools.cu"
#include "null_count.cu"
