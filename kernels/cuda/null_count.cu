// Counts null values.
#include "bytes.cuh"

DEVICE u32 ones_of(Pair pair) { return __popcll(pair.low) + __popcll(pair.high); }

KERNEL(crossdock_null_count) {
  PARAMS(BITS, FIRST, LEN, CELL);
  FIND_JOB;
  Bytes bits = job.read(BITS);
  u64 len = job.value(LEN);
  u64 first = min64(job.value(FIRST), bits.len * 8);
  u64 end = first + min64(len, bits.len * 8 - first);
  u64 ones = 0;
  // The bytes are split into aligned vectors, and single bytes before and after them.
  u64 low = first / 8, high = (end + 7) / 8;
  u64 first_whole = (first + 7) / 8;
  u64 begin = first_whole + ((0 - (u64)(bits.at + first_whole)) & 15);
  u64 vectors = end / 8 > begin ? (end / 8 - begin) / 16 : 0;
  if (vectors == 0) begin = high;
  u64 after = begin + vectors * 16;
  const u8* at = bits.at + begin;
  u64 v = job.thread;
  for (; v + 3 * job.threads < vectors; v += 4 * job.threads) {
    Pair a = aligned128(at + v * 16), b = aligned128(at + (v + job.threads) * 16);
    Pair c = aligned128(at + (v + 2 * job.threads) * 16), d = aligned128(at + (v + 3 * job.threads) * 16);
    ones += ones_of(a) + ones_of(b) + ones_of(c) + ones_of(d);
  }
  for (; v < vectors; v += job.threads) ones += ones_of(aligned128(at + v * 16));
  u64 before = begin - low;
  u64 edges = before + (high > after ? high - after : 0);
  for (u64 i = job.thread; i < edges; i += job.threads) {
    u64 place = i < before ? low + i : after + (i - before);
    u32 byte = byte_at(bits, place);
    if (place * 8 < first) byte &= 0xffu << (first - place * 8);
    ones += __popc((u32)below(byte, place * 8, end));
  }
  add(job.write(CELL), (job.thread == 0 ? len : 0) - ones);
}
