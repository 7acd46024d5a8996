// Converts integers to another width, and narrows integers of 32 bytes to 16.
#include "map.cuh"
#include "widen.cuh"

template <class T>
DEVICE void widen(const Job& job, u32 steps, Bytes from, u32 type, Target to) {
  if (from.len / width_of_integer(type) < to.len / sizeof(T)) return;
  auto load_one = [=](u64 i) { return (Register<T>)(T)integer_of(from, i, type); };
  u32 width = width_of_integer(type), wide = width * 16 / sizeof(T);
  // Words of less than 4 bytes are packed in registers. They need aligned loads of up to 16 bytes.
  auto can_load = [=](u64 head) {
    u64 at = (u64)from.at + head * width;
    return (at & ((sizeof(T) < 4 ? (wide < 16 ? wide : 16) : width) - 1)) == 0;
  };
  if constexpr (sizeof(T) < 8) {
    auto narrowed = [=](const auto& place, Register<T>* words) { load_narrowed<T>(from, type, place, words); };
    if (width > sizeof(T)) return map_all<T, 1>(job, steps, to, can_load, narrowed, load_one);
  }
  auto widened = [=](const auto& place, Register<T>* words) { load_widened<T, 4>(from, type, place, words); };
  map_all<T, 4>(job, steps, to, can_load, widened, load_one);
}

// Widens integers to `words_each` words of 8 bytes, that is to 16 or 32 bytes. The first word is
// the number. The other words repeat its sign bit.
DEVICE void widen_long(const Job& job, u32 steps, Bytes from, u32 type, u32 words_each, Target to) {
  u32 shift = words_each == 2 ? 1 : 2;
  if (from.len / width_of_integer(type) < to.len / 8 >> shift) return;
  u64 sign = type % 2 != 0 ? 1ull << 63 : 0;
  auto part = [=](u64 number, u64 i) { return (i & (words_each - 1)) == 0 ? number : (number & sign ? ~0ull : 0); };
  auto load_one = [=](u64 i) { return part(integer_of(from, i >> shift, type), i); };
  // The two words of a vector belong to one number if the vectors begin at the first word.
  auto can_load = [=](u64 head) { return head == 0 && is_aligned(from, width_of_integer(type)); };
  auto load_all = [=](const auto& place, u64* words) {
    u64 numbers[4];
    switch (type) {
#define CASE(type, S) \
  case type: \
    _Pragma("unroll") for (u32 k = 0; k < 4; k++) numbers[k] = (u64)__ldg((const S*)from.at + (place(k) >> shift)); \
    break;
      CASE(2, u8)
      CASE(3, i8)
      CASE(4, u16)
      CASE(5, i16)
      CASE(8, u32)
      CASE(9, i32)
      default:
        CASE(16, u64)
#undef CASE
    }
#pragma unroll
    for (u32 k = 0; k < 4; k++) {
      words[2 * k] = part(numbers[k], place(k));
      words[2 * k + 1] = part(numbers[k], place(k) + 1);
    }
  };
  map_all<u64, 4>(job, steps, to, can_load, load_all, load_one);
}

#define LONG_INTEGER (16 * 2 + 1)

// Widens integers of 16 bytes to 32.
DEVICE void widen_longer(const Job& job, u32 steps, Bytes from, Target to) {
  if (from.len / 16 < to.len / 32) return;
  auto load_one = [=](u64 i) {
    u64 word = word_at<u64>(from, (i >> 2) * 2 + ((i & 3) == 0 ? 0 : 1));
    return (i & 2) == 0 ? word : word >> 63 ? ~0ull : 0;
  };
  auto can_load = [=](u64 head) { return head == 0 && is_aligned(from, 8); };
  auto load_all = [=](const auto& place, u64* words) {
#pragma unroll
    for (u32 k = 0; k < 4; k++) {
      const u64* at = (const u64*)from.at + (place(k) >> 2) * 2;
      u64 low = __ldg(at), high = __ldg(at + 1), sign = high >> 63 ? ~0ull : 0;
      words[2 * k] = (place(k) & 2) == 0 ? low : sign;
      words[2 * k + 1] = (place(k) & 2) == 0 ? high : sign;
    }
  };
  map_all<u64, 4>(job, steps, to, can_load, load_all, load_one);
}

KERNEL_BLOCKS(crossdock_widen, 3) {
  PARAMS(FROM, TYPE, TO, WIDTH, STEPS);
  FIND_JOB;
  Bytes from = job.read(FROM);
  Target to = job.write(TO);
  u32 type = (u32)job.value(TYPE);
  if (type == LONG_INTEGER && job.value(WIDTH) == 32) return widen_longer(job, STEPS, from, to);
  if (!is_integer(type)) return;
  switch (job.value(WIDTH)) {
    case 1: return widen<u8>(job, STEPS, from, type, to);
    case 2: return widen<u16>(job, STEPS, from, type, to);
    case 4: return widen<u32>(job, STEPS, from, type, to);
    case 8: return widen<u64>(job, STEPS, from, type, to);
    case 16: return widen_long(job, STEPS, from, type, 2, to);
    case 32: return widen_long(job, STEPS, from, type, 4, to);
  }
}

// Narrows integers of 32 bytes to 16. The cell becomes the first valid integer whose upper half is
// not the sign extension of its lower half.
KERNEL(crossdock_narrow) {
  PARAMS(FROM, VALIDITY, FIRST, TO, CELL);
  FIND_JOB;
  Bytes from = job.read(FROM), validity = job.read(VALIDITY);
  Target to = job.write(TO);
  u64 first = job.value(FIRST), n = min64(from.len / 32, to.len / 16), first_error = NONE;
  for (u64 i = job.thread; i < n; i += job.threads) {
    u64 words[4];
#pragma unroll
    for (u32 w = 0; w < 4; w++) words[w] = word_at<u64>(from, i * 4 + w);
    u64 sign = words[1] >> 63 ? ~0ull : 0;
    if ((words[2] != sign || words[3] != sign) && is_set(validity, first + i)) first_error = min64(first_error, i);
    if (((u64)to.at & 15) == 0) {
      store128(to.at + i * 16, Pair{words[0], words[1]});
    } else {
      put_word(to, i * 2, words[0]);
      put_word(to, i * 2 + 1, words[1]);
    }
  }
  report(job.write(CELL), first_error);
}
