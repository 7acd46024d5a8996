#include "block.h"

#include "alloc.h"
#include "error.h"
#include "instance.h"

enum { ALIGNMENT_BYTES = 64, SMALLEST_BYTES = 64 };

static crossdock_code allocate(const crossdock_memory* memory, size_t bytes, const char* what, csv_block* out,
                               crossdock_error* err) {
  crossdock_allocation allocation = {0};
  crossdock_error why = {.struct_size = sizeof why};
  crossdock_code code = memory->alloc(memory, CSV_CPU, bytes, ALIGNMENT_BYTES, NULL, &allocation, &why);
  if (code != CROSSDOCK_OK) {
    csv_fail(err, code, "no room for %s of %zu bytes: %s", what, bytes, why.message ? why.message : "no reason given");
    if (why.release) why.release(&why);
    return code;
  }
  out->block = allocation.block;
  out->address = allocation.address;
  out->at = memory->host_address(memory, CSV_CPU, allocation.address, bytes);
  out->bytes = bytes;
  if (!out->at) {
    csv_block_free(memory, out, 0);
    return csv_fail(err, CROSSDOCK_INTERNAL, "the host gave memory of the CPU that it cannot address");
  }
  return CROSSDOCK_OK;
}

crossdock_code csv_block_reserve(const crossdock_memory* memory, csv_block* block, size_t used, size_t wanted,
                                 const char* what, crossdock_error* err) {
  csv_block larger = {0};
  size_t bytes = block->bytes < SMALLEST_BYTES ? SMALLEST_BYTES : block->bytes;
  crossdock_code code;
  if (block->block && wanted <= block->bytes) return CROSSDOCK_OK;
  while (bytes < wanted) bytes = bytes > SIZE_MAX / 2 ? wanted : bytes * 2;
  code = allocate(memory, bytes, what, &larger, err);
  if (code != CROSSDOCK_OK) return code;
  if (used) memcpy(larger.at, block->at, used);
  csv_block_free(memory, block, 0);
  *block = larger;
  return CROSSDOCK_OK;
}

void csv_block_free(const crossdock_memory* memory, csv_block* block, uint32_t flags) {
  if (block->block) memory->free(memory, block->block, NULL, 0, flags);
  memset(block, 0, sizeof *block);
}
