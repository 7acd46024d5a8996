// Compares values with a literal. Writes one bit per value, which is set if the result of the
// comparison is among the accepted results.
#include "numbers.cuh"

// The results of a comparison, in the order of compare.rs.
#define LESS 1u
#define EQUAL 2u
#define GREATER 4u
#define UNORDERED 8u

// Codes after those of NUMBER_TYPES: signed integers of 16 and of 32 bytes.
#define INT128 11u
#define INT256 12u

// The number of words of 32 bits that a warp computes at a time.
#define MASK_WORDS_AT_ONCE 4

// Writes the lowest bytes of a word, as many as the target has.
DEVICE void put_mask(Target to, u64 word, u32 bits) {
  if (word * 4 + 4 <= to.len && ((u64)to.at & 3) == 0) {
    store((u32*)to.at + word, bits);
    return;
  }
  for (u32 b = 0; b < 4 && word * 4 + b < to.len; b++) store(to.at + word * 4 + b, (u8)(bits >> (8 * b)));
}

// Calls `accepts` for values `0..n` and writes the results as bits. The lanes of a warp compute one
// word together.
template <class Accepts>
DEVICE void write_mask(const Job& job, Target to, u64 n, const Accepts& accepts) {
  u64 words = min64((n + 31) / 32, (to.len + 3) / 4);
  u32 lane = threadIdx.x % 32;
#pragma unroll 1
  for (u64 first = job.thread / 32 * MASK_WORDS_AT_ONCE; first < words; first += job.threads / 32 * MASK_WORDS_AT_ONCE) {
    bool is_accepted[MASK_WORDS_AT_ONCE];
#pragma unroll
    for (u32 k = 0; k < MASK_WORDS_AT_ONCE; k++) {
      u64 i = (first + k) * 32 + lane;
      is_accepted[k] = i < n && accepts(i);
    }
#pragma unroll
    for (u32 k = 0; k < MASK_WORDS_AT_ONCE; k++) {
      u32 bits = __ballot_sync(WARP, is_accepted[k]);
      if (lane == 0 && first + k < words) put_mask(to, first + k, bits);
    }
  }
}

struct Wide {
  u64 words[4];
};

template <class T>
DEVICE u32 order_of(T a, T b) {
  return a < b ? LESS : a == b ? EQUAL : a > b ? GREATER : UNORDERED;
}

template <class T>
DEVICE u32 compared(T value, const Wide& literal) {
  return (T)-1 < (T)0 ? order_of((i64)value, (i64)literal.words[0]) : order_of((u64)value, literal.words[0]);
}
DEVICE u32 compared(double value, const Wide& literal) { return order_of(value, double_of(literal.words[0])); }
DEVICE u32 compared(float value, const Wide& literal) { return compared((double)value, literal); }
DEVICE u32 compared(Half value, const Wide& literal) { return compared((double)half_to_float(value.bits), literal); }

// Compares a signed integer of `N` words, the lowest word first.
template <u32 N>
DEVICE u32 compared_wide(Bytes from, u64 i, const Wide& literal) {
  u32 order = order_of((i64)word_at<u64>(from, i * N + N - 1), (i64)literal.words[N - 1]);
#pragma unroll
  for (u32 k = N - 1; k-- > 0;) {
    if (order == EQUAL) order = order_of(word_at<u64>(from, i * N + k), literal.words[k]);
  }
  return order;
}

KERNEL(crossdock_compare_numbers) {
  PARAMS(FROM, TYPE, LITERAL_0, LITERAL_1, LITERAL_2, LITERAL_3, ACCEPT, TO);
  FIND_JOB;
  Bytes from = job.read(FROM);
  Target to = job.write(TO);
  Wide literal = {{job.value(LITERAL_0), job.value(LITERAL_1), job.value(LITERAL_2), job.value(LITERAL_3)}};
  u32 accept = (u32)job.value(ACCEPT);
  switch (job.value(TYPE)) {
#define CASE(code, name, T)                                                                            \
  case code:                                                                                           \
    write_mask(job, to, from.len / sizeof(T), [=](u64 i) {                                             \
      return (compared(value_of<T>(word_at<typename Word<T>::type>(from, i)), literal) & accept) != 0; \
    });                                                                                                \
    break;
    NUMBER_TYPES(CASE)
#undef CASE
    case INT128:
      write_mask(job, to, from.len / 16, [=](u64 i) { return (compared_wide<2>(from, i, literal) & accept) != 0; });
      break;
    case INT256:
      write_mask(job, to, from.len / 32, [=](u64 i) { return (compared_wide<4>(from, i, literal) & accept) != 0; });
      break;
  }
}

