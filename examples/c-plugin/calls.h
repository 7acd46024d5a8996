/* What a call asks of those who work in it. */
#ifndef CSV_CALLS_H
#define CSV_CALLS_H

#include "crossdock.h"

/* CROSSDOCK_CANCELLED if the caller wants no more. */
crossdock_code csv_check_cancelled(const crossdock_call* call, crossdock_error* err);

void csv_tell_progress(const crossdock_call* call, uint64_t bytes_done, uint64_t bytes_total);

/* The least of `bytes`, what the call wishes to have in flight, and a fraction of the session's limit; at least 4 KiB. */
size_t csv_within_budget(const crossdock_instance* instance, const crossdock_call* call, size_t bytes);

#endif
