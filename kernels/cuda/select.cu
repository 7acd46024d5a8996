// Finds the positions of the set bits of a bitmap. A chunk is `1 << shift` bits, which a warp
// processes at a time.
#include "words.cuh"

// Word `i` of a bitmap. Bits from `len` on are 0.
DEVICE u32 mask_word(Bytes bits, u64 i, u64 len) {
  u32 word = 0;
  if (i * 4 + 4 <= bits.len) {
    word = word_at<u32>(bits, i);
  } else {
    for (u32 b = 0; b < 4; b++) word |= (u32)byte_at(bits, i * 4 + b) << (8 * b);
  }
  return (u32)below(word, i * 32, len);
}

DEVICE u64 chunk_shift(u64 shift) { return shift < 10 || shift > 40 ? 0 : shift; }

KERNEL(crossdock_count_bits) {
  PARAMS(BITS, LEN, SHIFT, SIZES);
  FIND_JOB;
  Bytes bits = job.read(BITS);
  Target sizes = job.write(SIZES);
  u64 len = job.value(LEN), shift = chunk_shift(job.value(SHIFT)), n = (len + 31) / 32;
  if (shift == 0) return;
#pragma unroll 1
  for (u64 chunk = job.thread / 32; chunk < sizes.len / 8; chunk += job.threads / 32) {
    u64 end = min64(n, (chunk + 1) << (shift - 5));
    u32 sum = 0;
#pragma unroll 4
    for (u64 i = (chunk << (shift - 5)) + threadIdx.x % 32; i < end; i += 32) sum += __popc(mask_word(bits, i, len));
    u64 total = sum;
#pragma unroll
    for (u32 step = 16; step > 0; step /= 2) total += __shfl_xor_sync(WARP, total, step);
    if (threadIdx.x % 32 == 0) put_word<u64>(sizes, chunk, total);
  }
}

// Writes the positions of the set bits, WIDTH bytes each. BASES has the number of set bits before
// each chunk.
KERNEL(crossdock_place_bits) {
  PARAMS(BITS, LEN, SHIFT, BASES, TO, WIDTH);
  FIND_JOB;
  Bytes bits = job.read(BITS), bases = job.read(BASES);
  Target to = job.write(TO);
  u64 len = job.value(LEN), shift = chunk_shift(job.value(SHIFT)), words = (len + 31) / 32;
  u32 width = offset_width(job.value(WIDTH)), lane = threadIdx.x % 32;
  if (shift == 0 || width == 0) return;
  u64 places = to.len / width;
#pragma unroll 1
  for (u64 chunk = job.thread / 32; chunk < bases.len / 8; chunk += job.threads / 32) {
    u64 place = word_at<u64>(bases, chunk), end = min64(words, (chunk + 1) << (shift - 5));
#pragma unroll 1
    for (u64 i = chunk << (shift - 5); i < end; i++) {
      u32 word = mask_word(bits, i, len);
      u64 own = place + __popc(word & ((1u << lane) - 1));
      if ((word >> lane & 1) != 0 && own < places) {
        if (width == 4) {
          put_word<u32>(to, own, (u32)(i * 32 + lane));
        } else {
          put_word<u64>(to, own, i * 32 + lane);
        }
      }
      place += __popc(word);
    }
  }
}
