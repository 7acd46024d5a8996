/* Numbers in files have a decimal point, whatever language the program that loaded us speaks. The locale is the thread's
 * own while we work, so nobody else sees it. */
#ifndef CSV_LOCALES_H
#define CSV_LOCALES_H

#include <locale.h>

#include "instance.h"

static inline locale_t csv_locale_enter(const crossdock_instance* instance) { return uselocale(instance->c_locale); }
static inline void csv_locale_leave(locale_t before) { uselocale(before); }

#endif
