// Finds the distinct values of an array. Rows with equal values share a slot of a hash table, which
// contains the first of these rows.
#include "words.cuh"

#define EMPTY 0xffffffffu

// Values between offsets or, if `width` is 0, values of `size` bytes each.
struct Values {
  Bytes offsets;
  u32 width;
  u64 size;
  Bytes data;

  // Finds row `i`. Returns false if it is outside of the data.
  __device__ __forceinline__ bool find(u64 i, Bytes& value) const {
    u64 begin = width == 0 ? i * size : (u64)offset_at(offsets, i, width);
    u64 end = width == 0 ? begin + size : (u64)offset_at(offsets, i + 1, width);
    if (begin > end || end > data.len) return false;
    value = {data.at + begin, end - begin};
    return true;
  }
};

// Bytes `i` to `i + 8` of a value, as many as there are.
DEVICE u64 piece(Bytes value, u64 i) {
  const u8* at = value.at + i;
  if (value.len - i >= 8 && ((u64)at & 7) == 0) return aligned64(at);
  return bytewise(at, (u32)min64(8, value.len - i));
}

// The seed makes it impossible to prepare values that all have the same hash.
DEVICE u64 hash_of(Bytes value, u64 seed) {
  u64 hash = seed ^ value.len;
#pragma unroll 1
  for (u64 i = 0; i < value.len; i += 8) {
    hash = (hash ^ piece(value, i)) * 0x9e3779b97f4a7c15ull;
    hash ^= hash >> 32;
  }
  hash *= 0xd6e8feb86659fd93ull;
  return hash ^ hash >> 32;
}

DEVICE bool is_equal(Bytes a, Bytes b) {
  if (a.len != b.len) return false;
#pragma unroll 1
  for (u64 i = 0; i < a.len; i += 8) {
    if (piece(a, i) != piece(b, i)) return false;
  }
  return true;
}

// The slot of the value of row `i`, which becomes the first row of the slot unless the slot has an
// earlier one. The table of rows below `n` has more than `n` slots.
DEVICE u32 slot_of(const Values& values, u64 n, u32 i, Bytes value, u64 seed, u32* table, u64 mask) {
  u64 probe = hash_of(value, seed) & mask;
#pragma unroll 1
  for (u64 tries = 0; tries <= mask; tries++, probe = (probe + 1) & mask) {
    // Most slots have a row already, and an atomic operation takes much longer than a load.
    u32 row = *(volatile u32*)(table + probe);
    if (row == EMPTY) row = atomicCAS(table + probe, EMPTY, i);
    if (row == EMPTY) return (u32)probe;
    Bytes other;
    if (row >= n || !values.find(row, other) || !is_equal(other, value)) continue;
    if (row > i) atomicMin(table + probe, i);
    return (u32)probe;
  }
  return EMPTY;
}

// Writes the slot of each row that is not null. The number of slots of TABLE is a power of two that
// exceeds the number of rows. The cell becomes the index of the first row that is not null and
// outside of the data.
KERNEL(crossdock_find_equal) {
  PARAMS(OFFSETS, WIDTH, SIZE, LEN, DATA, VALIDITY, FIRST, SEED, TABLE, SLOTS, CELL);
  FIND_JOB;
  Bytes offsets = job.read(OFFSETS), validity = job.read(VALIDITY);
  u64 width = job.value(WIDTH), n = job.value(LEN), first = job.value(FIRST), first_error = NONE;
  Values values = {offsets, offset_width(width), job.value(SIZE), job.read(DATA)};
  Target table = job.write(TABLE), slots = job.write(SLOTS);
  if (values.width == 0 ? width != 0 : offsets.len / values.width < n + 1) return;
  u64 n_slots = table.len / 4, mask = n_slots - 1;
  if ((n_slots & mask) != 0 || n_slots <= n || slots.len / 4 < n || ((u64)table.at & 3) != 0) return;
#pragma unroll 1
  for (u64 i = job.thread; i < n; i += job.threads) {
    Bytes value;
    u32 slot = EMPTY;
    if (is_set(validity, first + i)) {
      if (values.find(i, value)) {
        slot = slot_of(values, n, (u32)i, value, job.value(SEED), (u32*)table.at, mask);
      } else {
        first_error = min64(first_error, i);
      }
    }
    put_word<u32>(slots, i, slot);
  }
  report(job.write(CELL), first_error);
}

// Sets the bit of each row that is the first with its value.
KERNEL(crossdock_mark_first) {
  PARAMS(TABLE, SLOTS, TO);
  FIND_JOB;
  Bytes table = job.read(TABLE), slots = job.read(SLOTS);
  Target to = job.write(TO);
  u64 n_slots = table.len / 4, n = slots.len / 4;
#pragma unroll 1
  for (u64 byte = job.thread; byte < to.len; byte += job.threads) {
    u32 bits = 0;
    for (u64 i = byte * 8; i < min64(byte * 8 + 8, n); i++) {
      u32 slot = word_at<u32>(slots, i);
      if (slot < n_slots && word_at<u32>(table, slot) == i) bits |= 1u << (i % 8);
    }
    store(to.at + byte, (u8)bits);
  }
}

// Replaces each row of the table by its position in ROWS.
KERNEL(crossdock_number_slots) {
  PARAMS(ROWS, SLOTS, TABLE);
  FIND_JOB;
  Bytes rows = job.read(ROWS), slots = job.read(SLOTS);
  Target table = job.write(TABLE);
  u64 n = rows.len / 4, n_slots = table.len / 4, n_rows = slots.len / 4;
#pragma unroll 1
  for (u64 i = job.thread; i < n; i += job.threads) {
    u32 row = word_at<u32>(rows, i);
    u32 slot = row < n_rows ? word_at<u32>(slots, row) : EMPTY;
    if (slot < n_slots) put_word<u32>(table, slot, (u32)i);
  }
}
