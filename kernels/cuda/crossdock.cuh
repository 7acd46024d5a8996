// Repeats the types of crossdock.h, because the compiler of the images has no other headers. A test
// checks that the types are equal.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;

#ifndef EMULATED
typedef u32 uint32_t;
typedef u64 uint64_t;
#endif
typedef i32 crossdock_code;

typedef uint32_t crossdock_arg_kind;
#define CROSSDOCK_ARG_VALUE 0u
#define CROSSDOCK_ARG_READ 1u
#define CROSSDOCK_ARG_WRITE 2u

typedef struct crossdock_arg {
  uint64_t value;
  uint64_t bytes;
  crossdock_arg_kind kind;
  uint32_t reserved;
} crossdock_arg;

#define CROSSDOCK_MAX_KERNEL_ARGS 168

typedef struct crossdock_kernel_args {
  uint64_t n_args;
  crossdock_code (*host_function)(const crossdock_arg* args, size_t n_args);
  const crossdock_arg* all_args;
  const crossdock_arg* host_args;
  crossdock_arg args[CROSSDOCK_MAX_KERNEL_ARGS];
} crossdock_kernel_args;

static_assert(sizeof(u8) == 1 && sizeof(u16) == 2 && sizeof(u32) == 4 && sizeof(u64) == 8, "fixed widths");
static_assert(sizeof(crossdock_arg) == 24 && sizeof(crossdock_kernel_args) == 4064, "the layout of crossdock.h");
