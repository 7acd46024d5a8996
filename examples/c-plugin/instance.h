/* What an instance of the plugin holds. It is never written after its creation, so any thread may read it. */
#ifndef CSV_INSTANCE_H
#define CSV_INSTANCE_H

#include <locale.h>

#include "crossdock.h"

struct crossdock_instance {
  const crossdock_host* host;     /* borrowed: it is there until `destroy` has returned */
  const crossdock_memory* memory; /* lives as long as the host object */
  uint64_t memory_limit;          /* bytes, of the session; 0: none */
  locale_t c_locale;              /* in which a decimal point is a point */
};

#define CSV_CPU ((crossdock_device){-1, ARROW_DEVICE_CPU, 0})

/* Fills in an out parameter, of which no more is written than its caller has; its size stays the caller's. */
#define CSV_GIVE(out, value)                                                                    \
  do {                                                                                          \
    (value).struct_size = (out)->struct_size;                                                   \
    memcpy((out), &(value), (out)->struct_size < sizeof(value) ? (out)->struct_size : sizeof(value)); \
  } while (0)

#endif
