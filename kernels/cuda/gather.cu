// Tensors with any strides, made contiguous.
#include "words.cuh"

// One copy of a long division, where it is rare.
static __device__ __noinline__ u64 divide(u64 a, u64 by) { return a / by; }

#define MOST_DIMS ((CROSSDOCK_MAX_KERNEL_ARGS - 5) / 2 + 1)
// Units of a tile's side: more where they are narrow.
#define SIDE_OF(bytes) ((bytes) <= 2 ? 64u : 32u)
#define TILE_BYTES (32 * 33 * 16)

// What is moved as one, and along which dimensions.
struct Plan {
  u32 n;
  // 1, 2, 4, 8 or 16 bytes.
  u32 unit;
  // The dimension along which units lie side by side in the source, if that is not the last and tiles pay; else n.
  u32 fast;
  u64 total;
  // Tiles along either dimension, and sets of them.
  u64 across;
  u64 along;
  u64 planes;
  u64 sizes[MOST_DIMS];
  i64 strides[MOST_DIMS];
  // Of the target, in units.
  u64 steps[MOST_DIMS];
};

// The bytes of a row (an element, or several that lie side by side) become units, as wide as everything divides.
DEVICE void make_plan(const Job& job, u32 dims, u64 width, u64 source, u64 target, Plan& plan) {
  u32 n = (job.n - dims) / 2;
  u64 row = width, all = source | target;
#pragma unroll 1
  for (u32 i = 0; i < n; i++) {
    plan.sizes[i] = job.value(dims + 2 * i);
    plan.strides[i] = (i64)job.value(dims + 2 * i + 1);
  }
  if (n > 0 && plan.strides[n - 1] == (i64)width) row = width * plan.sizes[--n];
#pragma unroll 1
  for (u32 i = 0; i < n; i++) all |= (u64)plan.strides[i];
  all |= row | 16;
  plan.unit = (u32)(all & (0 - all));
  plan.sizes[n] = divide(row, (u64)plan.unit);
  plan.strides[n] = plan.unit;
  // A row of one unit needs no dimension of its own.
  if (plan.sizes[n] > 1 || n == 0) n++;
  plan.n = n;
  u64 step = 1;
#pragma unroll 1
  for (u32 i = n; i-- > 0;) {
    plan.steps[i] = step;
    step *= plan.sizes[i];
  }
  plan.total = step;
  plan.fast = n;
  if (plan.strides[n - 1] == (i64)plan.unit) return;
#pragma unroll 1
  for (u32 i = 0; i + 1 < n; i++) {
    bool pays = plan.sizes[i] >= 8 && plan.sizes[n - 1] >= 8;
    if (plan.strides[i] == (i64)plan.unit && pays) plan.fast = i;
  }
  if (plan.fast == n || plan.total == 0) return;
  u64 side = SIDE_OF(plan.unit);
  plan.across = divide(plan.sizes[plan.fast] + side - 1, side);
  plan.along = divide(plan.sizes[n - 1] + side - 1, side);
  plan.planes = divide(plan.total, plan.sizes[plan.fast] * plan.sizes[n - 1]);
}

// A unit of any width, in its lower bytes. The width is the same for all threads.
DEVICE Pair load_unit(const u8* at, u32 bytes) {
  Pair unit = {0, 0};
  switch (bytes) {
    case 1: unit.low = __ldg(at); break;
    case 2: unit.low = __ldg((const u16*)at); break;
    case 4: unit.low = __ldg((const u32*)at); break;
    case 8: unit.low = __ldg((const u64*)at); break;
    case 16: unit = aligned128(at); break;
  }
  return unit;
}

DEVICE bool is_there(Bytes from, i64 at, u32 bytes) {
  return at >= 0 && (u64)at <= from.len && from.len - (u64)at >= bytes;
}

DEVICE void store_unit(Target to, u64 i, u32 bytes, Pair unit) {
  if ((i + 1) * bytes > to.len) return;
  u8* at = to.at + i * bytes;
  switch (bytes) {
    case 1: store(at, (u8)unit.low); break;
    case 2: store((u16*)at, (u16)unit.low); break;
    case 4: store((u32*)at, (u32)unit.low); break;
    case 8: store((u64*)at, unit.low); break;
    case 16: store128(at, unit); break;
  }
}

