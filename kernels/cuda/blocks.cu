// Looks up values by code. Each block of 1024 codes has its own dictionary, a range of the values.
#include "packed.cuh"
#include "widen.cuh"

// Loads an integer of any type. Not inlined, because its many cases would use registers.
static __device__ __noinline__ u64 load_integer(Bytes from, u64 i, u32 type) { return integer_of(from, i, type); }

// The dictionaries of all blocks.
struct Dictionaries {
  Bytes begins;
  u32 begin_type;
  // The first begin. The values begin there.
  u64 base;
  u64 blocks;
  u64 n_values;

  // The index of the first value of a block's dictionary. The end of the values if there is no such
  // block.
  __device__ __forceinline__ u64 begin(u64 block) const {
    return block < blocks ? load_integer(begins, block, begin_type) - base : n_values;
  }
};

// The dictionary of a block. It is empty if it is not within the values.
struct Dictionary {
  u64 from;
  u64 len;
  bool is_range;

  __device__ __forceinline__ Dictionary(u64 begin, u64 end, u64 n_values)
      : from(begin), len(0), is_range(begin <= end && end <= n_values) {
    if (is_range) len = end - begin;
  }
};

// Whether the code at a position gives an error.
DEVICE bool is_wrong(u64 code, const Dictionary& of, Bytes validity, u64 bit) {
  return !of.is_range || (of.len != 1 && code >= of.len && is_set(validity, bit));
}

// Looks up aligned values, in vectors of 16 bytes. All codes of a vector are in one block. Only
// whole vectors of the target are written. Returns the number of values in these vectors. The
// threads of a block load the begins for all their vectors once, because loading integers of any
// type takes longer than looking up a value.
template <class T, class C>
DEVICE u64 take_vectors(const Job& job, Bytes codes, Bytes validity, u64 first_bit, const Dictionaries& all, const T* values,
                        u64 first, Target to, u64& first_error) {
  const u32 EACH = 16 / sizeof(T), AT_ONCE = sizeof(T) < 4 ? sizeof(T) : 4, TILE = AT_ONCE * THREADS;
  const u32 MAX_BLOCKS = TILE * EACH / BLOCK_VALUES + 1;
  __shared__ u64 begins[MAX_BLOCKS + 1];
  u64 vectors = to.len / 16, tiles = (vectors + TILE - 1) / TILE;
#pragma unroll 1
  for (u64 tile = job.thread / THREADS; tile < tiles; tile += job.threads / THREADS) {
    u64 v = tile * TILE + threadIdx.x, first_block = (first + tile * TILE * EACH) / BLOCK_VALUES;
    C code[AT_ONCE][EACH];
#pragma unroll
    for (u32 k = 0; k < AT_ONCE; k++) {
      load_codes(codes.at + min64(v + k * THREADS, vectors - 1) * EACH * sizeof(C), code[k]);
    }
    // Waits until all threads have read the begins of the last tile.
    __syncthreads();
    if (threadIdx.x <= MAX_BLOCKS) begins[threadIdx.x] = all.begin(first_block + threadIdx.x);
    __syncthreads();
#pragma unroll
    for (u32 k = 0; k < AT_ONCE; k++) {
      u64 vector = v + k * THREADS;
      if (vector >= vectors) break;
      u32 block = (u32)((first + vector * EACH) / BLOCK_VALUES - first_block);
      Dictionary of(begins[block], begins[block + 1], all.n_values);
      const T* table = values + of.from;
      T value[EACH];
      bool any_error = !of.is_range;
#pragma unroll
      for (u32 e = 0; e < EACH; e++) {
        // In a dictionary of one value, every code means that value.
        u32 at = of.len == 1 ? 0 : code[k][e];
        any_error |= at >= of.len;
        value[e] = at < of.len ? __ldg(table + at) : (T)0;
      }
      Pair pair;
      memcpy(&pair, value, 16);
      store128(to.at + vector * 16, pair);
      if (!any_error) continue;
#pragma unroll 1
      for (u32 e = 0; e < EACH; e++) {
        u64 at = vector * EACH + e, one = load_integer(codes, at, 2 * sizeof(C));
        if (is_wrong(one, of, validity, first_bit + at)) first_error = min64(first_error, at);
      }
    }
  }
  return vectors * EACH;
}

template <class T>
DEVICE u64 take_blocks(const Job& job, Bytes codes, u32 code_type, Bytes validity, u64 first_bit, Bytes begins, u32 begin_type,
                       Bytes values, u64 first, Target to) {
  u64 n = to.len / sizeof(T), first_error = NONE, n_taken = 0, blocks = begins.len / width_of_integer(begin_type);
  if (n == 0) return first_error;
  if (codes.len / width_of_integer(code_type) < n || (first + n - 1) / BLOCK_VALUES >= blocks) return 0;
  Dictionaries all = {begins, begin_type, load_integer(begins, 0, begin_type), blocks, words_of<T>(values)};
  bool are_aligned = (((u64)to.at | (u64)codes.at | first) & 15) == 0 && is_aligned(values, sizeof(T));
  const T* table = (const T*)values.at;
  // Only unsigned codes of 1 or 2 bytes, because no others are known for blocks of 1024 codes.
  switch (are_aligned ? code_type : 0) {
    case 2: n_taken = take_vectors<T, u8>(job, codes, validity, first_bit, all, table, first, to, first_error); break;
    case 4: n_taken = take_vectors<T, u16>(job, codes, validity, first_bit, all, table, first, to, first_error); break;
  }
#pragma unroll 1
  for (u64 at = n_taken + job.thread; at < n; at += job.threads) {
    u64 block = (first + at) / BLOCK_VALUES, code = load_integer(codes, at, code_type);
    Dictionary of(all.begin(block), all.begin(block + 1), all.n_values);
    if (is_wrong(code, of, validity, first_bit + at)) first_error = min64(first_error, at);
    if (of.len == 1) code = 0;
    put_word(to, at, code < of.len ? word_at<T>(values, of.from + code) : (T)0);
  }
  return first_error;
}

// The cell becomes the index of the first code with an error. A code is an error if it is non-null
// and out of range, or if its dictionary is not within the values.
KERNEL_BLOCKS(crossdock_take_blocks, 4) {
  PARAMS(CODES, CODE_TYPE, VALIDITY, FIRST_BIT, BEGINS, BEGIN_TYPE, VALUES, FIRST, TO, WIDTH, CELL);
  FIND_JOB;
  Bytes codes = job.read(CODES), validity = job.read(VALIDITY), begins = job.read(BEGINS), values = job.read(VALUES);
  Target to = job.write(TO);
  u32 code_type = (u32)job.value(CODE_TYPE), begin_type = (u32)job.value(BEGIN_TYPE);
  u64 bit = job.value(FIRST_BIT), first = job.value(FIRST), first_error = 0;
  if (!is_integer(code_type) || !is_integer(begin_type) || first >= BLOCK_VALUES) return;
  switch (job.value(WIDTH)) {
    case 1: first_error = take_blocks<u8>(job, codes, code_type, validity, bit, begins, begin_type, values, first, to); break;
    case 2: first_error = take_blocks<u16>(job, codes, code_type, validity, bit, begins, begin_type, values, first, to); break;
    case 4: first_error = take_blocks<u32>(job, codes, code_type, validity, bit, begins, begin_type, values, first, to); break;
    case 8: first_error = take_blocks<u64>(job, codes, code_type, validity, bit, begins, begin_type, values, first, to); break;
  }
  report(job.write(CELL), first_error);
}
