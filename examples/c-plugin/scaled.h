/* The encoding `example.scaled`: floats as integers, each times one scale. */
#ifndef CSV_SCALED_H
#define CSV_SCALED_H

#include "crossdock.h"

#define CSV_SCALED_ID "example.scaled"

extern const crossdock_encoding csv_scaled;

#endif