// Unit by unit of the target, each thread several at once.
DEVICE void gather_units(const Job& job, const Plan& plan, Bytes from, u64 first, Target to) {
  const u32 AT_ONCE = 4;
  bool small = plan.total >> 32 == 0;
  u32 bytes = plan.unit;
  for (u64 i = job.thread; i < plan.total; i += AT_ONCE * job.threads) {
    u64 rest[AT_ONCE];
    i64 at[AT_ONCE];
    Pair unit[AT_ONCE];
    bool there[AT_ONCE];
#pragma unroll
    for (u32 k = 0; k < AT_ONCE; k++) {
      rest[k] = i + k * job.threads;
      at[k] = (i64)first;
    }
#pragma unroll 1
    for (u32 d = plan.n; d-- > 1;) {
      u64 size = plan.sizes[d];
      i64 stride = plan.strides[d];
#pragma unroll
      for (u32 k = 0; k < AT_ONCE; k++) {
        u64 above = small ? (u32)rest[k] / (u32)size : divide(rest[k], size);
        at[k] += (i64)(rest[k] - above * size) * stride;
        rest[k] = above;
      }
    }
#pragma unroll
    for (u32 k = 0; k < AT_ONCE; k++) {
      at[k] += (i64)rest[k] * plan.strides[0];
      there[k] = i + k * job.threads < plan.total && is_there(from, at[k], bytes);
      if (there[k]) unit[k] = load_unit(from.at + at[k], bytes);
    }
#pragma unroll
    for (u32 k = 0; k < AT_ONCE; k++) {
      if (there[k]) store_unit(to, i + k * job.threads, bytes, unit[k]);
    }
  }
}

// What lies in a tile between being read and being written.
template <class T>
DEVICE void put_in_tile(void* tile, u32 i, u64 low) {
  ((T*)tile)[i] = (T)low;
}

DEVICE void store_tile(void* tile, u32 i, u32 bytes, Pair unit) {
  switch (bytes) {
    case 1: put_in_tile<u8>(tile, i, unit.low); break;
    case 2: put_in_tile<u16>(tile, i, unit.low); break;
    case 4: put_in_tile<u32>(tile, i, unit.low); break;
    case 8: put_in_tile<u64>(tile, i, unit.low); break;
    case 16: ((ulonglong2*)tile)[i] = make_ulonglong2(unit.low, unit.high); break;
  }
}

DEVICE Pair load_tile(const void* tile, u32 i, u32 bytes) {
  Pair unit = {0, 0};
  switch (bytes) {
    case 1: unit.low = ((const u8*)tile)[i]; break;
    case 2: unit.low = ((const u16*)tile)[i]; break;
    case 4: unit.low = ((const u32*)tile)[i]; break;
    case 8: unit.low = ((const u64*)tile)[i]; break;
    case 16: {
      ulonglong2 both = ((const ulonglong2*)tile)[i];
      unit.low = both.x;
      unit.high = both.y;
    }
  }
  return unit;
}

// Two dimensions by tiles: read along the one, written along the other.
DEVICE void gather_tiles(const Job& job, const Plan& plan, Bytes from, u64 first, Target to, void* tile) {
  const u32 bytes = plan.unit, side = SIDE_OF(bytes);
  // An odd number of words of 4 bytes, so that neither way two lanes meet in one bank.
  const u32 pitch = side + (bytes < 4 ? 4 / bytes : 1);
  const u32 rows = THREADS / side;
  u32 last = plan.n - 1, fast = plan.fast;
  u64 tiles = plan.planes * plan.across * plan.along;
  u32 x = threadIdx.x % side, y = threadIdx.x / side;
  for (u64 t = job.thread / THREADS; t < tiles; t += job.threads / THREADS) {
    u64 row = divide(t, plan.across);
    u64 rest = divide(row, plan.along);
    u64 a = (t - row * plan.across) * side, l = (row - rest * plan.along) * side;
    i64 source = (i64)first;
    u64 target = 0;
#pragma unroll 1
    for (u32 d = plan.n; d-- > 0;) {
      if (d == last || d == fast) continue;
      u64 above = divide(rest, plan.sizes[d]);
      u64 digit = rest - above * plan.sizes[d];
      rest = above;
      source += (i64)digit * plan.strides[d];
      target += digit * plan.steps[d];
    }
    __syncthreads();
#pragma unroll 4
    for (u32 k = 0; k < side; k += rows) {
      u64 i = a + x, j = l + y + k;
      if (i >= plan.sizes[fast] || j >= plan.sizes[last]) continue;
      i64 at = source + (i64)i * plan.strides[fast] + (i64)j * plan.strides[last];
      if (is_there(from, at, bytes)) store_tile(tile, (y + k) * pitch + x, bytes, load_unit(from.at + at, bytes));
    }
    __syncthreads();
#pragma unroll 4
    for (u32 k = 0; k < side; k += rows) {
      u64 i = a + y + k, j = l + x;
      if (i >= plan.sizes[fast] || j >= plan.sizes[last]) continue;
      store_unit(to, target + i * plan.steps[fast] + j, bytes, load_tile(tile, x * pitch + y + k, bytes));
    }
  }
}

KERNEL(crossdock_gather) {
  PARAMS(FROM, FIRST, WIDTH, TO, DIMS);
  __shared__ Plan plan;
  __shared__ ulonglong2 tile[TILE_BYTES / 16];
  FIND_JOB;
  Bytes from = job.read(FROM);
  Target to = job.write(TO);
  u64 first = job.value(FIRST), width = job.value(WIDTH);
  if (threadIdx.x == 0) make_plan(job, DIMS, width, (u64)from.at + first, (u64)to.at, plan);
  __syncthreads();
  if (plan.total == 0) return;
  if (plan.fast < plan.n) {
    gather_tiles(job, plan, from, first, to, tile);
  } else {
    gather_units(job, plan, from, first, to);
  }
}
