/* Types out of the first rows. A type is chosen only if every value that was seen has it and loses nothing by it. */
#ifndef CSV_INFER_H
#define CSV_INFER_H

#include "columns.h"
#include "options.h"
#include "scan.h"

/* Gives every column without a type one, from the rows behind `place`, of which none is used up. `most_bytes` bounds the
 * text that is kept for it. */
crossdock_code csv_infer(csv_columns* columns, csv_scanner* scanner, csv_place place, const csv_options* options,
                         size_t most_bytes, const crossdock_call* call, crossdock_error* err);

#endif
