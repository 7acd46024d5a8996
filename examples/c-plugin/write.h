/* The exporter. */
#ifndef CSV_WRITE_H
#define CSV_WRITE_H

#include "crossdock.h"

crossdock_code csv_write_plan(crossdock_instance* instance, const crossdock_call* call, crossdock_str format,
                              const struct ArrowSchema* schema, crossdock_device from, const crossdock_option* options,
                              size_t n_options, crossdock_plan* out, crossdock_error* err);

crossdock_code csv_write_begin(crossdock_instance* instance, const crossdock_call* call, crossdock_str format,
                               const struct ArrowSchema* schema, const crossdock_option* options, size_t n_options,
                               crossdock_sink* sink, crossdock_writer* out, crossdock_error* err);

#endif
