/* The importer. */
#ifndef CSV_READ_H
#define CSV_READ_H

#include "crossdock.h"

crossdock_code csv_read_open(crossdock_instance* instance, const crossdock_call* call, crossdock_str format,
                             const crossdock_input* input, const struct ArrowSchema* schema, const crossdock_option* options,
                             size_t n_options, crossdock_batch_stream* out, crossdock_error* err);

#endif
