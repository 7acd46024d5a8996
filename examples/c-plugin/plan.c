/* What writing would do to each column. */
#include <stdio.h>

#include "alloc.h"
#include "error.h"
#include "instance.h"
#include "options.h"
#include "text.h"
#include "view.h"
#include "write.h"

/* A column's texts live as long as the plan. */
typedef struct texts {
  char* name;
  char reason[192];
} texts;

typedef struct plan {
  crossdock_column_plan* columns;
  texts* texts;
  size_t n;
} plan;

static void free_plan(plan* own) {
  for (size_t i = 0; own->texts && i < own->n; i++) CSV_FREE(own->texts[i].name);
  CSV_FREE(own->texts);
  CSV_FREE(own->columns);
  CSV_FREE(own);
}

static void release_plan(crossdock_plan* out) {
  free_plan(out->private_data);
  out->release = NULL;
}

static void describe(const struct ArrowSchema* schema, char* to, size_t bytes, crossdock_verdict* verdict) {
  csv_kind kind;
  csv_shown shown;
  *verdict = csv_kind_of(schema, &kind) ? CROSSDOCK_CONVERTED : CROSSDOCK_CANNOT;
  if (*verdict == CROSSDOCK_CONVERTED) {
    snprintf(to, bytes, kind.indices ? "looked up in its dictionary and printed as text" : "printed as text");
    return;
  }
  snprintf(to, bytes, "CSV has no text for its Arrow format %s: leave it out, or cast it first",
           csv_show(&shown, schema->format ? schema->format : "", schema->format ? strlen(schema->format) : 0));
}

static bool plan_column(plan* own, size_t i, const struct ArrowSchema* schema) {
  const char* name = schema->name ? schema->name : "";
  crossdock_column_plan* column = &own->columns[i];
  texts* text = &own->texts[i];
  column->struct_size = sizeof *column;
  column->to = CSV_CPU;
  text->name = csv_copy_text(name, strlen(name));
  if (!text->name) return false;
  describe(schema, text->reason, sizeof text->reason, &column->verdict);
  column->name = (crossdock_str){text->name, strlen(text->name)};
  column->reason = (crossdock_str){text->reason, strlen(text->reason)};
  return true;
}

crossdock_code csv_write_plan(crossdock_instance* instance, const crossdock_call* call, crossdock_str format,
                              const struct ArrowSchema* schema, crossdock_device from, const crossdock_option* options,
                              size_t n_options, crossdock_plan* out, crossdock_error* err) {
  const size_t n = schema->n_children > 0 ? (size_t)schema->n_children : 0;
  crossdock_plan made = {.release = release_plan};
  csv_options checked;
  crossdock_code code = csv_format_check(format, err);
  plan* own;
  (void)instance, (void)call, (void)from;
  if (code == CROSSDOCK_OK) code = csv_options_read(&checked, false, options, n_options, err);
  if (code != CROSSDOCK_OK) return code;
  own = csv_zeroed(1, sizeof *own);
  if (!own) return csv_no_memory(err);
  own->n = n;
  own->columns = csv_zeroed(n, sizeof *own->columns);
  own->texts = csv_zeroed(n, sizeof *own->texts);
  if (!own->columns || !own->texts) {
    free_plan(own);
    return csv_no_memory(err);
  }
  for (size_t i = 0; i < n; i++) {
    if (plan_column(own, i, schema->children[i])) continue;
    free_plan(own);
    return csv_no_memory(err);
  }
  made.columns = own->columns;
  made.n_columns = n;
  made.private_data = own;
  CSV_GIVE(out, made);
  return CROSSDOCK_OK;
}