// Compares byte strings: the first different byte decides, else the length. `at` returns byte `i`
// of the value.
template <class At>
DEVICE u32 order_of_bytes(const At& at, u64 len, Bytes literal) {
  u64 both = min64(len, literal.len);
#pragma unroll 1
  for (u64 i = 0; i < both; i++) {
    u32 order = order_of((u32)at(i), (u32)byte_at(literal, i));
    if (order != EQUAL) return order;
  }
  return order_of(len, literal.len);
}

// If LESS and GREATER are both accepted or both rejected, a value of another length than the
// literal needs no comparison of bytes.
DEVICE bool length_decides(u64 len, Bytes literal, u32 accept) {
  return len != literal.len && ((accept & LESS) != 0) == ((accept & GREATER) != 0);
}

template <class At>
DEVICE bool accepts_bytes(const At& at, u64 len, Bytes literal, u32 accept) {
  if (length_decides(len, literal, accept)) return (accept & LESS) != 0;
  return (order_of_bytes(at, len, literal) & accept) != 0;
}

// Values between offsets or, if WIDTH is 0, values of SIZE bytes each. The cell becomes the index
// of the first value that is not null and outside of the data.
KERNEL(crossdock_compare_bytes) {
  PARAMS(OFFSETS, WIDTH, SIZE, LEN, DATA, VALIDITY, FIRST, LITERAL, ACCEPT, TO, CELL);
  FIND_JOB;
  Bytes offsets = job.read(OFFSETS), data = job.read(DATA), validity = job.read(VALIDITY), literal = job.read(LITERAL);
  u64 width = job.value(WIDTH), size = job.value(SIZE), n = job.value(LEN), first = job.value(FIRST), first_error = NONE;
  u32 accept = (u32)job.value(ACCEPT), of = offset_width(width);
  if (of != 0 && offsets.len / of < n + 1) return;
  if (of == 0 && (width != 0 || (size != 0 && data.len / size < n))) return;
  write_mask(job, job.write(TO), n, [&](u64 i) {
    u64 begin = of == 0 ? i * size : (u64)offset_at(offsets, i, of);
    u64 end = of == 0 ? begin + size : (u64)offset_at(offsets, i + 1, of);
    if (begin > end || end > data.len) {
      if (is_set(validity, first + i)) first_error = min64(first_error, i);
      return false;
    }
    const u8* value = data.at + begin;
    return accepts_bytes([=](u64 k) { return __ldg(value + k); }, end - begin, literal, accept);
  });
  report(job.write(CELL), first_error);
}

// Adds the bits of values whose view refers to one of the buffers from WINDOW on, and, if WINDOW is
// 0, of inline values. The cell becomes the index of the first malformed view that is not
// null.
KERNEL(crossdock_compare_views) {
  PARAMS(VIEWS, VALIDITY, FIRST, LITERAL, ACCEPT, N_DATA, WINDOW, TO, CELL, DATA);
  FIND_JOB;
  Bytes views = job.read(VIEWS), validity = job.read(VALIDITY), literal = job.read(LITERAL);
  Target to = job.write(TO);
  u64 n = views.len / 16, n_data = job.value(N_DATA), window = job.value(WINDOW), n_here = job.n - DATA;
  u64 first = job.value(FIRST), first_error = NONE, words = min64((n + 31) / 32, (to.len + 3) / 4);
  u32 accept = (u32)job.value(ACCEPT), lane = threadIdx.x % 32;
#pragma unroll 1
  for (u64 word = job.thread / 32; word < words; word += job.threads / 32) {
    u64 i = word * 32 + lane;
    bool is_accepted = false, is_wrong = false;
    if (i < n) {
      i32 len = word_at<i32>(views, i * 4);
      u64 buffer = word_at<u32>(views, i * 4 + 2), offset = word_at<u32>(views, i * 4 + 3);
      if (len <= 12) {
        const u8* value = views.at + i * 16 + 4;
        if (len < 0) {
          is_wrong = true;
        } else if (window == 0) {
          is_accepted = accepts_bytes([=](u64 k) { return __ldg(value + k); }, (u64)len, literal, accept);
        }
      } else if (buffer >= n_data) {
        is_wrong = true;
      } else if (buffer >= window && buffer - window < n_here) {
        Bytes data = job.read((u32)(DATA + (buffer - window)));
        const u8* value = data.at + offset;
        if (offset + (u64)len > data.len) {
          is_wrong = true;
        } else {
          is_accepted = accepts_bytes([=](u64 k) { return __ldg(value + k); }, (u64)len, literal, accept);
        }
      }
    }
    if (is_wrong && is_set(validity, first + i)) first_error = min64(first_error, i);
    u32 bits = __ballot_sync(WARP, is_accepted);
    if (lane == 0) {
      for (u32 b = 0; b < 4 && word * 4 + b < to.len; b++) {
        u8* byte = to.at + word * 4 + b;
        store(byte, (u8)(*byte | bits >> (8 * b)));
      }
    }
  }
  report(job.write(CELL), first_error);
}
