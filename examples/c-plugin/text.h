/* Small questions about text. */
#ifndef CSV_TEXT_H
#define CSV_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "crossdock.h"

#define CSV_TEXT(literal) {literal, sizeof(literal) - 1}

/* Is `text` this literal? */
bool csv_is(crossdock_str text, const char* literal);

/* How many of the first bytes are whole UTF-8 characters: all of them, or the place of the first that is not. */
size_t csv_utf8_prefix(const char* data, size_t bytes);

/* Room for a text in a message. */
typedef struct csv_shown {
  char text[200];
} csv_shown;

/* Text from outside as a message may hold it: quoted, in one line, UTF-8, cut after some 40 bytes. */
const char* csv_show(csv_shown* room, const char* data, size_t bytes);

#endif
